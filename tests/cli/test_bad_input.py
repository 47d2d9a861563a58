"""Every wrong request gets one clear sentence and exit code 2, and starts nothing."""

import re
import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from tests.command_line import train_bench, typed
from train_bench.cli import override_errors, overrides
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.logs.record import read_record
from train_bench.plan import discover
from train_bench.rules import ruleset


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["run", "launcher=torchrum"], ["no launcher 'torchrum'", "Did you mean 'torchrun'?"]),
        (["run", "benchmark=0"], ["benchmark=0 makes no configuration", "`train-bench list`"]),
        (["plan", "benchmark=resnet_mini", "launcher=1"], ["launcher=1 makes no configuration"]),
        (["join", "/dev/null", "launcher.node_rank=1"], ["/dev/null is not a folder"]),
        (["run", "sede=1"], ["no option 'sede'", "Did you mean 'seed'?"]),
        (
            ["run", "benchmark.hyperparameters.sgd_opt_momentun=0.9"],
            ["no option 'benchmark.hyperparameters.sgd_opt_momentun'", "hyperparameters.sgd_opt_momentum'?"],
        ),
        (["run", "+foo=1"], ["no option 'foo'"]),
        (["run", "runs=many"], ["runs is 'many'; give a whole number, for example runs=5."]),
        (["run", "seed="], ["seed is empty; give a whole number"]),
        (["run", "seed=5.5"], ["seed is '5.5'; give a whole number"]),
        (["run", "output=[a]"], ["output is '['a']'; give a text"]),
        (
            ["run", "resnet_mini=\u200b5"],
            ["has the invisible character U+200B at place 13; type the word again"],
        ),
        (
            ["run", "max_minutes=soon"],
            ["max_minutes is 'soon'; give a number, for example max_minutes="],
        ),
        (["run", "trust=maybe"], ["trust is 'maybe'; give true or false"]),
        (
            ["run", "~runs"],
            ["runs has no value, and no option can be left out; set it, for example runs=VALUE."],
        ),
        (["run", "~runs=3"], ["runs has no value"]),
        (
            ["run", "~benchmark.hyperparameters.opt_name"],
            ["opt_name has no value, and no option can be left out"],
        ),
        (["run", "~rnus"], ["no option 'rnus'", "Did you mean 'runs'?"]),
        (["run", "-m", "~rnus", "seed=1,2"], ["no option 'rnus'", "Did you mean 'runs'?"]),
        (["run", "+rnus=3"], ["no option 'rnus'", "Did you mean 'runs'?"]),
        (["run", "against=++rnus=3"], ["no option 'rnus'", "Did you mean 'runs'?"]),
        (["prepare", "against=\\"], ["against='\\\\' cannot be split into words: no escaped character."]),
        (["equivalent", "benchmark=bert_mini", "\\"], ["'\\\\' cannot be split into words"]),
        (["forecast", "~benchmark.evaluaton"], ["Did you mean 'benchmark.evaluation'?"]),
        (["check", "++benchmark.evaluaton=3"], ["Did you mean 'benchmark.evaluation'?"]),
        (["plan", "launcher.nproc=2"], ["Did you mean 'launcher.nproc_per_node'?"]),
        (["plan", "++launcher.nproc=2"], ["Did you mean 'launcher.nproc_per_node'?"]),
        (["plan", "+launcher=torchrun"], ["launcher has two values; type launcher=NAME once, without +."]),
        (["run", "=3"], ["=3 makes no configuration; `train-bench list`"]),
        (["run", "-x"], ["'-x' is not an option", "NAME=VALUE"]),
        (["run", "--cfg", "x"], ["--cfg is 'x'; give one of job, hydra, all."]),
        (["compare"], ["compare needs DIR.", "train-bench compare before after", "compare --help"]),
        (["compare", "a", "b", "--baseline", "worst"], ["--baseline is 'worst'; give one of"]),
        (["verify"], ["verify needs CAMPAIGN. For example: train-bench verify kept."]),
        (["rules", "--steps"], ["rules needs benchmark=NAME"]),
        (["judge", ".", "--stepz"], ["judge has no option --stepz."]),
        (["judge", ".", "--ruleset"], ["--ruleset needs a value: give --ruleset VALUE or ruleset=VALUE."]),
        (["judge", ".", "--json=maybe"], ["--json is 'maybe'; give true or false."]),
        (
            ["plan", "launcher=torchrun", "launcher.nproc_per_node.x=2"],
            ["nproc_per_node is one value, without options below it; give a whole number"],
        ),
        (["equivalent", "benchmark=resnet_mini", "precision=bf16", "--steps", "x"], ["--steps is 'x'"]),
        (
            ["run", "output=a${b}"],
            ["output: ", "another option; where a name has these signs, put a backslash"],
        ),
        (["run", "-m", "output=a${b}"], ["output: ", "where a name has these signs, put a backslash"]),
        (["run", "precision=fp64"], ["precision is 'fp64'; give one of fp32, tf32, bf16, fp16."]),
        (["run", "on_failure=repeat"], ["on_failure", "'repeat'", "stop, continue"]),
        (["run", "launcher=torchrun", "launcher.nodes=2"], ["needs launcher.master_addr"]),
        (
            ["run", "benchmark.hyperparameters.sgd_opt_momentum=0.8"],
            ["sgd_opt_momentum is 0.8", "allowed: only 0.9"],
        ),
        (
            ["run", "benchmark.hyperparameters.sgd_opt_weight_decay=0.0003"],
            ["sgd_opt_weight_decay is 0.0003", "0.0001 times a power of two"],
        ),
        (
            ["run", "benchmark.hyperparameters.opt_name=adam"],
            ["opt_name is 'adam'", "one of 'sgd', 'lars'"],
        ),
        (
            ["run", "launcher=torchrun", "launcher.nproc_per_node=7"],
            ["global_batch_size 64 cannot be divided into 7 ranks", "multiple of 7"],
        ),
        (["run", "launcher.nproc_per_node=2"], ["launcher=inline runs one process", "launcher=torchrun"]),
        (["run", "benchmark.ruleset=mini-2.0"], ["no ruleset 'mini-2.0'", "Did you mean 'mini-1.0'?"]),
        (["run", "runs=0"], ["runs=0", "at least 1 run"]),
        (["run", "benchmark.evaluation.period=2"], ["evaluation.period is 2", "allowed: only 1"]),
        (["rcp", "runs=3"], ["at least 10 runs", "runs=3"]),
        (["rcp", "precision=bf16"], ["made in fp32", "precision=bf16"]),
        (["run", "benchmark=resnet", "seed=1"], ["seed=1 fixes the seeds", "drop_caches=true"]),
        (["run", "resume=/nowhere/at/all"], ["is not a campaign"]),
        (["run", "resume=/nowhere", "runs=3"], ["is not a campaign", "/nowhere"]),
        (["run", "benchmark"], ["'benchmark' is not an option", "benchmark=VALUE"]),
        (["run", "resnet_mini"], ["'resnet_mini' is not an option", "Did you mean benchmark=resnet_mini?"]),
        (["forecast", "resnet_mimi"], ["Did you mean benchmark=resnet_mini?"]),
        (["check", "runs=1", "torchrun"], ["Did you mean launcher=torchrun?"]),
        (["run", "deterministic"], ["Did you mean deterministic=true?"]),
        (["run", "sede"], ["Did you mean seed=VALUE?"]),
        (["plan", "waves"], ["'waves' is not an option. Options are NAME=VALUE."]),
        (["profile", "resnet_mini"], ["resnet_mini does not exist. Did you mean benchmark=resnet_mini?"]),
        (
            ["run", "launcher.name=torchrun"],
            ["launcher.name follows from launcher=NAME", "of deepspeed, horovod"],
        ),
        (
            ["run", "--launcher.name", "slurm"],
            ["launcher.name follows from launcher=NAME", "slurm, torchrun"],
        ),
        (["plan", "+launcher.name=x"], ["launcher.name follows from launcher=NAME"]),
        (["run", "-m", "launcher.name=inline,torchrun"], ["launcher.name follows from launcher=NAME"]),
        (["prepare", "benchmark=resnet_cifar10", "data_dir=data"], ["not downloaded", "source"]),
        (["rules", "benchmark=resnet_mimi"], ["Did you mean 'resnet_mini'"]),
        (["rules", "benchmark=stable_diffusion"], ["several rounds", "training-4.0.0"]),
        (["rules", "benchmark=ssd", "ruleset=9.9"], ["9.9", "training-6.1.0"]),
        (["rules", "benchmark=ssd", "ruleset=1.1.0", "division=ajar"], ["ajar", "closed, open"]),
        (["rules", "resnet"], ["'resnet' is not an option", "Did you mean benchmark=resnet?"]),
        (["judge", "/nowhere/at/all"], ["/nowhere/at/all does not exist"]),
    ],
)
def test_a_wrong_request_is_answered_by_one_sentence(arguments, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one_sentence(typed(*arguments), sentences)


@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["rum"], ["no verb 'rum'", "Did you mean 'run'?"]),
        (["run", "benchmark=resnet_mimi"], ["no benchmark 'resnet_mimi'", "Did you mean 'resnet_mini'?"]),
    ],
)
def test_a_wrong_request_is_answered_by_one_sentence_and_an_exit_code_of_the_program(arguments, sentences):
    one_sentence(train_bench(*arguments), sentences)


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["run", "benchmark=resnet_mimi"], "train-bench list"),
        (["run", "sede=1"], "train-bench run --help-all"),
        (["rules", "benchmark=resnet_mimi"], "train-bench list"),
    ],
)
def test_of_many_known_names_an_error_has_three_and_the_command_that_lists_the_others(arguments, more):
    sentence = typed(*arguments).stderr
    nearest = re.search(r"Nearest: (.*?) \((\d+) more: (.*?)\)\.", sentence)
    assert len(nearest[1].split(", ")) == 3 and int(nearest[2]) > 3 and nearest[3] == more


