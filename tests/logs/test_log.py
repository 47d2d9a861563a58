"""Whatever a result file holds is data: the parser answers with events and problems, never with an exception."""

import json
import random
import tracemalloc
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker.mlp_parser import parse_file

from train_bench.core.event import Event
from train_bench.logs import log
from train_bench.logs.log import Problem, parse_line

LOGS = Path(__file__).parent / "examples"
FIELDS = {"key": "seed", "value": 7, "time_ms": 5, "metadata": {"lineno": 1}, "event_type": "POINT_IN_TIME"}


def line(**changes):
    return ":::MLLOG " + json.dumps(FIELDS | changes)


def read(content, tmp_path):
    path = tmp_path / "result_0.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return log.read(path)


def test_a_line_becomes_an_event():
    assert parse_line(line(), 3) == Event(key="seed", value=7, time_ms=5, metadata={"lineno": 1}, line=3)


def test_text_before_the_token_is_somebody_elses():
    assert parse_line("[rank 0] 12:00:01 " + line(), 1) == parse_line(line(), 1)


@pytest.mark.parametrize("text", ["", "epoch 3 loss 0.5", ":::MLL", '{"key": "seed"}'])
def test_a_line_without_the_token_is_nothing(text):
    assert parse_line(text, 1) is None


BROKEN = {
    "cut off": line()[:40],
    "no JSON": ":::MLLOG seed = 7",
    "a list": ":::MLLOG [1, 2]",
    "a number": ":::MLLOG 7",
    "no key": ':::MLLOG {"value": 7, "time_ms": 5, "metadata": {}}',
    "no value": ':::MLLOG {"key": "seed", "time_ms": 5, "metadata": {}}',
    "no time": ':::MLLOG {"key": "seed", "value": 7, "metadata": {}}',
    "no metadata": ':::MLLOG {"key": "seed", "value": 7, "time_ms": 5}',
    "a key that is a number": line(key=7),
    "a time that is a text": line(time_ms="noon"),
    "a time that is true": line(time_ms=True),
    "a time that is NaN": line(time_ms=float("nan")),
    "a time that is infinite": line(time_ms=float("inf")),
    "a time that no float holds": line(time_ms=10**400),
    "a time that is nothing": line(time_ms=None),
    "a time in words of a hundred digits": line(time_ms="9" * 100),
    "a number of ten thousand digits": ":::MLLOG " + '{"key": "seed", "value": ' + "9" * 10_000 + "}",
    "brackets without end": ":::MLLOG " + "[" * 100_000,
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_line_is_a_problem_that_names_its_line(how):
    problem = parse_line(BROKEN[how], 9)
    assert isinstance(problem, Problem)
    assert problem.line == 9
    assert problem.message
    assert len(problem.message) < 200


READ = {
    "metadata that is a list": (line(metadata=[]), "metadata is not an object"),
    "metadata that is nothing": (line(metadata=None), "metadata is not an object"),
    "metadata that is a text": (line(metadata="node 0"), "metadata is not an object"),
    "a time that is a text": (line(time_ms="5"), "time_ms is a text"),
    "a time that is a text with a fraction": (line(time_ms=" 5.25 "), "time_ms is a text"),
    "two events": (line(value=6) + " " + line(), "several events on one line, of which the last is read"),
}


@pytest.mark.parametrize("how", READ)
def test_a_malformed_line_that_the_official_parser_reads_is_read_and_told(how, tmp_path):
    text, message = READ[how]
    found = read("\n".join([line(value=8), text, text]), tmp_path)
    assert [(event.value, event.time_ms) for event in found.events] == [(8, 5), (7, 5), (7, 5)]
    assert all(event.metadata.get("epoch_num") is None for event in found.events)
    assert found.problems == ()
    assert [(one.message, one.line, one.count) for one in found.remarks] == [(message, 2, 2)]
    (tmp_path / "result_0.txt").write_text("\n".join([line(value=8), text, text]))
    official, errors = parse_file(str(tmp_path / "result_0.txt"), ruleset="4.0.0")
    assert [one.value["value"] for one in official] == [8, 7, 7]
    assert errors == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (line().encode("utf-16"), "UTF-16"),
        (line().encode("utf-16-le"), "UTF-16"),
        (line().encode("utf-16-be"), "UTF-16"),
        (line().encode("utf-32"), "iconv -f UTF-32 -t UTF-8"),
        (line().encode("utf-32-be"), "UTF-32"),
        (b":::MLPv0.5.0 resnet 1541635617.1 (a.py:1) run_start\n", ":::MLPv0.5.0"),
        (b":::MLL 1556733699.71 run_start: {}\n", "before 0.7"),
    ],
)
def test_a_file_of_another_format_says_which(content, said, tmp_path):
    path = tmp_path / "result_0.txt"
    path.write_bytes(content)
    assert said in log.read(path).problems[0].message


