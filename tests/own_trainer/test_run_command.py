"""A program of somebody else's is a campaign like any other: run, followed, judged, resumed, compared."""

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import in_the_foreground, processes, wait_for
from tests.sandbox import ROOT
from tests.selection import others_in_full
from train_bench.cli import program
from train_bench.cli.exit_codes import guarded
from train_bench.observers.terminal import SWEEP_JOB

PROGRAM = ROOT / "tests" / "own_trainer" / "programs" / "by_hand.py"

RULES = """\
round: mini-1.0
benchmarks:
  waves:
    runs: 3
    unit: epoch
    target: {accuracy: {at_least: 0.9}}
    schedule: {name: every, first: [1], period: 1}
hyperparameters:
  learning_rate: {above: 0}
"""

VALUES = """\
# Waves of three kinds are told apart by whatever learns it.
defaults: [waves_schema, _self_]

benchmark: waves
reference: waves
ruleset: mini-1.0
train_samples: 100
eval_samples: 10
evaluation: {until: 9}
hyperparameters: {global_batch_size: 10, learning_rate: 0.1, widths: [4, 8]}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a benchmark of the user's own that has no code, and a home of its own."""
    (tmp_path / "waves" / "conf" / "benchmark").mkdir(parents=True)
    (tmp_path / "waves" / "rules.yaml").write_text(RULES)
    (tmp_path / "waves" / "conf" / "benchmark" / "waves.yaml").write_text(VALUES)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TRAIN_BENCH_PATH", str(tmp_path / "waves"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(SWEEP_JOB, "")  # a sweep in this process would leave it to those behind it
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def spelled(behaviour="converge", *words):
    """What a user types behind `command=`."""
    return shlex.join([sys.executable, "-S", str(PROGRAM), behaviour, *words])


