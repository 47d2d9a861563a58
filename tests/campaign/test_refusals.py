"""What this machine cannot do is refused before anything is started."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
from dataclasses import replace

import cattrs
import pytest

from tests.command_line import typed
from tests.fake_campaigns import begin, make
from tests.run.fakes import job
from train_bench.campaign import data, refusals
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.plan import discover
from train_bench.plan.threads import threads_of_environment


def train_bench(*arguments, **environ):
    """The command line without GPUs."""
    command = [sys.executable, "-m", "train_bench", *arguments]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", **environ}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=400)


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "sentences"),
    [
        (["device=cuda"], ["device=cuda needs 1 GPU(s) here, and PyTorch finds 0", "use device=cpu"]),
        (["device=cpu", "precision=tf32"], ["tf32 exists on GPUs only"]),
        (["precision=tf32"], ["tf32 needs a GPU, and PyTorch finds none here"]),
    ],
)
def test_gpus_that_are_not_there_are_told_before_anything_starts(tmp_path, arguments, sentences):
    folder = tmp_path / "campaign"
    answer = train_bench("run", *arguments, f"output={folder}")
    assert answer.returncode == 2, answer.stderr
    for sentence in sentences:
        assert sentence in answer.stderr
    assert answer.stderr.count("\n") == 1
    assert answer.stdout == ""
    assert not folder.exists()


@pytest.mark.parametrize(
    "folder", ["/proc/nowhere/campaign", "/dev/null/campaign", "/dev/null", "/tmp/" + 300 * "x"]
)
def test_an_output_that_cannot_be_written_is_refused(folder):
    with pytest.raises(RequestError, match=r"output=.* cannot be written .*Nothing was started"):
        begin(make(f"output={folder}"))


def test_an_output_that_cannot_be_written_is_told_with_exit_code_2():
    answer = typed("run", "output=/proc/nowhere/campaign")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "cannot be written" in answer.stderr


def test_looking_whether_a_folder_can_be_written_leaves_no_trace(tmp_path):
    files.refuse_unwritable(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_data_that_cannot_be_prepared_for_lack_of_a_place_are_refused(tmp_path):
    with pytest.raises(RequestError, match="data_dir=/proc/nowhere cannot be written"):
        data.prepare(Campaign.of(make(f"output={tmp_path / 'campaign'}", "data_dir=/proc/nowhere")))


@pytest.mark.full
def test_full_scale_plans_and_data_ask_for_no_dropped_caches(tmp_path):
    planned = train_bench("plan", "benchmark=resnet", "runs=1")
    assert planned.returncode == 2 and "hyperparameters" in planned.stdout, planned.stderr
    prepared = train_bench("prepare", "benchmark=resnet", f"data_dir={tmp_path / 'data'}")
    assert prepared.returncode == 2
    assert "drop_caches" not in prepared.stderr
    assert "source" in prepared.stderr


@pytest.mark.parametrize(
    ("said", "threads"), [("", None), ("3", 3), ("4,2", 4), ("many", "'many'"), ("0", "'0'"), ("-1", "'-1'")]
)
def test_threads_that_the_environment_asks_for_are_honoured_or_refused(said, threads):
    if isinstance(threads, str):
        with pytest.raises(RequestError, match=f"OMP_NUM_THREADS is {threads}"):
            threads_of_environment({"OMP_NUM_THREADS": said})
    else:
        assert threads_of_environment({"OMP_NUM_THREADS": said}) == threads


@pytest.mark.parametrize(("overrides", "threads"), [([], 3), (["launcher.threads_per_rank=2"], 2)])
def test_the_plan_has_the_threads_of_the_environment_unless_the_option_is_given(
    overrides, threads, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    planned = typed("plan", "launcher=torchrun", "runs=1", *overrides)
    assert f"OMP_NUM_THREADS={threads} " in planned.stdout


def test_a_package_that_is_not_installed_is_told_where_the_benchmark_needs_it(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "sklearn" else found(name))
    with pytest.raises(RequestError, match=r"\(sklearn\): pip install '\S+\[references\]'\. Nothing"):
        refusals.refuse(Campaign.of(make("benchmark=resnet_mini")), [refusals.packages])
    refusals.refuse(Campaign.of(make("benchmark=bert_mini")), [refusals.packages])


def test_a_rendezvous_on_a_port_that_is_taken_is_refused(tmp_path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = {"master_addr": "127.0.0.1", "master_port": port, "node_rank": 0}
        two = job(tmp_path, nodes=2, launcher_config=options)
        (sentence,) = refusals.taken_port(two)
        assert sentence.startswith(f"launcher.master_port={port} is in use on this host")
        assert not [*refusals.taken_port(replace(two, launcher_config=options | {"node_rank": 1}))]


def slurm(*overrides):
    """A request of a queue whose `sbatch` is not needed."""
    return ("launcher=slurm", "runs=1", *overrides)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("benchmark=resnet",), "demands cleared caches before each run; set drop_caches=true"),
        (("benchmark=resnet_cifar10",), "They come from the data set 'cifar10' as it is distributed"),
        (slurm("device=cuda"), "device=cuda needs GPUs, and the job requests none; add launcher.gres=gpu:1"),
        (("drop_caches_command=true",), "requires drop_caches=true"),
        (
            ("drop_caches=true", "drop_caches_command=no-such-program"),
            "there is no program no-such-program here",
        ),
        (("output=/proc/nowhere/campaign",), "cannot be written"),
    ],
)
def test_plan_refuses_what_run_would_refuse_with_the_same_sentence_and_exit_code(words, sentence):
    ran = typed("run", *words)
    assert (ran.returncode, ran.stdout) == (2, "")
    planned = typed("plan", "--json", *words)
    assert planned.returncode == ran.returncode
    refused = json.loads(planned.stdout)["refused"][0] if planned.stdout else planned.stderr
    for answer in (ran.stderr, refused):
        assert sentence in answer
    assert refused.strip().removeprefix("train-bench: ") == ran.stderr.strip().removeprefix("train-bench: ")


@pytest.mark.usefixtures("horovod_is_not_there")
def test_a_plan_for_another_machine_needs_no_launcher_here(tmp_path):
    words = ("launcher=horovod", "launcher.nodes=2", "launcher.hosts=[n1,n2]", "runs=1")
    planned = typed("plan", *words)
    assert planned.returncode == 2
    assert "-H n1:1,n2:1" in planned.stdout
    assert "Here, run would refuse this: launcher=horovod needs Horovod" in planned.stdout
    ran = typed("run", *words, f"output={tmp_path / 'c'}")
    assert (ran.returncode, ran.stdout, (tmp_path / "c").exists()) == (2, "", False)
    assert "launcher=horovod needs Horovod" in ran.stderr


@pytest.mark.parametrize("words", [("launcher.gres=gpu:8",), ("launcher.extra=['--gpus-per-node=8']",)])
def test_gpus_of_a_queue_are_requested_in_either_way(words):
    planned = make(*slurm("device=cuda", *words))
    batch = Campaign.of(planned).queue
    assert batch.refuse_job(planned.jobs[0]) is None


def test_a_plan_that_run_would_begin_has_nothing_to_refuse():
    planned = typed("plan", "--json", "runs=1")
    assert planned.returncode == 0
    assert json.loads(planned.stdout)["refused"] == []


@pytest.mark.full
def test_data_that_need_a_source_are_known_by_the_preparation_that_refuses_to_go_without(tmp_path):
    draws_first = {"dlrm_dcnv2"}  # gigabytes, before it asks
    for variant in set(discover.variants()) - discover.points().keys() - draws_first:
        values = discover.values(variant)
        config = cattrs.structure(values, discover.reference_config(values["reference"]))
        if config.distributed_data() is not None:
            with pytest.raises(RequestError):
                discover.prepare(values["reference"])(config, tmp_path / variant, None)
        elif getattr(config, "data", None) is not None and hasattr(config.data, "origin"):
            assert config.data.origin in config.GENERATES
