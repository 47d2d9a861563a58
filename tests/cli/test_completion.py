"""Completions of a line: values as they are typed, no schemas, and the options of every verb."""

import pytest

from train_bench.cli import completion, program

PRINTED = "precision=Precision.fp32\nlauncher=inline launcher=inline_schema\nlauncher=slurm\n"


def line(monkeypatch, text):
    monkeypatch.setenv(completion.LINE, text)
    monkeypatch.setenv(completion.POINT, str(len(text)))


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("precision=", ["precision=fp32", "precision=tf32", "precision=bf16", "precision=fp16"]),
        ("precision=b", ["precision=bf16"]),
        ("on_failure=c", ["on_failure=continue"]),
        ("deterministic=", ["deterministic=false", "deterministic=true"]),
        ("launcher=", ["precision=Precision.fp32", "launcher=inline", "launcher=slurm"]),
    ],
)
def test_a_choice_has_its_plain_values_and_a_group_no_schemas(monkeypatch, typed, words):
    line(monkeypatch, f"train-bench {typed}")
    assert list(completion.hydra_words(PRINTED)) == words


@pytest.mark.parametrize(
    ("verb", "typed", "words"),
    [
        ("judge", "--", {"--help", "--json", "--official", "--published", "--ruleset"}),
        ("run", "--js", {"--json"}),
        ("score", "--half", {"--half-width"}),
        ("rules", "benchmark=resnet_mini_l", {"benchmark=resnet_mini_lars"}),
        ("judge", "", set()),
    ],
)
def test_flags_of_every_verb_are_completed(monkeypatch, capsys, verb, typed, words):
    line(monkeypatch, f"train-bench {verb} {typed}")
    monkeypatch.setattr("sys.argv", ["train-bench", "-sc", "query=bash"])
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 0
    assert {*capsys.readouterr().out.split()} == words