def train_bench(verb, *words):
    """The command line as a user types it, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = guarded(lambda: program.command(verb)(words))
    return subprocess.CompletedProcess((verb, *words), code, out.getvalue(), err.getvalue())


def run(*words, command=None, output="out"):
    return train_bench(
        "run", "benchmark=waves", f"command={command or spelled()}", f"output={output}", *words
    )


def log_of(folder, index=0):
    return [
        json.loads(line.partition(":::MLLOG ")[2])
        for line in Path(folder, f"result_{index}.txt").read_text().splitlines()
        if ":::MLLOG " in line
    ]


def ends(folder, index=0):
    """The status of every `run_stop` of a log."""
    return [line["metadata"]["status"] for line in log_of(folder, index) if line["key"] == "run_stop"]


def no_process_is_left(place):
    return not any(str(place) in line for line in processes().values())


def test_a_program_of_somebody_elses_makes_a_valid_score(place):
    ran = run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "\nVALID" in ran.stdout
    assert "run 2 (3 of 3): finished, epoch 4" in ran.stdout, "the log is followed while it grows"
    seeds = {line["value"] for index in range(3) for line in log_of("out", index) if line["key"] == "seed"}
    assert len(seeds) == 3
    assert "The training program is the user's own." in ran.stdout
    assert "the training samples and their order" in ran.stdout
    for verb in ("score", "judge", "report"):
        told = train_bench(verb, "out", *(["--to", "page.html"] if verb == "report" else []))
        assert told.returncode == 0, told.stdout + told.stderr
    assert "The training program is the user" in Path("page.html").read_text()


@pytest.mark.full
def test_a_plan_holds_what_was_asked_of_the_program_and_what_can_be_known_of_it(place, monkeypatch):
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("HF_TOKEN", "hush")
    Path("my.yaml").write_text("width: 4\n")
    assert run("seed=7", command=spelled("converge", "--config=my.yaml", "{seed}")).returncode == 0
    plan = json.loads(Path("out", "plan.json").read_text())
    program = plan["software"]["program"]
    assert plan["shared"]["command"]["argv"][2:] == [str(PROGRAM), "converge", "--config=my.yaml", "{seed}"]
    assert set(program["files"]) == {str(PROGRAM), "my.yaml"}
    assert program["environment"]["OMP_PROC_BIND"] == "true"
    assert "hush" not in Path("out", "plan.json").read_text()
    assert program["interpreter"].startswith("Python 3")
    assert program["cwd"] == str(place / "work")
    told = train_bench(
        "plan",
        "benchmark=waves",
        "seed=7",
        f"command={spelled('converge', '{seed} {{x}}', '{learning_rate}')}",
    )
    assert told.returncode == 0, told.stderr
    assert f"converge '{plan['jobs'][2]['seed']} {{x}}' 0.1\n" in told.stdout
    assert "train_bench.own_trainer.command" in told.stdout


def test_a_command_may_follow_two_dashes_and_needs_no_quotes(place):
    words = ["benchmark=waves", "runs=1", "output=out", "--", *shlex.split(spelled()), "--flag", "x y"]
    assert program._carry_out(["run", *words]) == 1, "one run is no score"
    command = json.loads(Path("out/plan.json").read_text())["shared"]["command"]
    assert command["argv"][-2:] == ["--flag", "x y"]


def test_the_words_of_a_command_reach_the_program_as_they_were_typed(place):
    program = Path("tell.py")
    program.write_text("import sys; print(sys.argv[1:]); sys.stderr.write('enough\\n'); sys.exit(3)")
    words = [
        *(
            "a,b",
            "[1,2]",
            'say "hi"',
            "it's",
            "${{HOME}}",
            "$HOME",
            "back\\slash\\",
            "100%41",
            "x=1 y=2",
            "ä",
            "#;&|",
        ),
        *("line\nbreak", "run {run} of {{7}}", "{learning_rate}", "{widths}", "{log}"),
    ]
    ran = run("runs=1", command=shlex.join([sys.executable, str(program), *words]))
    assert ran.returncode == 1
    printed = Path("out/ranks/run_0/rank_0.stdout").read_text()
    due = [
        *words[:4],
        "${HOME}",
        *words[5:12],
        "run 0 of {7}",
        "0.1",
        "[4,8]",
        f"{place}/work/out/result_0.txt.part",
    ]
    assert printed == f"{due}\n"
    assert "rank 0 failed: its program ended with exit code 3: enough" in ran.stderr


@pytest.mark.full
def test_a_sweep_leaves_the_commas_of_a_command_alone(place):
    words = ["-m", "benchmark=waves", "benchmark.hyperparameters.learning_rate=0.1,0.2", "output=sweep"]
    ran = train_bench("run", *words, f"command={spelled('converge', 'a,b', '${{x}}')}", "runs=1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for job, rate in enumerate((0.1, 0.2)):
        plan = json.loads(Path("sweep", str(job), "plan.json").read_text())
        assert plan["shared"]["command"]["argv"][-2:] == ["a,b", "${{x}}"]
        assert {line["value"] for line in log_of(f"sweep/{job}") if line["key"] == "learning_rate"} == {rate}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["command="], "command= is empty; give a program"),
        (["command=python 'my.py"], "cannot be split into words: no closing quotation"),
        (["command=nowhere_to_be_found my.py"], "there is no such program here"),
        (["command=python my.py {sede}"], "names {sede}, which stands for nothing; known: data_dir, folder"),
        (["command=python -c 'print({})'"], "a brace in 'print({})' that encloses no name; write {{ and }}"),
        ([], "waves has no code; say what trains this benchmark, behind the options: -- python my.py"),
        (["command=true", "trust=true"], "trust=true is only for an existing campaign"),
        (["command=true", "stall_limit_seconds=0"], "stall_limit_seconds is 0; it has to be above 0"),
        (
            ["command=true", "benchmark.hyperparameters.learning_rate=0"],
            "learning_rate is 0; allowed: more than 0",
        ),
    ],
)
def test_what_cannot_be_started_is_refused_in_a_sentence_before_anything_is(place, words, sentence):
    ran = train_bench("run", "benchmark=waves", "output=out", *words)
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert sentence in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    assert not Path("out").exists()


FAULTS = [
    ("raise", "rank 0 failed: its program ended with exit code 1: ValueError: the data are not", ["aborted"]),
    ("killed", "rank 0 killed by SIGKILL", ["aborted"]),
    ("killed_in_a_line", "rank 0 killed by SIGKILL", ["aborted"]),
    ("leave", "rank 0 failed: its program ended with exit code 0 before run_stop", ["aborted"]),
    ("silent", "rank 0 failed: its program ended with exit code 0 and wrote no log; import Benchmark", []),
    ("twice", "rank 0 failed: its program logged 1 run_start and 2 run_stop", ["success", "success"]),
]


@pytest.mark.parametrize(("behaviour", "sentence", "statuses"), others_in_full(FAULTS, FAULTS[:2]))
def test_a_program_that_fails_leaves_one_log_and_one_sentence(place, behaviour, sentence, statuses):
    ran = run("runs=1", command=spelled(behaviour))
    assert ran.returncode == 1
    assert f"Run 0 (1 of 1) failed: {sentence}" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    assert ends("out") == statuses
    (death,) = json.loads(Path("out/record_0.json").read_text())["deaths"]
    assert death.startswith(sentence)
    told = json.loads(train_bench("judge", "out", "--json").stdout)
    (verdict,) = told.get("entries", [told])
    assert not any(found["check"] == "parse" for found in verdict["runs"][0]["findings"])


def test_a_program_that_crashes_behind_its_result_takes_nothing_away(place):
    ran = run(command=spelled("crash_behind"))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_run_that_misses_its_target_is_an_honest_slow_run(place):
    ran = run("runs=1", command=spelled("miss"))
    assert "failed" not in ran.stderr
    assert ends("out") == ["aborted"]


@pytest.mark.parametrize(
    "behaviour",
    [pytest.param("hang", marks=pytest.mark.full), pytest.param("hang_with_child", marks=pytest.mark.slow)],
)
def test_an_interrupt_ends_the_program_and_all_that_it_has_started(place, behaviour):
    words = ["run", "benchmark=waves", f"command={spelled(behaviour)}", "output=out"]
    argv = [sys.executable, "-m", "train_bench", *words]
    campaign = subprocess.Popen(
        argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, preexec_fn=in_the_foreground
    )
    wait_for(Path("out/hangs").exists)
    campaign.send_signal(signal.SIGINT)
    _, said = campaign.communicate(timeout=400)
    assert campaign.returncode == 1
    assert "Interrupted; 0 of 3 runs are finished and stay." in said
    assert '"aborted"' in Path("out/result_0.txt.part").read_text().splitlines()[-1]
    wait_for(lambda: no_process_is_left(place))


@pytest.mark.full
def test_when_what_watches_a_program_is_killed_the_program_ends_with_it(place):
    words = ["run", "benchmark=waves", f"command={spelled('hang_with_child')}", "output=out", "runs=1"]
    argv = [sys.executable, "-m", "train_bench", *words]
    campaign = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    wait_for(Path("out/hangs").exists)
    state = json.loads(Path("out/ranks/run_0/rank_0.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)
    _, said = campaign.communicate(timeout=400)
    assert "Run 0 (1 of 1) failed: rank 0 killed by SIGKILL" in said
    wait_for(lambda: no_process_is_left(place))


@pytest.mark.full
def test_a_silent_program_is_ended_by_the_limits_that_its_user_gives(place):
    ran = run("runs=1", "start_limit_seconds=3", command="sleep 100")
    assert "its program has not written a log line within 3 s (start_limit_seconds)" in ran.stderr
    ran = run("runs=1", "stall_limit_seconds=1", command=spelled("hang"), output="stalled")
    assert re.search(r"no heartbeat of rank 0 for [1-9]\d+ s \(stall_limit_seconds\)", ran.stderr)


@pytest.mark.full
def test_two_ranks_under_torchrun_are_told_their_place(place):
    two = ["launcher=torchrun", "launcher.nproc_per_node=2", "runs=1"]
    ran = run(*two)
    assert "failed" not in ran.stderr, ran.stderr
    assert ends("out") == ["success"]
    jobs = [json.loads(Path(f"out/ranks/run_0/job_{rank}.json").read_text()) for rank in (0, 1)]
    assert [(job["rank"], job["world_size"], job["local_rank"]) for job in jobs] == [(0, 2, 0), (1, 2, 1)]
    assert jobs[0]["log"] == jobs[1]["log"]
    assert "equal models on all ranks" in ran.stdout
    killed = run(*two, command=spelled("killed"), output="killed")
    assert "Run 0 (1 of 1) failed: rank 0 killed by SIGKILL" in killed.stderr
    assert ends("killed") == ["aborted"]
    assert no_process_is_left(place)


@pytest.mark.full
def test_a_campaign_goes_on_and_repeats_what_failed(place, monkeypatch):
    switch = Path("switch")
    program = Path("by_turns.sh")
    program.write_text(
        f'[ -e "{switch.absolute()}" ] && exec {spelled()}\ntouch "{switch.absolute()}"; exit 4\n'
    )
    ran = run(command="sh by_turns.sh")
    assert "Run 0 (1 of 3) failed: rank 0 failed: its program ended with exit code 4" in ran.stderr
    monkeypatch.chdir(place)
    resumed = train_bench("run", "resume=work/out", "retry_failed=true")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "This run had 2 attempts" in resumed.stdout


@pytest.mark.full
def test_a_program_that_changed_since_it_was_planned_is_no_result(place):
    program = Path("mine.py")
    program.write_text(PROGRAM.read_text())
    command = shlex.join([sys.executable, "-S", str(program), "converge"])
    assert run("runs=3", command=command).returncode == 0
    Path("out/result_2.txt").unlink()
    program.write_text(PROGRAM.read_text() + "# faster\n")
    resumed = train_bench("run", "resume=out")
    assert "this campaign continues with other content of mine.py than planned" in resumed.stderr
    assert resumed.returncode == 1


@pytest.mark.slow
def test_the_command_of_somebody_else_is_shown_and_not_carried_out(place, monkeypatch):
    assert run("runs=1").returncode == 1
    Path("out/result_0.txt").unlink()
    assert train_bench("run", "resume=out", "retry_failed=true").returncode == 1, "it is ours"
    Path("out/result_0.txt").unlink()
    plan = json.loads(Path("out/plan.json").read_text())
    plan["shared"]["command"]["argv"] = ["touch", str(place / "evil")]
    Path("out/plan.json").write_text(json.dumps(plan))
    refused = train_bench("run", "resume=out")
    assert refused.returncode == 2
    assert f"touch {place / 'evil'} (in {place / 'work'})" in refused.stderr
    assert "Add trust=true to allow it." in refused.stderr
    assert not (place / "evil").exists()
    train_bench("run", "resume=out", "trust=true")
    assert (place / "evil").exists()
    (place / "evil").unlink()
    train_bench("run", "resume=out", "retry_failed=true")
    assert (place / "evil").exists(), "what was trusted once is trusted"


@pytest.mark.full
def test_two_commands_take_turns_and_are_compared(place):
    other = f"command={shlex.quote(spelled('converge', 'a b', '{run}'))}"
    ran = run(f"against={other}")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    plan = json.loads(Path("out/b/plan.json").read_text())
    assert plan["shared"]["command"]["argv"][-2:] == ["a b", "{run}"]
    compared = train_bench("compare", "out")
    assert compared.returncode == 0, compared.stdout + compared.stderr


@pytest.mark.full
def test_results_are_packaged_with_the_files_that_the_command_names(place):
    program = Path("mine.py")
    program.write_text(PROGRAM.read_text())
    assert run(command=shlex.join([sys.executable, "-S", str(program), "converge"])).returncode == 0
    packed = train_bench("package", "out", "--to", "submission", "--force")
    assert packed.returncode in (0, 1), packed.stdout + packed.stderr
    (copied,) = Path("submission").rglob("program/mine.py")
    assert copied.read_text() == PROGRAM.read_text()
    program.write_text("")
    refused = train_bench("package", "out", "--to", "again")
    assert "its program ran with another mine.py than the current one" in refused.stderr
    judged = train_bench("judge", "submission", "--ruleset", "mini-1.0")
    assert "The training program is the user's own." in judged.stdout, (
        "what is not known is told of a package, too"
    )


@pytest.mark.full
def test_reference_points_are_made_of_commands_too(place):
    made = train_bench("rcp", "benchmark=waves", f"command={spelled()}", "output=reference")
    assert made.returncode == 0, made.stdout + made.stderr
    points = json.loads((place / "waves" / "rcp" / "mini-1.0" / "waves.json").read_text())
    assert "by_hand.py converge" in points["waves_ref_10"]["Platform"]
    assert run().returncode == 0


@pytest.mark.full
def test_what_needs_the_code_of_a_reference_says_so_of_a_benchmark_without(place):
    assert "waves" in train_bench("list").stdout
    for verb in ("check", "prepare"):
        told = train_bench(verb, "benchmark=waves")
        assert told.returncode == 2
        assert "waves has no code" in told.stderr
    told = train_bench("check", "benchmark=waves", f"command={spelled()}")
    assert "command= is for run, plan, rcp and forecast; leave it out." in told.stderr


def test_no_torch_is_imported_to_carry_a_program_out(place):
    blocked = place / "blocked"
    blocked.mkdir()
    (blocked / "torch.py").write_text("raise SystemExit('torch was imported')")
    environ = os.environ | {"PYTHONPATH": f"{blocked}:{ROOT}"}
    words = ["run", "benchmark=waves", f"command={spelled()}", "output=out", "runs=1"]
    argv = [sys.executable, "-m", "train_bench", *words]
    ran = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=400)
    assert "\nrun 0 (1 of 1): finished" in ran.stdout, ran.stdout + ran.stderr


def test_the_name_of_a_benchmark_whose_folder_is_here_is_refused_with_its_path(place, monkeypatch):
    monkeypatch.delenv("TRAIN_BENCH_PATH")
    (place / "waves").rename("digits")
    ran = train_bench("run", "benchmark=digits")
    assert ran.returncode == 2
    assert "There is no benchmark 'digits'. Did you mean benchmark=./digits, the folder here?" in ran.stderr
