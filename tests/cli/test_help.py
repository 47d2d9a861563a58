"""What people read before they run anything: help, versions, and what a shell completes."""

import os
import shlex
import subprocess
import sys
from dataclasses import fields

import pytest

from train_bench.cli.program import command
from train_bench.cli.verbs import COMPOSING, EXAMPLES, VERBS, examples, help_page
from train_bench.plan import discover, option_table
from train_bench.plan.run_config import TRAITS, RunConfig

COMPLETE = """
train-bench() { "$PYTHON" -m train_bench "$@"; }
export -f train-bench
query() { COMP_LINE="$1" COMP_POINT="${#1}" train-bench -sc query=bash; }
for line in "$@"; do query "$line" | tr '\\n' ' '; echo; done
"""


def test_every_option_has_a_sentence_and_its_default():
    listed = {option.name: option for group in option_table.parts().values() for option in group}
    assert {field.name for field in fields(RunConfig)} <= listed.keys()
    for name in discover.launchers():
        own = {f"launcher.{field.name}" for field in fields(discover.launcher_config(name))} - {
            "launcher.name"
        }
        assert own <= listed.keys(), name
    for option in listed.values():
        assert len(option.about) > 4, option
    assert listed["benchmark"].default == discover.defaults()["benchmark"]
    assert listed["runs"].default == "null"
    assert listed["launcher.extra"].default == "[]"


@pytest.mark.parametrize("verb", COMPOSING)
def test_a_verb_that_takes_overrides_answers_help_itself(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        command(verb)(["benchmark=bert", "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"train-bench {verb} [OPTION=VALUE ...]\n")
    assert "powered by Hydra" not in printed
    for name, traits in TRAITS.items():
        assert (f"\n  {name}=" in printed) == (not traits.verbs or verb in traits.verbs), name
    assert "\n  --json " in printed
    assert "\n  --to FILE " in printed


def test_help_begins_with_examples_and_has_the_rest_on_demand(capsys):
    pages = {}
    for flag in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            command("run")([flag])
        pages[flag] = capsys.readouterr().out
    for page in pages.values():
        places = [page.index(part) for part in ("Examples:\n  train-bench run ", "\n  --json ", "\n  runs=")]
        assert places == sorted(places)
    assert "\n  launcher.nproc_per_node=" in pages["--help-all"]
    assert "\n  launcher.nproc_per_node=" not in pages["--help"]


def test_the_help_of_a_verb_without_overrides_begins_with_examples(capsys):
    with pytest.raises(SystemExit):
        command("judge")(["--help"])
    assert capsys.readouterr().out.startswith("Examples:\n  train-bench judge ")


@pytest.mark.parametrize("width", [80, 120])
def test_every_page_of_help_fits_a_terminal_but_for_commands_to_copy(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    for verb in VERBS:
        with pytest.raises(SystemExit):
            command(verb)(["--help"])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if len(line) > width and "  train-bench " not in line] == [], verb


@pytest.mark.parametrize("width", [80, 120])
def test_the_first_help_page_begins_with_commands_and_fits_a_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    page = help_page()
    assert page.index("train-bench list mini") < page.index("Run:")
    assert max(map(len, page.splitlines())) <= width
    assert all(f"\n  {verb} " in page for verb in VERBS)


def test_every_verb_has_help_and_knows_the_version():
    for arguments in (["--help"], *([verb, "--version"] for verb in VERBS[:3])):
        ran = subprocess.run(
            [sys.executable, "-m", "train_bench", *arguments], capture_output=True, text=True
        )
        assert ran.returncode == 0
        assert (ran.stdout.count(".") if "--version" in arguments else ran.stdout.count("\n")) >= 2


@pytest.mark.full
def test_a_shell_completes_verbs_options_and_their_values():
    lines = [
        "train-bench r",
        "train-bench run benchmark=resnet_mi",
        "train-bench prepare launcher=to",
        "train-bench run see",
        "train-bench run benchmark=resnet point=81",
        "train-bench run precision=",
    ]
    ran = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", *lines],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert ran.stderr == ""
    answers = [line for line in ran.stdout.splitlines() if line.strip()]
    verbs, benchmarks, launchers, seed, point, precision = answers
    assert {"run", "rules", "review", "report", "rcp", "referee", "replay"} == set(verbs.split())
    assert {"benchmark=resnet_mini", "benchmark=resnet_mini_lars"} <= set(benchmarks.split())
    assert launchers.split() == ["launcher=torchrun"]
    assert precision.split() == ["precision=fp32", "precision=tf32", "precision=bf16", "precision=fp16"]
    assert "seed=" in seed
    assert point.split() == ["point=8192"]


def test_what_a_shell_has_to_be_told_is_printed_for_the_program_as_a_whole():
    ran = subprocess.run(
        [sys.executable, "-m", "train_bench", "-sc", "install=bash"], capture_output=True, text=True
    )
    assert ran.stdout.rstrip().endswith("-F hydra_bash_completion train-bench")


@pytest.mark.parametrize("columns", [40, 80])
def test_an_example_fits_the_terminal_and_is_one_command_of_a_shell(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb, typed in EXAMPLES.items():
        shown = examples(verb)
        assert all(len(line) <= columns for line in shown.splitlines())
        commands = shown.replace("\\\n", "").strip().splitlines()[1:]
        assert [shlex.split(one) for one in commands] == [["train-bench", *shlex.split(one)] for one in typed]
