"""The interpreter of rule files agrees with the official checker, here the oracle."""

import ast
import dataclasses
import json
import logging
import random
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from tests.selection import others_in_full
from train_bench.core.event import Event
from train_bench.logs import log
from train_bench.rules import rulefile, ruleset
from train_bench.rules.checks import check

LOGS = Path(__file__).parents[1] / "logs" / "examples"
MINI = ruleset.load("mini-1.0").benchmark("resnet_mini")
FULL = ruleset.load("training-1.1.0").benchmark("resnet")


def official(path, config):
    """The official verdict. A log that makes the checker crash does not pass."""
    mlp_compliance.enqueued_configs.clear()
    logging.disable(logging.CRITICAL)
    try:
        return mlp_compliance.make_checker("training", "1.1.0", True, False).check_file(
            str(path), str(config)
        )
    except Exception:
        return False
    finally:
        logging.disable(logging.NOTSET)


@pytest.fixture
def mini_file(tmp_path):
    """The rules of `MINI` for the official checker."""
    path = tmp_path / "rules.yaml"
    path.write_text(MINI.generated)
    return path


def ours(path, rules):
    read = log.read(path)
    return not read.problems and not check(rules, read.events)


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.txt")), ids=lambda path: path.stem)
def test_the_official_checker_reads_the_mini_rules_as_we_do(path, mini_file):
    assert ours(path, MINI) == official(path, mini_file)


def test_the_official_checker_can_say_what_is_wrong_with_a_mini_log(mini_file):
    """It prints the rules' state with a failed check as JSON, so the state has to be plain data."""
    checker = mlp_compliance.make_checker("training", "1.1.0", True, False)
    mlp_compliance.enqueued_configs.clear()
    assert not checker.check_file(str(LOGS / "bad_momentum.txt"), str(mini_file))


@pytest.mark.parametrize("name", ["good", "good_lars"])
def test_the_official_checker_accepts_a_good_mini_log(name, mini_file):
    assert official(LOGS / f"{name}.txt", mini_file)


def tensors():
    """The names that the official round demands, from the list in its rule file."""
    folder = ruleset.package_folder("compliance_checker") / "training_1.1.0"
    (end,) = rulefile.read(folder / "closed_resnet.yaml").end_checks
    lists = [node for node in ast.walk(ast.parse(end.text)) if isinstance(node, ast.List)]
    return ast.literal_eval(lists[0])


def lines_of(name):
    return [json.loads(text.partition(":::MLLOG ")[2]) for text in (LOGS / name).read_text().splitlines()]


def full_scale_lines(opt_name):
    """A log that the official round accepts, made from the good mini one."""
    source = "good_lars" if opt_name == "lars" else "good"
    lines = lines_of(f"{source}.txt")
    lines = [line for line in lines if line["key"] != "weights_initialization"]
    start = next(index for index, line in enumerate(lines) if line["key"] == "init_start")
    for name in tensors():
        tensor = dict(lines[start], key="weights_initialization", metadata={"tensor": name})
        lines.insert(start + 1, tensor)
    for line in lines:
        if line["key"] == "submission_benchmark":
            line["value"] = FULL.name
    return lines


def write(lines, path):
    path.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize("opt_name", ["sgd", "lars"])
def test_a_good_full_scale_log_follows_the_rules_of_the_round(opt_name, tmp_path):
    path = write(full_scale_lines(opt_name), tmp_path / "result_0.txt")
    assert official(path, "training_1.1.0/common.yaml")
    assert check(FULL, log.read(path).events) == []


def spoil(lines, rng):
    """Change a log in one or two random ways."""
    values = [None, 0, -1, 2, 0.9, 0.0001, 1.5, "", "closed", "open", "sgd", "lars", [], {}, True, 1e9]
    for _ in range(rng.choice((1, 1, 2))):
        index = rng.randrange(len(lines))
        how = rng.randrange(6)
        if how == 0:
            del lines[index]
        elif how == 1:
            lines.insert(rng.randrange(len(lines)), dict(lines[index]))
        elif how == 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(index))
        elif how == 3:
            lines[index] = dict(lines[index], value=rng.choice(values))
        elif how == 4:
            lines[index] = dict(lines[index], metadata={})
        else:
            lines[index] = dict(lines[index], time_ms=lines[index]["time_ms"] + rng.choice((-1, 1)) * 10**7)
    return lines


@pytest.mark.parametrize("opt_name", others_in_full(["sgd", "lars"], ["sgd"]))
def test_spoiled_full_scale_logs_get_the_official_verdict(opt_name, tmp_path):
    rng = random.Random(opt_name)
    verdicts = set()
    for _ in range(40):
        path = write(spoil(full_scale_lines(opt_name), rng), tmp_path / "result_0.txt")
        expected = official(path, "training_1.1.0/common.yaml")
        assert ours(path, FULL) == expected, path.read_text()
        verdicts.add(expected)
    assert verdicts == {True, False}


