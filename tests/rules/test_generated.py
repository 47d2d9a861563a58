"""The rule file that is made for a benchmark: the official checker and our judge read it alike."""

import ast
import contextlib
import json
import math

import pytest
import yaml

from tests.rules.test_checks import lines_of, official, ours, write
from tests.selection import others_in_full
from train_bench.core.event import Event
from train_bench.errors import RequestError
from train_bench.rules import ruleset, stated
from train_bench.rules.checks import check

ROUND = ruleset.load("mini-1.0")
CANDIDATES = (
    1,
    2,
    50,
    0.5,
    0.001,
    "a",
    True,
    [1, 2],
    [1],
    [],
    0,
    -1,
    0.3,
    None,
    [-1, 0],
    [2, 1],
    {},
    math.inf,
)


def constants(rules, key):
    """The values that the checks of a key name, lists before what they hold."""
    for one in rules.files(rules.start).keys[key].checks:
        for node in ast.walk(ast.parse(one.text, mode="eval")):
            if isinstance(node, (ast.Constant, ast.List)):
                with contextlib.suppress(ValueError):  # a list with infinity
                    yield ast.literal_eval(node)


def values_of(rules, key, **before):
    """A value that the rules allow for a key, and one that they refuse."""
    found = {}
    for value in (*constants(rules, key), *CANDIDATES):
        events = [Event(key=name, value=said, time_ms=0) for name, said in (before | {key: value}).items()]
        broken = any(failure.key == key and failure.kind == "check" for failure in check(rules, events))
        found.setdefault("bad" if broken else "good", value)
    return found


def hyperparameters(rules):
    """Key -> a value that is allowed and one that is not, of what this benchmark's log holds beyond every log."""
    known = {line["key"] for line in lines_of("good.txt")[:6] + lines_of("good.txt")[17:]}
    found = {}
    chosen = {}
    for key, rule in rules.files(rules.start).keys.items():
        if key in known or "lars" in key:
            continue
        found[key] = values_of(rules, key, **chosen)
        if rule.after:
            chosen[key] = found[key]["good"]
    return found


def quality(rules, *, reached):
    values = {
        one.metric: one.value + (0 if reached else 1e-3 * (-1 if one.higher_is_better else 1))
        for one in rules.target.thresholds
    }
    return values if len(values) > 1 else next(iter(values.values()))


def good_log(rules, allowed, *, reached=True):
    """The good log of another benchmark with this one's name, hyperparameters and quality."""
    lines = [dict(line) for line in lines_of("good.txt")]
    general = lines[:6] + lines[17:]
    for line in general:
        if line["key"] == "submission_benchmark":
            line["value"] = rules.name
        if line["key"] == "eval_accuracy":
            line["value"] = quality(rules, reached=reached)
    own = [dict(lines[6], key=key, value=values["good"]) for key, values in allowed.items()]
    return general[:6] + own + general[6:]


@pytest.fixture(params=others_in_full(ROUND.benchmarks, ["bert_mini", "maskrcnn_mini", "resnet_mini"]))
def rules(request):
    return ROUND.benchmark(request.param)


def test_the_official_checker_reads_the_file_as_our_judge_does(rules, tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(rules.generated)
    allowed = hyperparameters(rules)
    good = good_log(rules, allowed)

    def verdict(lines):
        path = write(lines, tmp_path / "result_0.txt")
        said = official(path, file)
        assert ours(path, rules) == said, json.dumps(lines)
        return said

    assert verdict(good)
    assert not verdict(good_log(rules, allowed, reached=False))
    for key, values in allowed.items():
        others = [line for line in good if line["key"] != key]
        assert not verdict(others), f"without {key}"
        bad = [dict(line, value=values["bad"]) if line["key"] == key else line for line in good]
        assert not verdict(bad), f"{key} is {values['bad']}"


def test_every_hyperparameter_that_is_stated_has_its_rule(rules):
    (folder,) = (folder for folder in ruleset.folders() if folder.name == rules.reference)
    written = yaml.safe_load((folder / stated.FILE).read_text())
    own = written["benchmarks"][rules.name].get("hyperparameters", {})
    assert {*written["hyperparameters"], *own} <= rules.files(rules.start).keys.keys()
    assert all({"good", "bad"} <= set(values) for values in hyperparameters(rules).values())


def test_no_dollar_sign_is_left(rules):
    assert "$" not in rules.generated


def test_a_log_of_another_benchmark_is_refused(rules, tmp_path):
    lines = good_log(rules, hyperparameters(rules))
    for line in lines:
        if line["key"] == "submission_benchmark":
            line["value"] = "another"
    assert not ours(write(lines, tmp_path / "result_0.txt"), rules)


def test_official_rounds_have_no_file_of_ours(capsys):
    from train_bench.cli.commands import rules as command

    assert command.main(["benchmark=ssd_mini", "--official-file"]) == 0
    assert capsys.readouterr().out == ROUND.benchmark("ssd_mini").generated
    with pytest.raises(
        RequestError, match=r"compliance_checker/training_1\.1\.0/common\.yaml of the installed"
    ):
        command.main(["benchmark=resnet", "ruleset=1.1.0", "--official-file"])
