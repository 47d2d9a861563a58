"""One grammar: every verb takes an option as `--name value` and as `name=value`."""

import argparse
import json
import sys

import pytest
from hydra._internal.hydra import Hydra

from tests.command_line import typed
from tests.judge import campaigns
from train_bench.cli import composing, program
from train_bench.cli.arguments import Parser, with_command
from train_bench.cli.verbs import COMPOSING, VERBS
from train_bench.errors import RequestError
from train_bench.plan import option_table
from train_bench.plan.request import ON_RESUME, Request

PARSERS = [
    *((verb, ()) for verb in VERBS),
    ("index", ("published",)),
    ("rcp", ("--certainty",)),
]
"""Verbs, and the first words that change what they take."""

WORDS = {
    "history": ("benchmark", "revision", "since", "valid"),
    "join": ("launcher.node_rank", "launcher.local_addr"),
    "rcp": ("benchmark", "ruleset", "batch_size", "less"),
    "rules": ("benchmark", "ruleset", "division"),
    "serve": ("launcher", "launcher.nproc_per_node", "device", "data_dir"),
    "verify": ("launcher", "launcher.nproc_per_node", "device", "data_dir"),
}
"""Options that verbs parse themselves."""


class Found(Exception):
    """The parser of a verb, before it parses anything."""


@pytest.fixture
def parser_of(monkeypatch):
    """Function from a verb and its first words to its parser, from which nothing is required."""

    def stop(self, *_):
        raise Found(self)

    def parser_of(verb, first):
        with monkeypatch.context() as patch, pytest.raises(Found) as found:
            patch.setattr(argparse.ArgumentParser, "parse_known_args", stop)
            program.command(verb)(first)
        parser = found.value.args[0]
        for action in parser._actions:
            action.required = False
            if not action.option_strings:
                action.nargs, action.choices = "*", None
        for group in parser._mutually_exclusive_groups:
            group.required = False
        return parser

    return parser_of


def value_of(action):
    """A value that an option takes and that it does not have by default."""
    if action.choices:
        return str(next(one for one in action.choices if one != action.default))
    return "7" if action.type in (int, float) or action.metavar == "PERCENT" else "some text"


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


@pytest.mark.parametrize(
    ("verb", "first"), PARSERS, ids=lambda one: one if isinstance(one, str) else "".join(one)
)
def test_each_option_of_each_verb_is_taken_in_every_spelling(verb, first, parser_of):
    parser = parser_of(verb, first)
    nothing = vars(parser.parse_known_args([])[0])
    own = [
        action
        for action in parser._actions
        if action.option_strings and action.dest not in ("help", "help_all")
    ]
    for action in own:
        flag = action.option_strings[-1]
        name = flag.removeprefix("--").replace("-", "_")
        if action.nargs == 0:
            spellings = [[flag], [f"{flag}=true"], [f"{name}=true"]]
            assert vars(parser.parse_known_args([f"{name}=false"])[0]) == nothing
        else:
            value = value_of(action)
            spellings = [[flag, value], [f"{flag}={value}"], [f"--{name}", value], [f"--{name}={value}"]]
            if verb not in COMPOSING or not parser.is_word(
                name
            ):  # `runs=3` is one of a campaign, `--runs 3` is not
                spellings += [[f"{name}={value}"], [f"{flag.removeprefix('--')}={value}"]]
        taken = [parser.parse_known_args(words) for words in spellings]
        assert vars(taken[0][0]) != nothing, flag
        assert all(one == taken[0] for one in taken), (flag, taken)
    words = WORDS.get(verb, ()) if verb not in COMPOSING or first else names_of_configuration(verb)
    for name in words:
        flag = f"--{name}"
        if flag.replace("_", "-") in parser._option_string_actions:
            continue
        spellings = [[flag, "7"], [f"{flag}=7"], [f"{flag.replace('_', '-')}=7"], [f"{name}=7"]]
        if name in parser._switches:
            assert list(parser.unified([flag])) == [f"{name}=true"]
            spellings = spellings[1:]
        assert [list(parser.unified(words)) for words in spellings] == [[f"{name}=7"]] * len(spellings)
    assert own or words


def test_the_word_that_chooses_another_parser_does_so_in_every_spelling(parser_of):
    spellings = ("--certainty", "--certainty=true", "certainty=true")
    assert {parser_of("rcp", (word,)).prog for word in spellings} == {"train-bench rcp --certainty"}


def names_of_configuration(verb):
    return [option.name for listed in option_table.parts(verb).values() for option in listed]


@pytest.mark.parametrize(
    ("verb", "words", "sentence"),
    [
        ("run", ["--runs"], "--runs needs a value: give --runs VALUE or runs=VALUE."),
        ("run", ["--runs", "--json"], "--runs needs a value: give --runs VALUE or runs=VALUE."),
        ("rules", ["--benchmark"], "--benchmark needs a value: give --benchmark VALUE or benchmark=VALUE."),
        ("forecast", ["--price"], "--price needs a value: give --price VALUE or price=VALUE."),
        ("judge", ["--ruleset", "--json"], "--ruleset needs a value: give --ruleset VALUE or ruleset=VALUE."),
        ("run", ["--json=maybe"], "--json is 'maybe'; give true or false."),
        ("judge", ["json=maybe"], "json is 'maybe'; give true or false."),
    ],
)
def test_all_verbs_refuse_alike(verb, words, sentence, capsys):
    with pytest.raises(SystemExit):
        program.command(verb)(words)
    assert sentence in capsys.readouterr().err


def test_a_value_that_looks_like_an_option_is_a_value(parser):
    options = parser.parse_args(["--ruleset", "json=true", "--", "price_per_hour=2"])
    assert (options.ruleset, options.json, options.paths) == ("json=true", False, ["price_per_hour=2"])
