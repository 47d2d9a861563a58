"""One grammar: every verb takes an option as `--name value` and as `name=value`."""

import json
import sys

import pytest
from hydra._internal.hydra import Hydra

from tests.command_line import typed
from tests.judge import campaigns
from train_bench.cli import composing, program
from train_bench.cli.arguments import Parser, with_command
from train_bench.errors import RequestError
from train_bench.plan.request import ON_RESUME, Request


@pytest.fixture
def parser():
    made = Parser("verb", words=("benchmark",))
    made.add_argument("paths", nargs="*")
    made.add_argument("--ruleset")
    made.add_argument("--price-per-hour")
    made.add_argument("--json", action="store_true")
    return made


@pytest.mark.parametrize(
    "words",
    [
        ("--ruleset", "1.1.0", "--price-per-hour", "2", "--json"),
        ("ruleset=1.1.0", "price_per_hour=2", "json=true"),
        ("--ruleset=1.1.0", "price-per-hour=2", "--json"),
    ],
)
def test_both_spellings_mean_the_same(parser, words):
    options = parser.parse_args([*words, "a", "b"])
    assert (options.ruleset, options.price_per_hour, options.json) == ("1.1.0", "2", True)
    assert options.paths == ["a", "b"]


def test_a_flag_is_true_or_false(parser, capsys):
    assert not parser.parse_args(["json=false"]).json
    with pytest.raises(SystemExit):
        parser.parse_args(["json=maybe"])
    assert "json is 'maybe'; give true or false" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--benchmark", "resnet"), ("--benchmark=resnet",), ("benchmark=resnet",)])
def test_a_verb_that_reads_words_takes_them_as_options(parser, words):
    assert parser.parse_args([*words]).paths == ["benchmark=resnet"]


def test_a_path_that_looks_like_an_option_is_a_path(parser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ruleset=1").mkdir()
    assert parser.parse_args(["ruleset=1"]).paths == ["ruleset=1"]


def test_a_log_is_judged_alike_in_both_spellings(tmp_path, capsys):
    folder = campaigns.campaign(tmp_path, ["good"])
    answers = []
    for words in (("--json", "--ruleset", "mini-1.0"), ("json=true", "ruleset=mini-1.0")):
        code = program.command("judge")([str(folder), *words])
        answers.append((code, capsys.readouterr().out))
    assert answers[0] == answers[1]


def test_the_words_behind_two_dashes_are_the_command():
    assert with_command(["benchmark=resnet", "runs=2"]) == ["benchmark=resnet", "runs=2"]
    words = ["benchmark=resnet", "--", sys.executable, "my.py", "--flag", "x y", "--help"]
    assert with_command(words) == ["benchmark=resnet", f"command={sys.executable} my.py --flag 'x y' --help"]


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["--runs", "3"], ["runs=3"]),
        (["--runs=3", "seed=1"], ["runs=3", "seed=1"]),
        (["--keep-weights", "--benchmark", "bert_mini"], ["keep_weights=true", "benchmark=bert_mini"]),
        (["--launcher.nproc_per_node", "2"], ["launcher.nproc_per_node=2"]),
        (["--multirun", "--cfg", "job"], ["--multirun", "--cfg", "job"]),
        (["--nonesuch", "3"], ["nonesuch=3"]),
    ],
)
def test_a_verb_that_composes_takes_its_options_as_flags(words, read):
    assert composing.parse(composing.OverrideParser("run"), words)[1] == read


def test_the_option_of_the_verb_and_that_of_the_configuration_are_told_apart_by_their_spelling():
    parser = composing.OverrideParser("forecast")
    parser.add_argument("--runs", type=int)
    known, words = composing.parse(parser, ["--runs", "3", "runs=4", "json=true"])
    assert (known.runs, known.json, words) == (3, True, ["runs=4"])


def test_an_option_of_another_verb_is_refused_before_anything_is_composed_with_it(capsys):
    for verb, word, takers in (
        ("run", "source=/tmp", "prepare"),
        ("plan", "resume=/tmp", "run and rcp"),
        ("prepare", "command=true", "run, plan, rcp and forecast"),
    ):
        assert program.command(verb)([word]) == 2
        assert f"{word.partition('=')[0]}= is for {takers}; leave it out." in capsys.readouterr().err


def test_an_answer_without_a_place_is_refused_before_anything_is_started(tmp_path):
    parser = composing.OverrideParser("run")
    for words, why in (
        (["--to", str(tmp_path)], "give the name of a file"),
        (["--to", str(tmp_path / "page.html")], "train-bench report DIR --to FILE"),
        (["--json", "--multirun"], "leave --multirun out"),
    ):
        with pytest.raises(RequestError, match=why):
            composing.parse(parser, words)


def test_a_resumed_campaign_names_what_may_be_given_with_it():
    request = Request(config=None, variant="resnet_mini", overrides=("resume=x", "seed=1", "only=[0]"))
    with pytest.raises(
        RequestError, match=f"leave out seed=1 or .* With resume= go {', '.join(ON_RESUME[1:])}"
    ):
        request.refuse_other_overrides()


def test_an_answer_is_one_object_and_the_rest_goes_to_standard_error(tmp_path, capsys):
    to = tmp_path / "answer.json"
    assert program.command("plan")(["benchmark=resnet_mini", "runs=1", "--json", "--to", str(to)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == json.loads(to.read_text())
    assert [plan["variant"] for plan in json.loads(printed.out)["plans"]] == ["resnet_mini"]


def test_a_configuration_is_composed_once(monkeypatch, tmp_path):
    composed = []
    compose = Hydra.compose_config
    monkeypatch.setattr(
        Hydra, "compose_config", lambda self, *a, **how: composed.append(1) or compose(self, *a, **how)
    )
    assert typed("plan", "runs=1", f"output={tmp_path / 'out'}").returncode == 0
    assert len(composed) == 1