def test_a_campaign_without_resume_is_recognised(begun):
    folder = begun.jobs[0].folder
    assert f"Did you mean resume={folder}?" in typed("run", str(folder)).stderr


def one_sentence(answer, parts):
    """The answer says each of the parts, and nothing beside its sentence."""
    assert answer.returncode == 2, answer.stderr
    assert answer.stdout == ""
    for part in parts:
        assert part in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_forbidden_value_stops_before_anything_is_written_or_started(tmp_path):
    answer = typed("run", "benchmark.hyperparameters.sgd_opt_momentum=0.8", f"output={tmp_path / 'new'}")
    assert answer.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_an_output_folder_that_holds_another_campaign_is_left_alone(begun):
    folder = begun.jobs[0].folder
    before = sorted(path.name for path in folder.iterdir())
    answer = typed("run", f"output={folder}")
    assert answer.returncode == 2
    assert "is not empty" in answer.stderr
    assert f"resume={folder}" in answer.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_folder_without_results_is_judged_with_exit_code_1(begun):
    answer = typed("judge", str(begun.jobs[0].folder))
    assert answer.returncode == 1
    assert "has no result_*.txt" in answer.stderr


def test_a_folder_of_somebody_else_asks_for_the_ruleset(tmp_path):
    (tmp_path / "result_0.txt").write_text("nothing\n")
    answer = typed("judge", str(tmp_path))
    assert answer.returncode == 2
    assert "--ruleset" in answer.stderr


