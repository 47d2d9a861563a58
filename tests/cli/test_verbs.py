"""The verbs that run nothing."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.command_line import in_the_foreground, train_bench, typed, wait_for
from tests.fake_campaigns import Diary, FakeLauncher, begin, make, run_all
from tests.sandbox import ROOT
from train_bench.plan import discover
from train_bench.task import MANIFEST


def ended(folder, **behaviours):
    """The plan of a campaign that has run there."""
    plan = make(f"output={folder / 'campaign'}", "seed=1")
    begin(plan)
    run_all(plan, FakeLauncher(**behaviours), Diary(), retry_failed=False)
    return plan


@pytest.fixture(scope="module")
def converged(tmp_path_factory):
    """A campaign whose runs have all reached the target."""
    return ended(tmp_path_factory.mktemp("converged"))


@pytest.fixture(scope="module")
def missed(tmp_path_factory):
    """One whose second run has not."""
    return ended(tmp_path_factory.mktemp("missed"), run_1="miss")


def test_list_names_every_benchmark_and_launcher():
    answer = typed("list")
    assert answer.returncode == 0
    benchmarks = [name for name in discover.variants() if name not in discover.points()]
    for name in (*benchmarks, *discover.launchers()):
        assert name in answer.stdout


def test_list_says_what_is_the_default_how_large_it_is_and_whether_its_data_are_ready(tmp_path):
    (tmp_path / "train_bench" / "resnet_mini").mkdir(parents=True)
    (tmp_path / "train_bench" / "resnet_mini" / MANIFEST).touch()
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "train_bench", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, env=env).stdout.splitlines()
    listed = {line.split()[0]: line for line in lines if line}
    for part in ("default", " seconds ", " ready "):
        assert part in listed["resnet_mini"]
    assert "ready" not in listed["ssd_mini"]
    assert "default" in listed["inline"]
    names = ("mini", "resnet_mini", "small", "resnet_cifar10", "midi", "resnet_midi", "full", "resnet")
    places = [lines.index(listed[name]) for name in names]
    assert places == sorted(places)


def test_list_tells_what_a_run_took_in_the_campaigns_of_this_folder_and_else_what_two_cores_take(tmp_path):
    def campaign_of(name, *, minutes, converged=True, changes=()):
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        plan = {"variant": name.partition("_")[2], "changes": list(changes)}
        (folder / "plan.json").write_text(json.dumps(plan))
        runs = [{"converged": converged, "minutes": one} for one in minutes]
        (folder / "score.json").write_text(json.dumps({"runs": runs}))

    campaign_of("20260101_resnet_mini", minutes=[9])
    campaign_of("20260102_resnet_mini", minutes=[0.1, 0.2, 0.4])
    campaign_of("20260103_resnet_mini", minutes=[0.3], converged=False)
    campaign_of("20260104_resnet_mini", minutes=[0.3], changes=["hyperparameters.global_batch_size"])
    campaign_of("20260101_ssd_bccd", minutes=[7.123])
    (tmp_path / "results" / "20260105_dlrm_mini").mkdir()
    (tmp_path / "results" / "20260105_dlrm_mini" / "score.json").write_text("no JSON")
    command = [sys.executable, "-m", "train_bench", "list"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    lines = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path).stdout.splitlines()
    listed = {line.split()[0]: line for line in lines if line}
    assert " a run " in listed["mini"]
    assert " 12 s " in listed["resnet_mini"]
    assert " 7.12 min " in listed["ssd_bccd"]
    assert " seconds " in listed["dlrm_mini"]
    assert " min " not in listed["resnet_mini_lars"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_list_fits_a_terminal_and_cuts_no_name(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    lines = typed("list").stdout.splitlines()
    assert max(map(len, lines)) <= width
    names = {line.split()[0] for line in lines if line}
    benchmarks = {name for name in discover.variants() if name not in discover.points()}
    assert benchmarks | {*discover.launchers()} <= names


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["midi"], {"bert_midi", "llama31_8b_midi", "resnet_midi"}),
        (["mini", "dlrm"], {"dlrm_mini", "dlrm_dcnv2_mini"}),
        (["unet3d"], {"unet3d", "unet3d_mini", "unet3d_hippocampus"}),
        (["torchrun"], {"torchrun"}),
    ],
)
def test_a_list_of_words_has_what_these_name(words, names):
    listed = json.loads(typed("list", *words, "--json").stdout)
    assert {one["name"] for one in (*listed["benchmarks"], *listed["launchers"])} == names


def test_a_list_of_a_name_that_does_not_exist_names_the_nearest():
    answer = typed("list", "rennet")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Did you mean 'resnet'?" in answer.stderr and "train-bench list" in answer.stderr


@pytest.mark.full
def test_data_with_a_manifest_are_ready_in_the_list_and_prepared_in_a_plan(tmp_path):
    folder = tmp_path / "train_bench" / "ssd_mini"
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}

    def printed(*words):
        command = [sys.executable, "-m", "train_bench", *words]
        lines = subprocess.run(command, capture_output=True, text=True, env=env).stdout.splitlines()
        return next(line for line in lines if line.startswith("ssd_mini  ") or str(folder) in line)

    assert " ready " not in printed("list")
    assert "(not prepared)" in printed("plan", "benchmark=ssd_mini")
    folder.mkdir(parents=True)
    (folder / MANIFEST).touch()
    assert " ready " in printed("list")
    assert "(prepared)" in printed("plan", "benchmark=ssd_mini")


def test_in_a_pipe_no_key_of_the_rules_is_broken_in_two_and_nothing_has_a_colour():
    arguments = ("rules", "benchmark=resnet", "ruleset=1.1.0")
    answer = train_bench(*arguments)
    begins = {line.split()[0] for line in answer.stdout.splitlines() if line.strip()}
    assert {key["key"] for key in json.loads(typed(*arguments, "--json").stdout)["keys"]} <= begins
    assert "\x1b" not in answer.stdout


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["judge", "--help"]])
def test_light_verbs_start_without_torch_and_hydra(arguments):
    code = (
        f"import sys; sys.argv = ['train-bench', *{arguments!r}]\n"
        "from train_bench.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print(sorted({'torch', 'hydra', 'numpy', 'mlperf_logging', 'jinja2'} & set(sys.modules)))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_judging_a_campaign_imports_no_torch(converged):
    folder = str(converged.jobs[0].folder)
    code = (
        "import sys, pathlib\nfrom train_bench.judge.tree import judge_folder\n"
        f"judge_folder(pathlib.Path({folder!r}), ruleset_name=None, rcp_folders=[pathlib.Path('/nowhere')])\n"
        "print(sorted({'torch', 'hydra', 'mlperf_logging'} & set(sys.modules)))\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_plan_prints_the_decided_values_and_the_command_of_every_run_and_writes_nothing(tmp_path):
    answer = typed(
        "plan", "runs=2", f"output={tmp_path / 'out'}", "launcher=torchrun", "launcher.nproc_per_node=2"
    )
    assert answer.returncode == 0, answer.stderr
    *_, first, second = answer.stdout.splitlines()
    assert first.endswith(f"train_bench.run.rank {tmp_path / 'out'}/plan.json 0")
    assert second.endswith("1")
    assert "--nproc-per-node=2" in first
    for fact in (
        "top1 >= 0.73",
        "2; a result needs 5",
        "2 rank(s) x 32 samples",
        "unknown (the first campaign of its kind",
    ):
        assert fact in answer.stdout
    assert list(tmp_path.iterdir()) == []


def test_plan_prints_one_object_for_programs():
    (decided,) = json.loads(typed("plan", "--json", "seed=1").stdout)["plans"]
    assert (decided["benchmark"], decided["world_size"], decided["runs_required"]) == ("resnet_mini", 1, 5)
    assert [job["index"] for job in decided["jobs"]] == list(range(5))
    assert decided["commands"][4].endswith("plan.json 4")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [([], "about 12 s a run, as in"), (["device=cpu"], "unknown (the first campaign")],
)
def test_plan_tells_how_long_a_campaign_like_it_took(begun, monkeypatch, overrides, said):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    folder = begun.jobs[0].folder
    runs = [{"converged": True, "minutes": 0.2}, {"converged": True, "minutes": 0.1}, {"converged": False}]
    (folder / "score.json").write_text(json.dumps({"runs": [*runs, {"converged": True, "minutes": 9}]}))
    same = "benchmark.threads_per_rank=null"  # the campaign was planned without a number of threads
    answer = typed("plan", same, f"output={folder.parent / 'next'}", *overrides)
    assert said in answer.stdout


def test_run_is_a_hydra_application():
    answer = typed("run", "--cfg", "job", "runs=3")
    assert answer.returncode == 0
    assert "runs: 3" in answer.stdout
    assert typed("run", "--help").returncode == 0


@pytest.mark.full
def test_a_sweep_goes_on_after_a_wrong_job(tmp_path):
    answer = train_bench("plan", "-m", "runs=0,1", f"output={tmp_path / 'sweep'}")
    assert answer.returncode == 1
    assert "runs=0" in answer.stderr
    assert "plan.json 0" in answer.stdout


@pytest.mark.parametrize("verb", ["judge", "score"])
def test_json_is_one_object_and_nothing_else(missed, verb):
    answer = typed(verb, str(missed.jobs[0].folder), "--json")
    (entry,) = json.loads(answer.stdout)["entries"]
    assert (answer.returncode, entry["valid"]) == (1, False)
    assert answer.stderr == "train-bench: exit code 1: 1 of 1 result(s) are not valid.\n"
    demanded = {
        *("benchmark", "variant", "ruleset", "launcher", "world_size", "seeds", "runs", "olympic_minutes"),
        *("stdev_minutes", "ci95_minutes", "rcp", "score_minutes", "valid", "reasons"),
    }
    assert demanded <= set(entry)
    assert {"verdict", "message", "factor", "mean", "bound"} <= set(entry["rcp"])
    of_a_run = {
        "index",
        "seed",
        "status",
        "minutes",
        "quality",
        "convergence",
        "samples_per_second",
        "dropped",
    }
    assert of_a_run <= set(entry["runs"][0])
    assert len(entry["runs"]) == 5


def test_score_says_the_same_in_words(converged):
    answer = typed("score", str(converged.jobs[0].folder))
    assert "olympic mean" in answer.stdout
    assert "95 % confidence interval" in answer.stdout
    assert "seeds: fixed" in answer.stdout
    assert answer.stdout.count("dropped") == 2


def test_documented_fields_are_those_of_the_score(missed):
    folder = missed.jobs[0].folder
    (entry,) = json.loads(typed("judge", str(folder), "--json").stdout)["entries"]
    (scored,) = json.loads(typed("score", str(folder), "--json", "--summary").stdout)["entries"]
    (finding,) = entry["runs"][1]["findings"][:1]
    documented = (discover.ROOT / "docs" / "json.md").read_text()
    for field in (*entry, *scored, *entry["runs"][0], *entry["rcp"], *entry["official_verdict"], *finding):
        assert f"`{field}`" in documented, field


def test_the_results_of_a_tree_are_one_table_in_three_formats(converged):
    above = str(converged.jobs[0].folder.parent)
    lines = typed("score", above, "--csv").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("submitter,system,benchmark,ruleset")
    assert lines[1].startswith("local,fake,resnet_mini,mini-1.0,closed,5/5,")
    assert typed("score", above, "--markdown").stdout.startswith("| submitter | system |")
    scored = json.loads(typed("score", above, "--json", "--summary").stdout)
    assert scored["summary"]["value"] == pytest.approx(scored["entries"][0]["score_minutes"])
    assert "custom summary" in typed("score", above, "--summary").stdout


def test_results_are_normalised_to_reference_results(converged, tmp_path):
    reference = tmp_path / "reference.json"
    reference.write_text(json.dumps({converged.benchmark: 10}))
    arguments = ["score", str(converged.jobs[0].folder), "--json", "--reference-results", str(reference)]
    (entry,) = json.loads(typed(*arguments).stdout)["entries"]
    assert entry["normalised"] == pytest.approx(10 / entry["score_minutes"])


def test_rules_say_what_a_round_allows():
    allowed = json.loads(typed("rules", "benchmark=resnet", "ruleset=1.1.0", "--json").stdout)
    assert (allowed["runs"], allowed["drop"], allowed["target"]) == (5, 1, "top1 >= 0.759")
    keys = {key["key"]: key for key in allowed["keys"]}
    assert keys["lars_opt_end_learning_rate"]["constraints"] == ["only 0.0001"]
    assert keys["lars_opt_base_learning_rate"]["reference"] == 8.5
    assert allowed["reference_points"][0]["batch_size"] == 1632
    documented = (discover.ROOT / "docs" / "json.md").read_text()
    for field in (*allowed, *keys["seed" if "seed" in keys else "opt_name"], *allowed["reference_points"][0]):
        assert f"`{field}`" in documented, field
    printed = typed("rules", "benchmark=bert", "ruleset=2.1.0").stdout
    assert "opt_lamb_epsilon" in printed
    assert "erratum lamb-epsilon-renamed" in printed


@pytest.mark.full
def test_an_interrupted_campaign_says_how_to_go_on(tmp_path):
    """SIGINT to the program, as Ctrl-C sends it."""
    folder = tmp_path / "campaign"
    arguments = ["run", "seed=1", f"output={folder}"]
    command = [sys.executable, "-m", "train_bench", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, preexec_fn=in_the_foreground, **pipes) as process:
        wait_for(lambda: (folder / "result_0.txt.part").exists())
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=400)
    assert process.returncode == 1
    assert stderr == (
        "train-bench: Interrupted; 0 of 5 runs are finished and stay. Continue with: "
        f"train-bench run resume={folder}\n"
    )
    assert not list(folder.glob("result_*.txt"))
