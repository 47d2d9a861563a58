"""Campaigns from Python, over recorded ones."""

import importlib
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import train_bench
from tests.command_line import typed
from tests.fake_campaigns import FakeLauncher
from train_bench import api
from train_bench.errors import LogError, RequestError
from train_bench.plan import discover


def folder_of(plan):
    return plan.jobs[0].folder


def test_importing_train_bench_loads_nothing_heavy_and_its_names_are_listed():
    program = (
        "import sys, train_bench; print(dir(train_bench)); print(train_bench.judge.__name__);"
        "print([name for name in ('torch', 'hydra', 'numpy', 'yaml', 'train_bench.cli') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "['Benchmark', '__version__', 'compare', 'judge', 'run']",
        "train_bench.judge",
        "[]",
    ]


@pytest.mark.parametrize("name", ["judge", "compare"])
def test_a_name_can_be_called_whatever_was_imported_before(name):
    assert importlib.import_module(f"train_bench.{name}") is getattr(train_bench, name)
    with pytest.raises(TypeError, match=f"^{name}\\(\\) got an unexpected keyword"):
        getattr(train_bench, name)(unknown=1)


def test_judge_returns_what_the_verb_prints(whole):
    judged = train_bench.judge(folder_of(whole))
    assert json.loads(json.dumps(judged.as_json())) == json.loads(
        typed("judge", str(folder_of(whole)), "--json").stdout
    )
    [entry] = judged.entries
    assert entry.score.runs[0].converged and entry.score.score_minutes > 0
    said = typed("judge", str(folder_of(whole))).stdout
    assert str(judged).splitlines()[-1] in said and "\nscore " in str(judged)
    assert judged._repr_html_().startswith("<pre>resnet_mini in ")


def test_run_returns_the_judged_campaign_and_leaves_the_process_as_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(discover, "launcher", lambda config: FakeLauncher())
    words = list(sys.argv)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    judged = train_bench.run("benchmark=resnet_mini", runs=2, seed=1, output=tmp_path / "one", store=None)
    [entry] = judged.entries
    assert entry.location.folder == tmp_path / "one"
    assert [run.converged for run in entry.score.runs] == [True, True]
    assert (sys.argv, os.environ.get("HYDRA_FULL_ERROR")) == (words, None)
    assert "2 run(s) of resnet_mini" in capsys.readouterr().out


@pytest.mark.slow
def test_run_of_a_pair_returns_both_and_compare_what_the_verb_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(discover, "launcher", lambda config: FakeLauncher())
    judged = train_bench.run(runs=3, seed=1, against="precision=bf16", output=tmp_path / "pair")
    assert [one.location.folder.name for one in judged.entries] == ["a", "b"]
    compared = train_bench.compare(tmp_path / "pair" / "a", tmp_path / "pair" / "b")
    [printed] = json.loads(typed("compare", str(tmp_path / "pair"), "--json").stdout)["comparisons"]
    assert compared.paired
    assert compared.speedup.value == printed["speedup"]["value"]
    assert compared.verdict.word == printed["verdict"]["word"]
    assert str(compared).splitlines()[0] == printed["sentence"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: train_bench.run("resnet_mini"), "'resnet_mini' is not an option. Did you mean"),
        (lambda: train_bench.run("--multirun", runs="1,2"), "not --multirun; leave it out"),
        (lambda: train_bench.run(benchmark="resnet_mimi"), "There is no benchmark 'resnet_mimi'"),
        (lambda: train_bench.run(source="/data"), "source= is for prepare"),
        (lambda: train_bench.run(runs=True), "runs"),
    ],
)
def test_a_bad_request_is_raised_as_the_sentence_of_the_verb(call, sentence):
    with pytest.raises(RequestError, match=sentence):
        call()


def test_unreadable_results_are_raised(tmp_path):
    with pytest.raises(LogError, match="no result"):
        train_bench.judge(tmp_path)
    with pytest.raises(RequestError, match="given twice"):
        train_bench.compare(tmp_path, tmp_path)


def composed(**options):
    return api._request(["benchmark=dlrm_mini", *(api._word(name, one) for name, one in options.items())])


@pytest.mark.parametrize(
    "text",
    [
        *(
            "/tmp/with space",
            "/tmp/\u00fcn\u00ef",
            "/tmp/x (1)",
            "/tmp/a,b",
            "/tmp/a=b",
            "/tmp/#5",
            "/tmp/it's",
            '"q"',
        ),
        *(
            "/tmp/${oc.env:HOME}/q",
            r"\${x}",
            "null",
            "true",
            "007",
            "1e5",
            "nan",
            "",
            " ",
            "a\nb",
            "[a]",
            "{a:1}",
            "~",
        ),
        *("train_bench_text_ab", "???", "-m", "\\"),
    ],
)
def test_a_text_given_from_python_arrives_unchanged(text):
    request = composed(output=text)
    assert request.config.output == text
    assert request.overrides[-1] == f"output={text}"


def test_texts_arrive_together_and_in_lists():
    texts = ["a,b", "null", "\u00fc", "${x}"]
    request = composed(
        launcher="horovod", **{"launcher.hosts": texts, "data_dir": "a b", "command": "true a,b '#'"}
    )
    assert request.config.launcher.hosts == texts
    assert (request.config.data_dir, request.config.command) == ("a b", "true a,b '#'")


def test_a_text_where_a_number_belongs_is_refused_as_it_was_given():
    with pytest.raises(RequestError, match=r"runs is 'f\u00fcnf'"):
        composed(runs="f\u00fcnf")


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.text())
def test_any_text_arrives_unchanged(text):
    assert composed(output=text, data_dir=text).config.output == text
