"""The table of a sweep says which job was faster."""

import io
from pathlib import Path

from rich.console import Console

from train_bench.report.sweep import show_sweep


def job(number, *, minutes, score=None, benchmark="resnet_mini"):
    runs = [{"minutes": value, "converged": True, "compliant": True} for value in minutes]
    judged = {
        "runs": runs,
        "runs_required": 5,
        "score_minutes": score,
        "benchmark": benchmark,
        "target": "top1 >= 0.9",
        "valid": score is not None,
        "reasons": [] if score else [f"Incomplete: {len(runs)} of 5 runs."],
    }
    return {
        "number": number,
        "overrides": [f"seed={number}"],
        "exit_code": 0 if score else 1,
        "score": judged,
    }


def shown(*jobs, **options):
    screen = io.StringIO()
    show_sweep(jobs, Path("out"), Console(file=screen, width=80), **options)
    return screen.getvalue()


def test_jobs_of_one_run_have_their_time_and_the_faster_is_named():
    text = shown(job(0, minutes=[0.3]), job(1, minutes=[0.2]))
    assert "1 of 5    0.3000" in text
    assert "1 of 5    0.2000" in text
    assert "job 1 was the fastest: 0.2000 min; job 0 took 1.50 times as long" in text
    assert "the mean of the runs that reached the target" in text


def test_a_score_is_the_time_of_a_job_that_has_one():
    text = shown(job(0, minutes=[1, 1, 1, 1, 9], score=1.0), job(1, minutes=[2, 2, 2, 2, 2], score=2.0))
    assert "job 0 was the fastest: 1.0000 min; job 1 took 2.00 times as long" in text
    assert "the mean of" not in text


def test_jobs_of_different_benchmarks_are_not_compared():
    assert "fastest" not in shown(job(0, minutes=[0.3]), job(1, minutes=[0.2], benchmark="ssd_mini"))


def test_a_job_without_a_run_that_reached_the_target_has_no_time():
    unfinished = job(0, minutes=[0.3])
    unfinished["score"]["runs"][0]["converged"] = False
    text = shown(unfinished, job(1, minutes=[0.2]))
    assert "1 of 5         -" in text
    assert "fastest" not in text


def test_jobs_that_ran_together_are_said_to_have_disturbed_each_other():
    assert "slow each other down" in shown(job(0, minutes=[0.3]), together=True)
    assert "slow each other down" not in shown(job(0, minutes=[0.3]))


def test_a_job_whose_runs_failed_is_not_called_the_fastest():
    lucky = job(0, minutes=[0.1, 0.2, 0.3])
    lucky["score"]["runs"][2]["converged"] = False
    text = " ".join(shown(lucky, job(1, minutes=[0.2, 0.3, 0.2])).split())
    assert "was the fastest" not in text
    assert "1 of 3 of job 0, so no job is called the fastest" in text
