"""One run of a mini benchmark on two ranks through the command line, and its two judges, ours and the official one."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from mlperf_logging.compliance_checker import mlp_compliance

from tests.command_line import train_bench
from train_bench.logs import log
from train_bench.rules import ruleset
from train_bench.serving import rounds


class OneRun(NamedTuple):
    """Of which reference, the folder of the campaign, and what the command answered."""

    reference: str
    folder: Path
    answer: subprocess.CompletedProcess[str]

    @property
    def log(self):
        return (self.folder / "result_0.txt").read_text()

    @property
    def counted(self):
        """What the score says of the run."""
        (run,) = json.loads((self.folder / "score.json").read_text())["runs"]
        return run


def one_run(reference, scratch, *overrides):
    """The run, with data that are prepared for it."""
    folder = scratch / "campaign"
    arguments = (
        f"benchmark={reference}_mini",
        "runs=1",
        "seed=1",
        "keep_weights=true",
        f"output={folder}",
        f"data_dir={scratch / 'data'}",
    )
    two = ("launcher=torchrun", "launcher.nproc_per_node=2", "launcher.threads_per_rank=1")
    return OneRun(reference, folder, train_bench("run", *arguments, *two, *overrides, timeout=580))


def checks_of(run):
    """Kinds of findings of a run, whatever else this machine does meanwhile."""
    return {finding["check"] for finding in run["findings"]} - {"processor_wait"}


def assert_both_judges_accept(run):
    """A single run converges and breaks no rule; only four more are missing for a score."""
    assert run.answer.returncode == 1, run.answer.stderr
    score = json.loads((run.folder / "score.json").read_text())
    assert score["reasons"] == ["Incomplete: 1 of 5 runs."]
    assert run.counted["status"] == "success"
    (entry,) = json.loads(train_bench("judge", str(run.folder), "--json").stdout)["entries"]
    assert not checks_of(entry["runs"][0])
    assert official_verdict(run.folder / "result_0.txt")


def assert_weights_are_verified(run):
    """What two ranks have kept has the logged quality on one."""
    answer = train_bench("verify", str(run.folder), "launcher=inline", timeout=300)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "quality verified: 1 of 1 runs, on 1 rank(s) by inline" in answer.stdout


def assert_weights_are_served(run):
    """Offline, with the quality of the log and under all rules but the one that asks for five runs."""
    if f"{run.reference}_mini" not in rounds.load(rounds.MINI_ROUND).models:
        return
    answer = train_bench(
        "serve", str(run.folder), "scenario=offline", "launcher=inline", "--json", timeout=500
    )
    assert answer.returncode == 1, answer.stdout + answer.stderr
    judged = json.loads(answer.stdout)
    findings = [*judged["findings"], *(one for test in judged["tests"] for one in test["findings"])]
    assert {one["check"] for one in findings if one["grade"] == "breaks"} == {"weights"}
    assert all(test["valid"] and test["loadgen"] in ("VALID", None) for test in judged["tests"])
    assert judged["scenarios"][0]["values"]["0"] > 0


def assert_the_official_judge_refuses(run, scratch, *, quality, metric="value"):
    """So that its acceptance means something: the log again, whose last evaluation has another quality."""
    place, end = last_quality(run.log, metric)
    spoilt = scratch / "result_0.txt"
    spoilt.write_text(f"{run.log[:place]}{quality}{run.log[end:]}")
    assert not official_verdict(spoilt)


def last_quality(text, metric="value"):
    """Where the last evaluation of a log has its quality: start and end."""
    place = text.index(f'"{metric}": ', text.rindex('"eval_accuracy"')) + len(f'"{metric}": ')
    return place, min(text.index(sign, place) for sign in ",}")


def official_verdict(path):
    """Whether the official compliance checker accepts a log under the mini rules of the benchmark that it names."""
    (event,) = (event for event in log.read(path).events if event.key == "submission_benchmark")
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.yaml")
        rules.write_text(ruleset.load("mini-1.0").benchmark(event.value).generated)
        mlp_compliance.enqueued_configs.clear()
        checker = mlp_compliance.make_checker("training", "1.1.0", quiet=True, werror=False)
        return mlp_compliance.main(str(path), str(rules), checker)[0]
