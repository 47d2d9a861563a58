"""train-bench profile: a campaign's logs, a small benchmark, and what it refuses."""

import json

import pytest

from tests.command_line import train_bench
from tests.judge.campaigns import campaign
from tests.profile.test_verdict import profile as of_ranks
from tests.profile.test_verdict import rank
from train_bench.cli.commands import profile
from train_bench.cli.exit_codes import guarded


def test_results_are_told_by_their_logs_alone(tmp_path, capsys):
    campaign(tmp_path, ["good"])
    assert profile.main([str(tmp_path), "--ruleset", "mini-1.0"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("resnet_mini (1 run(s) of ")
    assert second.startswith("resnet_mini mini-1.0: ")
    profile.main([str(tmp_path), "--ruleset", "mini-1.0", "--json"])
    assert json.loads(capsys.readouterr().out)["of"] == "logs"


@pytest.mark.usefixtures("deepspeed_is_there")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "0"], "--steps is 0; it is at least 1."),
        (["--rounds", "1"], "--rounds is 1; it is at least 2."),
        (["--peak-tflops", "-1"], "--peak-tflops is -1; it is finite and above 0."),
        (
            ["benchmark=resnet_mini", "--bound", "--bricks"],
            "--bricks trains nothing that --bound could be compared",
        ),
        (["a", "--bricks"], "give overrides instead of paths"),
        (
            ["benchmark=resnet_mini", "launcher=torchrun", "launcher.shard=fsdp", "seed=1", "--bound"],
            "whole on every rank; leave launcher.shard out",
        ),
        (
            [
                *("benchmark=llama31_8b_mini", "seed=1", "launcher=torchrun"),
                *("launcher.nproc_per_node=2", "launcher.tensor_parallel=2"),
            ],
            "counts the operators of whole matrices; leave launcher.tensor_parallel out",
        ),
        (
            [
                *("benchmark=llama31_8b_mini", "seed=1", "launcher=deepspeed"),
                *("launcher.starter=torchrun", "launcher.zero_stage=3"),
            ],
            "shard of the optimizer's state, and every round of a profile begins with one; leave it out",
        ),
        (["results", "benchmark=resnet_mini"], "either paths of what is there or overrides"),
        (["a", "b", "c"], "a does not exist; give a folder"),
        (
            ["a", "b", "--to", "page.html"],
            "--to is 'page.html'; give a name that ends in .json, or with three",
        ),
        (["a", "b", "c", "--to", "page"], "--to is 'page'; give a name that ends in .json"),
        (["benchmark=resnet_mini", "--to", "page.html"], "with three profiles or more a page"),
        (["nowhere", "neither"], "nowhere does not exist; give a folder"),
        (["resume=nowhere"], "resume= is for run and rcp; leave it out."),
        (["command=ls"], "leave it out"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence_before_anything_is_started(
    arguments, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert guarded(lambda: profile.main(arguments)) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_benchmark_is_profiled_under_a_launcher_in_a_folder_of_its_own(tmp_path):
    few = ("--steps", "2", "--rounds", "2")
    ran = train_bench("profile", "benchmark=resnet_mini", *few, "output=made", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("resnet_mini ")
    made = json.loads((tmp_path / "made" / "profile.json").read_text())
    assert sum(row["share"] for row in made["waterfall"]) == pytest.approx(1)
    assert ran.stdout.splitlines()[0] == made["answer"]["sentence"]
    assert (tmp_path / "made" / "profile.html").stat().st_size > 100_000
    assert not list((tmp_path / "made").glob("result_*"))
    again = train_bench("profile", "made", "made", cwd=tmp_path)
    assert again.stdout.startswith("A step takes as long as before")


def test_three_profiles_stand_beside_each_other_in_the_terminal_and_on_a_page(tmp_path, capsys):
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path in paths:
        path.write_text(json.dumps(of_ranks(rank())))
    assert profile.main([*map(str, paths), "--to", str(tmp_path / "page.html")]) == 0
    assert "most similar are fake 1x1 and fake 1x1 #2" in capsys.readouterr().out
    assert (tmp_path / "page.html").stat().st_size > 100_000
    profile.main([*map(str, paths), "--json"])
    assert json.loads(capsys.readouterr().out)["of"] == "several"


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (lambda content: content.pop("window"), "window"),
        (lambda content: content.pop("bound"), "bound"),
        (lambda content: content["layers"][0].pop("window_backward_seconds"), "layers[0].window_backward_seconds"),
        (lambda content: content["operators"][1].update(name=None), "operators[1].name"),
        (lambda content: content.update(waterfall="none"), "waterfall"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_damaged_profile_is_refused_in_a_sentence(damage, field, number, tmp_path, capsys):
    content = json.loads(json.dumps(of_ranks(rank())))
    damage(content)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    assert guarded(lambda: profile.main([str(path)] * number)) != 0
    assert f"is damaged: its field {field} is missing or has the wrong type." in capsys.readouterr().err


def test_a_prediction_is_shown_again_and_not_compared(tmp_path, capsys):
    content = {
        "version": 1, "of": "bricks", "answer": {"sentence": "fake will take 2 s for a step"}, "step_seconds": 2.0,
        "phases": [{"name": "forward", "seconds": 2.0}], "unique": 3, "reused": 1, "memory_bytes": 4, "dearest": [],
        "not_measured": [],
    }  # fmt: skip
    (tmp_path / "profile.json").write_text(json.dumps(content))
    assert profile.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("fake will take 2 s for a step")
    assert guarded(lambda: profile.main([str(tmp_path)] * 2)) != 0
    assert (
        "is a prediction (--bricks), but only profiles of trained steps can be compared"
        in capsys.readouterr().err
    )
    del content["phases"]
    (tmp_path / "profile.json").write_text(json.dumps(content))
    assert guarded(lambda: profile.main([str(tmp_path)])) != 0
    assert "its field phases is missing" in capsys.readouterr().err


@pytest.mark.full
def test_a_step_is_predicted_without_data_and_what_its_bricks_take_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ("profile", "benchmark=resnet_mini", "--bricks", "output=made", "data_dir=nowhere")
    ran = train_bench(*words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Predicted time of a step of resnet_mini")
    assert json.loads((tmp_path / "made" / "profile.json").read_text())["of"] == "bricks"
    (kept,) = (tmp_path / "cache" / "train_bench" / "bricks").iterdir()
    assert len(json.loads(kept.read_text())["bricks"]) > 50