def spoilt(folder, what):
    """A finished campaign with one thing wrong in it, which its record has seen, too."""
    second = folder / "result_1.txt"
    text = second.read_text()
    if what == "truncated in the middle of a line":
        second.write_text(text[: text.index('"run_stop"')])
    elif what == "binary garbage":
        second.write_bytes(b"\x00\xff\xfe:::MLLOG {\x80\x81\n" + text.encode())
    elif what == "no run_stop":
        second.write_text("".join(line for line in text.splitlines(True) if "run_stop" not in line))
    elif what == "another benchmark":
        second.write_text(text.replace('"resnet_mini"', '"resnet_cifar10"'))
    elif what == "a copy":
        second.write_bytes((folder / "result_0.txt").read_bytes())
    elif what == "empty":
        second.write_text("")
    record, _ = read_record(second, ruleset.load("mini-1.0").benchmark("resnet_mini"))
    files.write_json(folder / "record_1.json", record.as_json())


@pytest.mark.parametrize(
    ("what", "sentence", "valid"),
    [
        ("truncated in the middle of a line", "line ends in the middle", True),
        ("binary garbage", "Unreadable line: not JSON", False),
        ("no run_stop", "There is no run_stop", True),
        ("another benchmark", "This log is of resnet_cifar10", False),
        ("a copy", "is a copy of result_0.txt", False),
        ("empty", "The log is empty", True),
    ],
)
def test_a_spoilt_result_is_judged_with_a_sentence(whole, what, sentence, valid, monkeypatch):
    """A cut-off log is a run that failed, counted as slowest like any other; the rest is no result. The fake runs
    are faster than the reference points allow, so these are left out."""
    monkeypatch.setattr(discover, "rcp_folders", lambda: (Path("/nowhere"),))
    folder = whole.jobs[0].folder
    spoilt(folder, what)
    answer = typed("judge", str(folder))
    assert sentence in answer.stdout
    assert answer.stderr == ""
    assert answer.returncode == (0 if valid else 1), answer.stdout
    assert ("NOT VALID" in answer.stdout) is not valid


