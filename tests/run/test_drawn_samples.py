"""A generative model is looked at once the clock has stopped; whatever goes wrong, the result stays."""

import base64
import json
import queue
import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.run.fakes import FakeTask, OneRank, job
from tests.run.test_timed_run import keys, run
from train_bench.errors import WriteError
from train_bench.run import drawn_samples
from train_bench.task import SampleSheet

IMAGES = np.arange(2 * 1 * 2 * 3, dtype=np.uint8).reshape(2, 1, 2, 3)


def sheet(images=IMAGES, spread=0.5):
    return SampleSheet(
        about="Of noise.",
        rows={"a bar": (images, IMAGES[:1])},
        measures={"spread": (spread, np.float32(0.25))},
    )


class Drawing(FakeTask):
    """Draws what it is given, or raises it."""

    def __init__(self, drawn):
        super().__init__([0.95])
        self.drawn = drawn

    def draw_samples(self):
        self._note("draw_samples")
        if isinstance(self.drawn, BaseException):
            raise self.drawn
        return self.drawn


def written(tmp_path):
    return json.loads(job(tmp_path).samples_file.read_text())


def test_samples_are_drawn_after_the_last_line_of_the_log_and_written_beside_the_ranks(tmp_path):
    task = Drawing(sheet())
    status, events = run(tmp_path, task)
    assert (status, task.diary[-1], keys(events)[-1]) == ("success", "draw_samples", "loaded_code")
    (row,) = written(tmp_path)["rows"]
    assert base64.b64decode(row["drawn"].pop("rgb")) == IMAGES.tobytes()
    assert row["drawn"] == {"samples": 2, "rows": 1, "columns": 2}
    assert written(tmp_path)["measures"] == [{"name": "spread", "drawn": 0.5, "data": 0.25}]


@pytest.mark.parametrize(
    ("drawn", "error"),
    [
        (ValueError("no decoder"), "ValueError: no decoder"),
        (sheet(IMAGES / 255), "ValueError: images are float64 (2, 1, 2, 3); needed is uint8"),
        (sheet(spread=np.nan), "ValueError: a figure is nan; needed are finite ones"),
        (SystemExit("no decoder"), "SystemExit: no decoder"),
        (
            sheet(np.zeros((1, 300, 1, 3), np.uint8)),
            "ValueError: images are (1, 300, 1, 3); allowed are 1 to 256 samples, rows and columns",
        ),
        (sheet(IMAGES[:0]), "ValueError: images are (0, 1, 2, 3); allowed are 1 to 256"),
        (
            sheet(np.zeros((22, 256, 256, 3), np.uint8)),
            "ValueError: the samples have 5,767,",
        ),
        (replace(sheet(), about=3), "ValueError: 3 is not a text; needed are texts"),
    ],
)
def test_a_failure_leaves_the_result_and_is_written_in_their_place(tmp_path, drawn, error):
    status, events = run(tmp_path, Drawing(drawn))
    assert (status, keys(events)[-1]) == ("success", "loaded_code")
    assert written(tmp_path)["error"].startswith(error)


def test_a_place_that_cannot_be_written_leaves_the_result(tmp_path, monkeypatch):
    def full(path, content):
        raise WriteError("No space is left.")

    monkeypatch.setattr(drawn_samples.files, "write_json", full)
    drawn_samples.write_samples(Drawing(sheet()), job(tmp_path), OneRank())
    assert not job(tmp_path).samples_file.exists()


@pytest.mark.parametrize("task", [FakeTask([0.95]), Drawing(None)])
def test_of_a_task_that_draws_none_nothing_is_written(tmp_path, task):
    run(tmp_path, task)
    assert not job(tmp_path).samples_file.exists()


def test_every_rank_draws_and_the_first_one_writes(tmp_path):
    task = Drawing(sheet())
    drawn_samples.write_samples(task, job(tmp_path), SecondRank())
    assert task.diary == ["draw_samples"] and not job(tmp_path).samples_file.exists()


class SecondRank(OneRank):
    """One of two ranks."""

    rank, size = 1, 2


class Ended(Exception):
    """The process of a rank has ended."""


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Names of threads that have ended the process."""
    found = queue.Queue()

    def end_process():
        found.put(threading.current_thread().name)
        if threading.current_thread() is threading.main_thread():
            raise Ended

    monkeypatch.setattr(drawn_samples, "end_process", end_process)
    monkeypatch.setattr(drawn_samples, "POLL_SECONDS", 0.01)
    job(tmp_path).ranks_folder.mkdir(parents=True)
    return found


def test_a_rank_that_fails_is_ended_tells_the_others_and_its_error_is_written(tmp_path, ended):
    with pytest.raises(Ended):
        drawn_samples.write_samples(Drawing(ValueError("no memory")), job(tmp_path), SecondRank())
    assert written(tmp_path) == {"error": "rank 1: ValueError: no memory"}
    assert (job(tmp_path).ranks_folder / "drawing_failed").exists()
    assert ended.get(timeout=60) == "MainThread"


def test_a_rank_that_waits_in_its_network_is_ended_once_another_has_failed(tmp_path, ended):
    class Waiting(Drawing):
        def draw_samples(self):
            (job(tmp_path).ranks_folder / "drawing_failed").touch()  # as the other rank does
            assert ended.get(timeout=60) == "drawing"
            return self.drawn

    drawn_samples.write_samples(Waiting(None), job(tmp_path), SecondRank())
    assert "drawing" not in {thread.name for thread in threading.enumerate()}


def test_the_first_error_is_the_one_that_is_written(tmp_path, ended):
    (job(tmp_path).ranks_folder / "drawing_failed").touch()
    with pytest.raises(Ended):
        drawn_samples.write_samples(Drawing(ValueError("connection closed")), job(tmp_path), SecondRank())
    assert not job(tmp_path).samples_file.exists()


def test_without_an_error_no_rank_is_ended(tmp_path, ended):
    drawn_samples.write_samples(Drawing(sheet()), job(tmp_path), SecondRank())
    assert ended.empty()


def test_samples_that_the_page_does_not_show_end_no_rank(tmp_path, ended):
    first = SecondRank()
    first.rank = 0
    drawn_samples.write_samples(Drawing(sheet(spread=np.nan)), job(tmp_path), first)
    assert written(tmp_path) == {"error": "rank 0: ValueError: a figure is nan; needed are finite ones"}
    assert ended.empty()
