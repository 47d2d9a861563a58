"""Every value that a score lacks has a reason."""

import pytest

from tests.judge.campaigns import campaign
from train_bench.judge.tree import judge_folder

WITH_REASON = (
    *("olympic_minutes", "score_minutes", "rcp_factor_applied", "stdev_minutes", "ci95_minutes"),
    *("samples_to_target", "samples_per_second", "global_batch_size"),
)
OF_A_RUN = (
    *("minutes", "convergence", "samples", "samples_per_second", "quality", "seed", "processor_lost"),
    *("peak_host_bytes", "peak_device_bytes"),
)


def judged(folder, sources):
    score = judge_folder(
        campaign(folder, sources), ruleset_name="mini-1.0", rcp_folders=[folder / "none"]
    ).score
    return score.as_json()


@pytest.mark.parametrize(
    "sources",
    [
        ["good"] * 5,
        ["good"],
        ["good", "not_converged"],
        ["not_converged"] * 5,
        ["good", "died_at_once", "died_in_a_line", "not_converged", "bad_no_seed"],
    ],
    ids=" ".join,
)
def test_a_value_is_there_or_has_a_reason(tmp_path, sources):
    score = judged(tmp_path, sources)
    for content, names in [(score, WITH_REASON), *((run, OF_A_RUN) for run in score["runs"])]:
        missing = {name for name in names if content[name] is None}
        assert missing == set(content["null_reasons"]) - {"rcp.factor"}
        assert all(content["null_reasons"].values())
    assert (score["rcp"]["factor"] is None) == ("rcp.factor" in score["null_reasons"])


def test_the_reason_of_a_speed_is_what_the_log_lacks(tmp_path):
    campaign(tmp_path, ["good"] * 5)
    for file in tmp_path.glob("result_*.txt"):
        file.write_text(
            "".join(
                line
                for line in file.read_text().splitlines(keepends=True)
                if '"train_samples"' not in line and '"samples_per_epoch"' not in line
            )
        )
    score = judge_folder(tmp_path, ruleset_name="mini-1.0", rcp_folders=[tmp_path / "none"]).score.as_json()
    reason = score["null_reasons"]["samples_per_second"]
    assert reason == "result_1.txt: neither samples_per_epoch nor train_samples is logged as a number"