@pytest.mark.parametrize(
    ("word", "place", "typed_so"),
    [
        ("output=/tmp/run_a=1,b=2", "at '=' (character 18)", "'output=\"/tmp/run_a=1,b=2\"'"),
        ("system.submission_org=A&B [lab]", "at '&' (character 24)", "'system.submission_org=\"A&B [lab]\"'"),
        ("data_dir=~/data", "at '~' (character 10)", "'data_dir=\"~/data\"'"),
        ("launcher.hosts=[n[01-03]]", "at '[' (character 18)", "'launcher.hosts=[\"n[01-03]\"]'"),
        ("launcher.extra=[--a&b]", "at '&' (character 20)", "'launcher.extra=[\"--a&b\"]'"),
        ("output=/tmp/a,b", "several values (',' is character 14)", "'output=\"/tmp/a,b\"'"),
        ("output=café", "at 'é' (character 11)", "'output=\"café\"'"),
        ("output={a", "at its end: a bracket or a quote is not closed", "'output=\"{a\"'"),
        ("output=it's", "(character 10)", "'output=\"it'\"'\"'s\"'"),
    ],
)
def test_a_word_that_hydra_cannot_read_is_shown_with_the_place_and_its_quoted_form(word, place, typed_so):
    with pytest.raises(RequestError) as refused:
        override_errors.refuse_unreadable([word])
    assert word in str(refused.value) and place in str(refused.value)
    assert str(refused.value).endswith(typed_so)
    (quoted,) = shlex.split(typed_so)
    override_errors.refuse_unreadable([quoted])


@pytest.mark.parametrize(
    "word",
    ["hydra.run.dir=/tmp/x", "+hydra.verbose=true", "hydra/job_logging=default", "hydra.sweep.subdir=x"],
)
def test_an_option_of_hydra_without_an_effect_is_refused(word):
    with pytest.raises(RequestError, match="has no effect in train-bench"):
        override_errors.refuse_unreadable([word])


def test_what_hydra_reads_and_obeys_passes():
    words = [
        "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2",
        "--config-dir",
        "DIR",
        "command=a=b, 'c d'",
        "runs=2,3",
    ]
    override_errors.refuse_unreadable(words, sweeping=True)


@pytest.mark.parametrize(
    ("word", "elements"),
    [
        ("launcher.extra=[--exclusive,--constraint=a100]", ["--exclusive", "--constraint=a100"]),
        ("launcher.extra=[--nodelist=n[1-4,7], --mem=0]", ["--nodelist=n[1-4,7]", "--mem=0"]),
        ("launcher.extra=[--exclusive,'--comment=a,b']", ["--exclusive", "--comment=a,b"]),
        ("launcher.extra=[]", []),
        ("launcher.hosts=[n1,n2]", ["n1", "n2"]),
    ],
)
def test_a_list_of_options_is_read_as_a_shell_user_types_it(word, elements):
    override_errors.refuse_unreadable([word])
    parsed = OverridesParser.create().parse_override(overrides.quoted(word))
    assert [str(one) for one in parsed.value()] == elements


def test_several_lists_of_a_sweep_stay_several():
    word = 'launcher.extra=["--mem=0"],["--mem=1"]'
    assert overrides.quoted(word) == word
    assert overrides.quoted("launcher.extra=[--mem=0],[--mem=1]") == "launcher.extra=[--mem=0],[--mem=1]"
