"""Completions of a line: values as they are typed, no schemas, and the options of every verb."""

import pytest

from train_bench.cli import completion, completion_cache, program

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


def complete(monkeypatch, text, found):
    """Completions of a line, of which those that are not known yet are `found`; and the line that was asked about."""
    asked = []

    def compute():
        asked.append(completion_cache.os.environ[completion.LINE])
        return found

    line(monkeypatch, text)
    return completion_cache.complete("query=bash", compute), asked


@pytest.mark.parametrize(
    ("first", "asked", "second"),
    [
        ("train-bench ju", "train-bench j", "train-bench jud"),
        ("train-bench judge --o", "train-bench judge -", "train-bench judge --of"),
        ("train-bench run benchmark=res", "train-bench run benchmark=", "train-bench run benchmark=resnet_m"),
        (
            "train-bench run a=1 launcher.n",
            "train-bench run a=1 launcher.",
            "train-bench run b=2 launcher.nproc",
        ),
    ],
)
def test_a_line_that_differs_in_its_last_letters_is_known(monkeypatch, first, asked, second):
    last = second.split(" ")[-1]
    words = [last, f"{last}_more", "benchmark=ssd", "other"]
    assert complete(monkeypatch, first, words)[1] == [asked]
    assert complete(monkeypatch, second, ["never"]) == ([last, f"{last}_more"], [])


def test_another_benchmark_or_a_changed_file_is_another_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAIN_BENCH_PATH", str(tmp_path))
    for text in ("train-bench run benchmark=a precision=", "train-bench run benchmark=b precision="):
        assert complete(monkeypatch, text, ["precision=fp32"])[1]
        assert not complete(monkeypatch, text, [])[1]
    (tmp_path / "conf" / "benchmark").mkdir(parents=True)
    (tmp_path / "conf" / "benchmark" / "mine.yaml").touch()
    assert complete(monkeypatch, text, ["precision=bf16"]) == (["precision=bf16"], [text])


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("judge ", ["mine", "pair/a", "results/one/a"]),
        ("compare mine pair", ["pair/a"]),
        ("run resume=res", ["resume=results/one/a"]),
        ("run resume=no", []),
        ("judge ./x", []),
    ],
)
def test_campaigns_below_the_folder_are_completed(monkeypatch, tmp_path, typed, words):
    for folder in ("mine", "pair/a", "results/one/a", "deep/one/a", ".hidden"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "plan.json").touch()
    monkeypatch.chdir(tmp_path)
    assert complete(monkeypatch, f"train-bench {typed}", ["never"]) == (words, [])


def test_a_known_line_imports_nothing_of_the_configuration(monkeypatch, capsys):
    line(monkeypatch, "train-bench judge --o")
    complete(monkeypatch, "train-bench judge --o", ["--official"])
    line(monkeypatch, "train-bench judge --of")
    monkeypatch.setitem(program.sys.modules, "train_bench.cli.completion", None)
    assert program._carry_out(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out == "--official\n"
