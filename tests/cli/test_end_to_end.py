"""The main job on real data, through the command line, judged by us and by the official checker."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

from tests import needs
from tests.cli.judged_mini import checks_of, official_verdict
from tests.command_line import train_bench
from tests.judge.checks.test_cheats import OF_CHEATS, findings_of, judge
from tests.sandbox import ROOT
from train_bench.cli.commands import verify


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A run on one rank and one on two ranks of the default benchmark, and what was printed."""
    alone, together = (tmp_path_factory.mktemp(name) / "campaign" for name in ("alone", "together"))
    two = ("launcher=torchrun", "launcher.nproc_per_node=2")
    # Other tests want the cores, too.
    same = ("runs=1", "seed=1", "keep_weights=true", "launcher.threads_per_rank=1")
    return {
        "alone": (alone, train_bench("run", *same, f"output={alone}", timeout=280)),
        "together": (together, train_bench("run", *two, *same, f"output={together}", timeout=280)),
    }


@pytest.mark.full
@pytest.mark.parametrize("name", ["alone", "together"])
def test_a_run_reaches_the_target_and_only_the_number_of_runs_keeps_the_score_from_being_valid(
    campaign, name
):
    folder, answer = campaign[name]
    assert answer.returncode == 1, answer.stderr
    score = json.loads((folder / "score.json").read_text())
    assert score["reasons"] == ["Incomplete: 1 of 5 runs."]
    assert [run["status"] for run in score["runs"]] == ["success"]
    assert "run 0 (1 of 1): finished" in answer.stdout


@pytest.mark.full
def test_an_honest_campaign_has_no_finding(campaign):
    judged = judge(campaign["alone"][0])
    for grade in ("breaks", "review"):
        assert not findings_of(judged, grade=grade) & (OF_CHEATS - {"speed"}), (
            "speeds are those of a busy machine"
        )


@pytest.mark.full
@pytest.mark.parametrize("name", ["alone", "together"])
def test_the_official_checker_accepts_every_log_and_our_judge_agrees(campaign, name):
    folder, _ = campaign[name]
    (entry,) = json.loads(train_bench("judge", str(folder), "--json").stdout)["entries"]
    for run in entry["runs"]:
        assert official_verdict(folder / run["file"])
        assert run["compliant"]
        assert not checks_of(run)


@pytest.mark.full
def test_the_official_checker_refuses_a_log_that_misses_the_target(campaign, tmp_path):
    """So that its acceptance above means something."""
    folder, _ = campaign["alone"]
    text = (folder / "result_0.txt").read_text()
    spoilt = tmp_path / "result_0.txt"
    last = text.rindex('"eval_accuracy"')
    start = text.index('"value": ', last) + len('"value": ')
    spoilt.write_text(text[:start] + "0.5" + text[text.index(",", start) :])
    assert not official_verdict(spoilt)


@pytest.mark.full
def test_a_campaign_leaves_the_files_that_it_promises(campaign):
    for folder, _ in campaign.values():
        names = {path.name for path in folder.iterdir()}
        assert {"plan.json", "system.json", "result_0.txt", "record_0.json", "score.json", "ranks"} <= names
    folder, _ = campaign["together"]
    for rank in (0, 1):
        for kind in ("stdout", "stderr", "json"):
            assert (folder / "ranks" / "run_0" / f"rank_{rank}.{kind}").exists()


@pytest.mark.full
def test_kept_weights_have_the_logged_quality_on_another_number_of_ranks(campaign):
    folder, _ = campaign["together"]
    answer = train_bench("verify", str(folder), "launcher=inline", "launcher.threads_per_rank=1")
    assert answer.returncode == 0, answer.stderr
    assert "quality verified: 1 of 1 runs, on 1 rank(s) by inline" in answer.stdout
    assert "quality verified: 1 of 1 runs" in train_bench("score", str(folder)).stdout


@pytest.mark.full
@pytest.mark.parametrize("other", ["one value", "another run"])
def test_weights_that_are_not_those_of_the_run_are_refused(campaign, tmp_path, other, capsys):
    folder = shutil.copytree(campaign["alone"][0], tmp_path / "copy")
    kept = folder / "weights" / "run_0.safetensors"
    if other == "one value":
        content = bytearray(kept.read_bytes())
        content[-1] ^= 1
        kept.write_bytes(content)
    else:
        shutil.copy(campaign["together"][0] / "weights" / "run_0.safetensors", kept)
    assert verify.main([str(folder)]) == 2
    assert f"run_0.safetensors is not what {folder / 'result_0.txt'} names" in capsys.readouterr().err


@pytest.mark.full
def test_the_system_that_was_found_is_written_down(campaign):
    system = json.loads((campaign["alone"][0] / "system.json").read_text())
    assert system["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert system["cores"] >= 1


@pytest.mark.full
def test_ranks_print_nothing(campaign):
    for folder, _ in campaign.values():
        for path in (folder / "ranks").rglob("rank_*.std*"):
            assert path.read_text() == "", path


@pytest.mark.full
def test_time_to_train_is_samples_to_the_target_over_samples_per_second(campaign):
    score = json.loads((campaign["alone"][0] / "score.json").read_text())
    for run in score["runs"]:
        assert run["samples"] / run["samples_per_second"] == pytest.approx(run["minutes"] * 60)
        assert run["samples"] == run["convergence"] * 2691


@pytest.mark.full
def test_a_killed_rank_is_named_and_its_siblings_are_ended(tmp_path):
    """SIGKILL to rank 1 of 2 in the middle of training."""
    folder = tmp_path / "campaign"
    arguments = (
        "run",
        "launcher=torchrun",
        "launcher.nproc_per_node=2",
        "runs=2",
        "seed=1",
        f"output={folder}",
    )
    killer = [sys.executable, "-m", "tests.cli.kill_a_rank", str(folder), "1"]
    with subprocess.Popen(killer, cwd=ROOT) as process:
        answer = train_bench(*arguments)
    assert process.returncode == 0
    assert answer.returncode == 1
    assert "Run 0 (1 of 2) failed: rank 1 killed by SIGKILL" in answer.stderr
    (entry,) = json.loads(train_bench("judge", str(folder), "--json").stdout)["entries"]
    message = entry["runs"][0]["findings"][0]["message"]
    assert message.startswith(
        "The run's processes died: rank 1 killed by SIGKILL. The kernel sends SIGKILL where"
    )
    assert entry["runs"][0]["compliant"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason=needs.NO_GPU)
def test_a_bf16_campaign_on_a_gpu_is_valid(tmp_path):
    answer = train_bench("run", "device=cuda", "precision=bf16", "seed=1", f"output={tmp_path / 'gpu'}")
    assert answer.returncode == 0, answer.stdout + answer.stderr