def test_a_byte_order_mark_before_the_first_line_does_not_matter(tmp_path):
    path = tmp_path / "result_0.txt"
    path.write_bytes(line().encode("utf-8-sig"))
    assert [event.value for event in log.read(path).events] == [7]


def test_a_broken_line_hides_no_other(tmp_path):
    log = read("\n".join([line(), BROKEN["cut off"], line(value=8)]), tmp_path)
    assert [event.value for event in log.events] == [7, 8]
    assert [problem.line for problem in log.problems] == [2]


def test_line_numbers_count_all_lines_of_the_file(tmp_path):
    assert read(f"starting\n\n{line()}\n", tmp_path).events[0].line == 3


def test_windows_line_ends_are_line_ends(tmp_path):
    log = read(f"{line()}\r\n{line(value=8)}\r\n", tmp_path)
    assert [event.value for event in log.events] == [7, 8]
    assert not log.problems


def test_a_progress_bar_that_is_redrawn_hides_no_event(tmp_path):
    """Carriage returns end lines, as they do for the official checker."""
    log = read(f"10 %\r{line()}\r20 %\r30 %\n", tmp_path)
    assert [event.value for event in log.events] == [7]
    assert not log.problems


def test_a_last_line_without_line_end_counts(tmp_path):
    assert len(read(line(), tmp_path).events) == 1


def test_bytes_that_are_no_text_do_not_matter_beside_a_line(tmp_path):
    log = read(b"\xff\xfe\x00 noise " + line().encode() + b"\n\x80\x81\n", tmp_path)
    assert len(log.events) == 1
    assert not log.problems


def test_the_digest_is_that_of_the_content(tmp_path):
    assert read("a", tmp_path).sha256 != read("b", tmp_path).sha256
    assert read("a", tmp_path).sha256 == read("a", tmp_path).sha256


@pytest.mark.parametrize("name", ["result_9.txt", "."])
def test_what_is_no_file_has_no_events_and_a_problem(name, tmp_path):
    nothing = log.read(tmp_path / name)
    assert nothing.events == ()
    assert "cannot be read" in nothing.problems[0].message


def spoiled(content, rng):
    """A random truncation, and random bytes at random places."""
    data = bytearray(content[: rng.randrange(len(content) + 1)])
    for _ in range(rng.randrange(20)):
        data.insert(rng.randrange(len(data) + 1), rng.randrange(256))
    return bytes(data)


def test_no_content_makes_reading_fail(tmp_path):
    rng = random.Random(0)
    good = (LOGS / "good.txt").read_bytes()
    for _ in range(300):
        read(spoiled(good, rng), tmp_path)
        read(b":::MLLOG " + rng.randbytes(rng.randrange(200)), tmp_path)


def usual(key, value, time_ms, metadata, **more):
    """A line as mlperf-logging writes it."""
    fields = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps(fields | {"metadata": metadata} | more)


