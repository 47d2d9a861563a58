"""One grammar: every verb takes an option as `--name value` and as `name=value`."""

import sys

import pytest

from tests.judge import campaigns
from train_bench.cli import program
from train_bench.cli.arguments import Parser, with_command


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
    assert "give json=true or json=false" in capsys.readouterr().err


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
