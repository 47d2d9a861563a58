"""Whoever opens a file of a data set before the clock starts is seen."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from train_bench.own_trainer import data_watch
from train_bench.own_trainer.data_watch import DataWatch


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "train").mkdir(parents=True)
    for name in ("train/0.bin", "train/1.bin", "sizes.json"):
        (folder / name).write_bytes(b"1234")
    (folder / "elsewhere.bin").symlink_to(tmp_path / "original.bin")
    (tmp_path / "original.bin").write_bytes(b"1234")
    return folder


LATER_MS = 3_600_000


@pytest.fixture
def mark(tmp_path):
    path = tmp_path / "job.json"
    path.write_text("{}")
    return path


@pytest.fixture
def late(monkeypatch):
    """A watch that notices everything an hour late, as on a machine with too much to do."""
    monkeypatch.setattr(
        data_watch, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + LATER_MS * 10**6)
    )


def opened_by_another(path):
    subprocess.run([sys.executable, "-S", "-c", f"open({str(path)!r})"], check=True)


def watched(folder, opened, mark=None):
    """What is seen of other processes that open files before `run_start`, and one file afterwards."""
    watch = DataWatch(folder, mark)
    for name in opened:
        opened_by_another(folder / name)
    if mark is not None:
        os.utime(mark)
    run_start = time.time() * 1000
    (folder / "train/0.bin").read_bytes()
    watch.close()
    return watch.until(run_start)


@pytest.mark.parametrize("name", ["train/1.bin", "elsewhere.bin"])
def test_a_file_that_is_opened_before_the_clock_starts_is_named(data, mark, late, name):
    seen = watched(data, [name], mark)
    assert (seen.files, seen.first, seen.unknown) == (1, (name,), None)


def test_without_a_mark_the_time_counts_at_which_an_opening_was_noticed(data, late):
    watch = DataWatch(data)
    before = time.time() * 1000
    opened_by_another(data / "sizes.json")
    watch.close()
    assert watch.until(before + LATER_MS - 1000).files == 0
    assert watch.until(time.time() * 1000 + LATER_MS + 1).first == ("sizes.json",)


def test_files_that_are_opened_afterwards_are_not(data, mark, late):
    seen = watched(data, [], mark)
    assert (seen.files, seen.unknown) == (0, None)


def test_listing_a_folder_is_no_look_at_the_data(data):
    watch = DataWatch(data)
    list(data.rglob("*"))
    watch.close()
    assert watch.until(time.time() * 1000 + LATER_MS).files == 0


def test_where_nothing_can_be_watched_it_says_why(tmp_path):
    watch = DataWatch(tmp_path / "nowhere")
    assert watch.until(0).unknown == f"there is no folder {tmp_path / 'nowhere'}"
    watch.close()


def seen_of(watch):
    watch.close()
    return watch.in_all()


def test_a_file_is_known_by_its_other_names(data, tmp_path):
    (tmp_path / "hard.bin").hardlink_to(data / "train" / "0.bin")
    watch = DataWatch(data)
    (tmp_path / "hard.bin").read_bytes()
    (tmp_path / "original.bin").read_bytes()
    (tmp_path / "later.bin").hardlink_to(data / "sizes.json")
    (tmp_path / "later.bin").read_bytes()
    assert seen_of(watch)["opened"] == 3
    assert set(watch.until(time.time() * 1000 + LATER_MS).first) == {
        "train/0.bin",
        "elsewhere.bin",
        "sizes.json",
    }


@pytest.mark.parametrize(
    ("make", "opened", "why"),
    [
        (lambda folder: None, 0, None),
        (lambda folder: (folder / "sizes.json").read_bytes(), 1, None),
        (lambda folder: (folder / "made").mkdir(), None, "folders were made in"),
    ],
)
def test_how_many_files_were_opened_in_all(data, make, opened, why):
    watch = DataWatch(data)
    make(data)
    seen = seen_of(watch)
    assert (seen["watched"], seen["opened"]) == (True, opened)
    assert seen["unknown"] is None if why is None else why in seen["unknown"]


def test_of_a_folder_that_is_not_there_no_file_is_opened(tmp_path):
    folder = tmp_path / "nowhere"
    assert seen_of(DataWatch(folder)) == {"watched": False, "opened": 0, "unknown": None, "held": 0}
    watch = DataWatch(folder)
    folder.mkdir()
    seen = seen_of(watch)
    assert (seen["opened"], seen["unknown"]) == (None, f"{folder} was made meanwhile")


@pytest.mark.parametrize("mapped", [False, True])
def test_processes_that_had_the_data_open_before_are_counted(data, mapped):
    code = f"import mmap\nf = open({str(data / 'sizes.json')!r}, 'rb')\n"
    code += "m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\nf.close()\n" if mapped else ""
    code += "print('ready', flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline()
        assert seen_of(DataWatch(data))["held"] == 1
        other.communicate(b"\n")
    assert seen_of(DataWatch(data))["held"] == 0