ODD = (
    usual("seed", 7, 5, {"file": "a.py", "lineno": 1}),
    "rank 0: " + usual("seed", 7, 5, {}),
    usual("seed", 7, 5, {}) + "  ",
    usual("seed", 7, 5, {}) + " x",
    usual("seed", 7, 5, {})[:-1],
    usual("seed", 7, 5, {}) + "}",
    usual("seed", ":::MLLOG {}", 5, {}),
    usual("seed", 7, 5, {"file": ":::MLLOG "}),
    usual("seed", 7, 5, "text"),
    usual("seed", 7, "5", {}),
    usual("seed", 7, 5.5, {}),
    usual("seed", 7, -5, {}),
    usual("seed", 7, True, {}),
    usual("seed", 7, 5, {}).replace('"time_ms": 5', '"time_ms": 05'),
    usual("seed", 7, 10**17, {}),
    usual("seed", 7, 10**19, {}),
    usual("seed", "\x1b[2J", 5, {"\u202e": "\ud800"}),
    usual("seed", "caf\u00e9", 5, {"a": "\n"}),
    usual("seed", {"a": [1, float("nan")]}, 5, {"x": {"y": [1]}}),
    usual("seed", 7, 5, {}).replace('"value": 7', '"value": 8, "value": 9'),
    usual("seed", 7, 5, {}, more=1),
    usual("seed", 7, 5, {"a": 1}).replace('"a": 1', '"a": 1, "a": 2'),
    usual("seed", 7, 5, {}).replace('"value": 7', '"value": ' + "9" * 5000),
    usual("seed", 7, 5, {"deep": 0}).replace("0}", "[" * 80 + "]" * 80 + "}"),
    usual("seed", 7, 5, {}).replace('"event_type": "POINT_IN_TIME", ', ""),
    usual("seed", 7, 5, {}).replace('"namespace": "", ', ""),
    usual("seed", 7, 5, {}).replace('"value": 7', '"value": nul'),
    usual("seed", 7, 5, {}).replace('"value": 7', '"value": '),
    usual("", None, 0, {}),
)


@pytest.mark.parametrize("kept", [0, 3, 10_000])
@pytest.mark.parametrize("block", [64, 200, 2**20])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_log_is_read_as_its_lines_are(end, block, kept, tmp_path, monkeypatch):
    """In blocks of any size, and with values and metadata kept as text or not."""
    monkeypatch.setattr(log, "BLOCK_BYTES", block)
    monkeypatch.setattr(log, "HEAD_BYTES", block)
    monkeypatch.setattr(log, "MOST_KEPT", kept)
    lines = [*ODD, *ODD, "no event", *ODD]
    found = read(end.join(lines).encode("utf-8", errors="surrogatepass"), tmp_path)
    monkeypatch.setattr(log, "HEAD_BYTES", 2**16)
    each = [parse_line(text, number) for number, text in enumerate(lines, start=1)]
    assert list(map(repr, found.events)) == [repr(one) for one in each if isinstance(one, Event)]
    assert [one.line for one in found.problems] == [one.line for one in each if isinstance(one, Problem)]


def test_a_first_value_is_found_behind_the_first_block(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "HEAD_BYTES", 100)
    monkeypatch.setattr(log, "BLOCK_BYTES", 100)
    read("\n".join(["x" * 90, usual("other", "seed", 1, {}), usual("seed", 7, 5, {})]), tmp_path)
    assert log.first_value(tmp_path / "result_0.txt", "seed") == 7
    assert log.names(tmp_path / "result_0.txt", 3, "seed")
    assert not log.names(tmp_path / "result_0.txt", 2, "else")


def test_a_log_takes_less_memory_than_its_file_has_bytes_twice(tmp_path, monkeypatch):
    """Every value and all metadata differ, which is the most that they take. What every log takes is made small."""
    monkeypatch.setattr(log, "BLOCK_BYTES", 2**16)
    monkeypatch.setattr(log, "MOST_KEPT", 2**8)
    statistics = (
        usual(
            "tracked_stats",
            {"loss": 1 / step, "throughput": step * 1.7},
            step,
            {"file": "a/b.py", "step": step},
        )
        for step in range(1, 5_000)
    )
    path = tmp_path / "result_0.txt"
    path.write_text("\n".join(statistics))
    tracemalloc.start()
    try:
        events = log.read(path).events
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(events) == 4_999
    assert taken < 2 * path.stat().st_size