@pytest.mark.full
def test_spoiled_mini_logs_get_the_official_verdict(tmp_path, mini_file):
    rng = random.Random(3)
    good = lines_of("good.txt")
    for _ in range(80):
        path = write(spoil(list(good), rng), tmp_path / "result_0.txt")
        assert ours(path, MINI) == official(path, mini_file), path.read_text()


FIRST = """
- BEGIN:
    CODE: "s.update({'seen': []})"
- KEY:
    NAME: a
    REQ: EXACTLY_ONE
    CHECK: v['value'] == 1
    POST: enqueue_config('SECOND')
- KEY:
    NAME: b
    REQ: AT_LEAST(2)
    FIRST_CHECK: v['value'] == 1
    POST: s['seen'].append(v['value'])
    ATLEAST_ONE_CHECK: v['value'] == 1
- KEY:
    NAME: c
    REQ: AT_LEAST_ONE_OR(d)
- KEY:
    NAME: d
    REQ: AT_LEAST_ONE_OR(c)
- KEY:
    NAME: submission_x
    CHECK: v['value'] == 1
- KEY:
    NAME: e
    REQ: OPTIONAL
    PRE: s['e'] = v['value']
    CHECK: s['e'] == 1
- END:
    CHECK:
        - 9 not in s['seen']
        - len(s['seen']) < 5
"""

SECOND = """
- KEY:
    NAME: e
- KEY:
    NAME: b
    CHECK: v['value'] in [1, 2, 9]
"""


class TwoFiles:
    """A rule file that enqueues another, and both verdicts on a log."""

    def __init__(self, folder, first, second="- KEY:\n    NAME: unused\n"):
        self._folder = folder
        (folder / "second.yaml").write_text(second)
        self._first = folder / "first.yaml"
        self._first.write_text(first.replace("SECOND", str(folder / "second.yaml")))
        files = {path.name: rulefile.read(path) for path in folder.glob("*.yaml")}
        self._rules = dataclasses.replace(MINI, start="first.yaml", files=lambda name: files[Path(name).name])

    def verdicts(self, *keys_and_values):
        lines = [{"key": key, "value": value, "time_ms": 1, "metadata": {}} for key, value in keys_and_values]
        path = write(lines, self._folder / "log.txt")
        return ours(path, self._rules), official(path, self._first)


@pytest.mark.full
def test_every_word_of_the_format_means_what_it_means_officially(tmp_path):
    files = TwoFiles(tmp_path, FIRST, SECOND)
    rng = random.Random(1)
    keys = ["a", "b", "c", "d", "e", "submission_x", "unknown"]
    accepted = 0
    for _ in range(600):
        lines = [("a", 1), ("b", 1), ("b", 1)]
        lines += [(rng.choice(keys), rng.choice((1, 1, 1, 2, 9))) for _ in range(rng.randrange(5))]
        rng.shuffle(lines)
        mine, theirs = files.verdicts(*lines)
        assert mine == theirs, lines
        accepted += mine
    assert 50 < accepted < 550


def test_the_target_of_a_key_that_never_occurs_is_not_missed(tmp_path):
    """As officially; that a key has to occur is for REQ to say."""
    files = TwoFiles(tmp_path, "- KEY:\n    NAME: d\n    ATLEAST_ONE_CHECK: v['value'] == 1\n")
    assert files.verdicts(("x", 1)) == (True, True)
    assert files.verdicts(("d", 2)) == (False, False)


def test_a_later_file_does_not_excuse_missing_alternatives(tmp_path):
    first = (
        "- KEY:\n    NAME: a\n    POST: enqueue_config('SECOND')\n"
        "- KEY:\n    NAME: c\n    REQ: AT_LEAST_ONE_OR(d)\n"
        "- KEY:\n    NAME: d\n"
    )
    files = TwoFiles(tmp_path, first, "- KEY:\n    NAME: c\n")
    assert files.verdicts(("a", 1), ("d", 1)) == (True, True)
    assert files.verdicts(("a", 1)) == (False, False)


STRANGE = {
    "a path": "../../../../etc/passwd",
    "a null byte": "a\0b",
    "a very long name": "x" * 5000,
    "half a surrogate pair": "\ud800",
    "an object": {"a": 1},
    "nothing": None,
}


@pytest.mark.parametrize("key", ["submission_division", "submission_benchmark", "opt_name"])
@pytest.mark.parametrize("strange", STRANGE)
def test_a_log_cannot_lead_to_a_file_or_a_crash(key, strange):
    values = {
        "submission_division": "closed",
        "submission_benchmark": FULL.name,
        "opt_name": "sgd",
        key: STRANGE[strange],
    }
    events = [Event(key=name, value=value, time_ms=0, line=1) for name, value in values.items()]
    assert any(failure.key == key for failure in check(FULL, events))


def test_two_checks_of_one_log_share_nothing():
    events = log.read(LOGS / "good.txt").events
    assert check(MINI, events) == check(MINI, events) == []
