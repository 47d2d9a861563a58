"""JSON files are written whole and through nobody's link, and read within bounds."""

import errno
import json
import os
from pathlib import Path

import pytest

from tests.command_line import typed
from train_bench.core import files
from train_bench.errors import LogError, RequestError, WriteError


def test_nothing_is_written_through_a_planted_link(tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "known")
    (tmp_path / "score.json.known.part").symlink_to(victim)
    with pytest.raises(WriteError, match="File exists"):
        files.write(tmp_path / "score.json", "mine")
    monkeypatch.undo()
    files.write(tmp_path / "score.json", "mine")
    assert (tmp_path / "score.json").read_text() == "mine"
    assert not victim.exists()


def test_files_of_others_whose_names_end_in_part_stay(tmp_path):
    for name in ("page.html.part", "page.html.0123456789ab.part"):
        (tmp_path / name).write_text("a download")
    files.write(tmp_path / "page.html", "mine")
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {
        "page.html": "mine",
        "page.html.part": "a download",
        "page.html.0123456789ab.part": "a download",
    }


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "score.json").symlink_to(victim)
    files.write(tmp_path / "score.json", "mine")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "score.json").is_symlink()


@pytest.mark.parametrize("name", ["x" * 255, "missing/" + "y" * 300])
def test_a_name_that_is_too_long_is_one_sentence(tmp_path, name):
    with pytest.raises(WriteError, match="cannot be written: File name too long"):
        files.write(tmp_path / name, "text")


def test_a_failure_within_leaves_the_old_file_and_no_part(tmp_path):
    path = tmp_path / "rows"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), files.whole_file(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["rows"]


def test_a_full_disk_advises_to_resume_only_what_is_a_campaign(tmp_path):
    full = OSError(errno.ENOSPC, "no space")
    assert "resume=" not in str(files.cannot_write(tmp_path / "report.html", full))
    (tmp_path / "plan.json").write_text("{}")
    assert f"resume={tmp_path}" in str(files.cannot_write(tmp_path / "score.json", full))


def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path):
    os.mkfifo(tmp_path / "plan.json")
    (tmp_path / "score.json").symlink_to(tmp_path / "plan.json")
    for name in ("plan.json", "score.json"):
        with pytest.raises(LogError, match="it is not a file"):
            files.read_json(tmp_path / name)


def test_refused_folders_and_pipes_leave_no_descriptor_open(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    before = set(Path("/proc/self/fd").iterdir())
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="it is not a file"):
            files.read_bytes(path, largest=1)
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have_is_one_sentence(tmp_path, name):
    with pytest.raises(LogError, match="cannot be read as JSON: no file can have this name"):
        files.read_json(tmp_path / name)


def test_what_is_too_large_or_too_deep_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    with path.open("wb") as file:
        file.truncate(files.LARGEST_JSON_BYTES + 1)
    with pytest.raises(LogError, match="more than the 67108864 bytes"):
        files.read_json(path)
    for depth in (files.DEEPEST + 1, 1_000, 100_000):
        path.write_text("[" * depth + "]" * depth)
        with pytest.raises(LogError, match=r"levels deep|recursion"):
            files.read_json(path)
    path.write_text("[" * files.DEEPEST + "]" * files.DEEPEST)
    assert files.read_json(path)


def test_half_a_pair_of_surrogates_does_not_keep_a_page_from_being_written(tmp_path):
    files.write(tmp_path / "page.html", "name \ud800")
    assert (tmp_path / "page.html").read_text() == r"name \ud800"
    files.write_json(tmp_path / "value.json", "\ud800")
    assert json.loads((tmp_path / "value.json").read_text()) == "\ud800"


@pytest.mark.parametrize(
    "error", [OverflowError("int too large"), KeyError("x"), AttributeError("a"), IndexError()]
)
def test_content_of_another_type_is_a_sentence(error):
    with pytest.raises(LogError, match="It has content of another type"), files.valid_content("It"):
        raise error


def test_a_whole_number_that_no_float_holds_is_refused():
    assert files.whole_number("9" * 300) == int("9" * 300)
    with pytest.raises(ValueError, match="more than 300 digits"):
        files.whole_number("1" + "0" * 400)


@pytest.mark.parametrize("content", [None, "folder", "pipe", b"{", b"[1]", b"\xff", b'{"a": 1}'])
def test_an_object_that_may_be_anything_is_empty_unless_it_is_one(tmp_path, content):
    path = tmp_path / "system.json"
    if content == "folder":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content is not None:
        path.write_bytes(content)
    assert files.read_object(path) == ({"a": 1} if content == b'{"a": 1}' else {})


def synced(monkeypatch):
    """Paths that are written to disk from now on, and renames, in order."""
    seen, true_sync, true_replace = [], os.fsync, Path.replace

    def fsync(descriptor):
        seen.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        true_sync(descriptor)

    def replace(path, target):
        seen.append(f"{path.name} -> {Path(target).name}")
        return true_replace(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    return seen


def test_a_file_and_its_name_are_on_disk_once_it_is_written(tmp_path, monkeypatch):
    seen = synced(monkeypatch)
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "known")
    files.write(tmp_path / "a.json", "{}")
    assert seen == ["a.json.known.part", "a.json.known.part -> a.json", tmp_path.name]


def test_a_folder_that_cannot_be_synced_costs_no_file(tmp_path, monkeypatch):
    true = os.fsync

    def fsync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink() == tmp_path:
            raise OSError(errno.EINVAL, "Invalid argument")
        true(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write(tmp_path / "a.json", "{}")
    assert (tmp_path / "a.json").read_text() == "{}"


@pytest.mark.parametrize("context", [files.opened, files.opened_to_append, files.whole_file])
def test_an_error_of_reading_or_writing_names_its_file(tmp_path, context):
    path = tmp_path / "result_0.txt"
    path.touch()
    with pytest.raises(OSError, match="Input/output error") as caught, context(path):
        raise OSError(errno.EIO, "Input/output error")
    assert caught.value.filename == str(path)


def test_an_error_of_a_file_that_is_written_inside_names_that_one(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.touch()
    with pytest.raises(OSError) as caught, files.opened(source), files.whole_file(target):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(target)


def test_a_closed_output_inside_is_no_error_of_the_file(tmp_path):
    (tmp_path / "source").touch()
    with pytest.raises(BrokenPipeError) as caught, files.opened(tmp_path / "source"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    assert caught.value.filename is None


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
def test_what_can_be_no_path_is_refused_in_a_sentence(tmp_path, name):
    with pytest.raises(RequestError, match=r"^'.*is not a valid path .*; give another one"):
        files.resolved(tmp_path / name)
    assert files.resolved(tmp_path / "x") == tmp_path / "x"


def test_a_link_to_itself_is_no_path(tmp_path):
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(RequestError, match="is not a valid path"):
        files.resolved(tmp_path / "round")


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
@pytest.mark.parametrize(
    "words",
    [
        ("compare", ".", "NAME"),
        ("compare", ".", "NAME", "="),
        ("settle", "NAME"),
        ("replay", "x", "--to", "NAME"),
        ("plan", "benchmark=./NAME"),
        ("judge", "NAME"),
        ("report", ".", "--to", "NAME"),
        ("plan", "benchmark=resnet_mini", "--to", "NAME"),
    ],
)
def test_every_verb_refuses_it(words, name):
    assert typed(*(word.replace("NAME", name) for word in words)).returncode in (1, 2)
