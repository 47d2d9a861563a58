"""The ledger of a contest: what it holds, and edits that anybody finds."""

import json

import pytest

from train_bench.errors import LogError
from train_bench.referee import ledger

ERROR, CONTEST = 0.01, "c" * 64


@pytest.fixture
def path(tmp_path):
    """A ledger of three challenges, the second of which made a record, and a fourth that was not decided."""
    place = tmp_path / "ledger.jsonl"
    entries = ledger.append(place, [], ledger.OPENED, contest=CONTEST, frontier="f0")
    for number in range(1, 5):
        entries = begin(place, entries, number)
        for side in "ab":
            entries = ledger.append(place, entries, ledger.RUN, number=number, side=side, index=0)
        if number < 4:
            entries = ledger.append(
                place, entries, ledger.DECIDED, number=number, record=number == 2, logs=[f"log{number}"]
            )
    return place


def begin(place, entries, number, **changes):
    level = ledger.next_level(entries, ERROR)
    content = {"frontier": ledger.frontier(entries), "challenger": f"f{number}", "level": level, "seed": 1}
    return ledger.append(place, entries, ledger.BEGUN, number=number, **content | changes)


def problems(path, contest=CONTEST):
    return list(ledger.problems(ledger.read(path), contest, ERROR))


def test_a_ledger_verifies_and_knows_its_frontier_and_what_is_left_of_the_budget(path):
    entries = ledger.read(path)
    assert problems(path) == []
    assert (ledger.frontier(entries), ledger.records(entries)) == ("f2", [2])
    assert len(ledger.challenges(entries)) == 4, "one that was not decided is spent"
    assert ledger.next_level(entries, ERROR) == ledger.level_of([2], 5, ERROR)


def rewrite(path, change):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def chained(lines):
    """The digests of a ledger, made anew by whoever edits it."""
    before = ledger.NOTHING
    for line in lines:
        line["previous"] = before
        before = ledger.digest(line)


def decision_of(lines, number):
    return next(line for line in lines if (line["event"], line.get("number")) == ("decided", number))


def edited(lines):
    decision_of(lines, 1)["record"] = True


def record_forged(lines):
    decision_of(lines, 1)["record"] = True
    chained(lines)


def challenge_left_out(lines):
    del lines[1:5]
    chained(lines)


def level_raised(lines):
    lines[1]["level"] = 0.05
    chained(lines)


def another_frontier(lines):
    lines[9]["frontier"] = "f0"
    chained(lines)


def replayed_runs(lines):
    decision_of(lines, 2)["logs"] = ["log1"]
    chained(lines)


def decided_twice(lines):
    lines.insert(5, lines[4] | {"record": True})
    chained(lines)


def end_left_out(lines):
    lines.remove(decision_of(lines, 1))
    chained(lines)


def two_sessions_of_one_host_and_day(lines):
    place = {"event": "session", "number": 1, "host": "one", "day": "2026-12-01"}
    place |= {"confined": True, "network": False}
    lines[2:2] = [place | {"session": number} for number in (0, 1)]
    chained(lines)


def again_without_a_record(lines):
    lines.append({"event": "again", "number": 1, "verdict": "holds", "host": "one"})
    chained(lines)


def run_again(lines):
    lines.insert(4, lines[3] | {})
    chained(lines)


def opened_again(lines):
    lines.append(lines[0] | {"frontier": "f9"})
    chained(lines)


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (edited, "Line 6 does not follow from the one before it"),
        (record_forged, "was tested at level"),
        (challenge_left_out, "Line 2 is challenge 2; the next one is 1"),
        (level_raised, "Challenge 1 was tested at level 0.05; the budget gives"),
        (another_frontier, "Challenge 3 is against f0; the frontier is f2"),
        (replayed_runs, "has a log of line 5 (log1); its runs were replayed"),
        (decided_twice, "Line 6 is 'decided' of challenge 1, which is not the one that is under way"),
        (end_left_out, "begins a challenge, and challenge 1 has no end"),
        (two_sessions_of_one_host_and_day, "is a session of challenge 1 on the host and day of another one"),
        (again_without_a_record, "is of challenge 1, which made no record"),
        (run_again, "Line 5 begins run 0 of the challenger again"),
        (opened_again, "a ledger begins with 'opened', once"),
    ],
)
def test_an_edited_ledger_is_found_even_where_its_digests_were_made_anew(path, cheat, words):
    rewrite(path, cheat)
    assert any(words in one for one in problems(path)), problems(path)


def test_another_contest_is_found(path):
    assert problems(path, contest="d" * 64) == [
        "The contest is not the one that the ledger was opened for; its file was edited."
    ]


def test_the_head_stands_for_all_lines(path):
    before = ledger.head(ledger.read(path))
    rewrite(path, lambda lines: (lines[0].update(frontier="g"), chained(lines)))
    assert ledger.head(ledger.read(path)) != before


def test_what_is_no_ledger_is_a_sentence(tmp_path):
    (tmp_path / "ledger.jsonl").write_text('{"event": "opened", "contest": "", "frontier": ""}\nno\n')
    with pytest.raises(LogError, match=r"Line 2 of .* is not an entry of a ledger"):
        ledger.read(tmp_path / "ledger.jsonl")


def test_a_line_that_a_power_failure_cut_off_is_written_anew(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event": "deci')
    entries = ledger.read(path)
    assert ledger.pending(entries)["number"] == 4
    ledger.append(path, entries, ledger.ABANDONED, number=4)
    assert path.read_bytes().startswith(whole) and problems(path) == []
    assert ledger.pending(ledger.read(path)) is None


def test_a_last_line_that_lost_its_newline_counts(path):
    whole = path.read_bytes()
    entries = ledger.read(path)
    path.write_bytes(whole.removesuffix(b"\n"))
    assert ledger.read(path) == entries and problems(path) == []
    ledger.append(path, entries, ledger.ABANDONED, number=4)
    assert path.read_bytes().startswith(whole) and problems(path) == []


def test_a_line_of_an_earlier_version_has_a_next_step(tmp_path):
    (tmp_path / "ledger.jsonl").write_text(
        '{"event": "session", "previous": "", "number": 1, "session": 0, "host": "h", "day": "d"}\n'
    )
    with pytest.raises(LogError, match=r"it lacks confined, network; if an earlier version .* use that one"):
        ledger.read(tmp_path / "ledger.jsonl")
