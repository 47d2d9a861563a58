"""Peak memory of the ranks of a run: measured, gathered, logged, and said with the score."""

import json

import torch

from tests.judge.campaigns import campaign
from tests.references.one_rank import OneRank
from train_bench.judge.tree import judge_folder
from train_bench.report.score_table import summary
from train_bench.run import memory


class Ranks(OneRank):
    """Rank 0 of two; the other has told its peak."""

    size = 2

    def gather_objects(self, value):
        return [value, (7 * 10**9, value[1])]


def test_the_peak_of_this_process_holds_what_it_has_had():
    before, device = memory.peak_bytes(torch.device("cpu"))
    held = bytearray(b"x") * 3 * 10**8
    after, _ = memory.peak_bytes(torch.device("cpu"))
    assert device is None and before > 5 * 10**7
    assert after > len(held) and after < 10**11  # bytes, not pages or kilobytes


def test_of_a_gpu_the_peak_is_that_of_its_tensors(monkeypatch):
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: {1: 5}[device.index])
    assert memory.peak_bytes(torch.device("cuda", 1))[1] == 5


def test_rank_0_logs_the_peaks_of_all_and_no_other_rank_any():
    assert memory.gather(Ranks(), (1, None)) == {"host_bytes": [1, 7 * 10**9], "device_bytes": None}
    assert memory.gather(Ranks(), (1, 2)) == {"host_bytes": [1, 7 * 10**9], "device_bytes": [2, 2]}

    class Other(OneRank):
        def gather_objects(self, value):
            return None

    assert memory.gather(Other(), (1, None)) is None


def logged(tmp_path, value):
    """A campaign whose logs have this value of `peak_memory`, judged."""
    campaign(tmp_path, ["good"] * 5)
    line = {
        "namespace": "",
        "time_ms": 1_700_000_009_000,
        "event_type": "POINT_IN_TIME",
        "key": "peak_memory",
    }
    text = f":::MLLOG {json.dumps(line | {'value': value, 'metadata': {}})}\n"
    for log in tmp_path.glob("result_*.txt"):
        log.write_text(log.read_text() + text)
    return judge_folder(tmp_path, ruleset_name="mini-1.0", rcp_folders=[tmp_path / "none"]).score.as_json()


def test_a_score_says_the_largest_peak(tmp_path):
    score = logged(tmp_path, {"host_bytes": [5 * 10**8, 7 * 10**9], "device_bytes": [10**9, 34 * 10**9]})
    assert {run["peak_host_bytes"] for run in score["runs"]} == {7 * 10**9}
    assert "peak memory of a rank: 7 GB of its host, 34 GB of its GPU" in summary(score)


def test_without_a_gpu_or_a_line_no_more_is_said_than_is_known(tmp_path):
    score = logged(tmp_path, {"host_bytes": [5 * 10**8], "device_bytes": None})
    assert "peak memory of a rank: 0.5 GB of its host" in summary(score)
    for run in score["runs"]:
        run["peak_host_bytes"] = None
    assert not [line for line in summary(score) if "peak memory" in line]


def test_values_of_others_that_are_no_numbers_are_unknown(tmp_path):
    for value in (
        None,
        5,
        {"host_bytes": 5},
        {"host_bytes": ["x", 5]},
        {"host_bytes": [{}]},
        {"host_bytes": []},
    ):
        score = logged(tmp_path, value)
        assert {run["peak_host_bytes"] for run in score["runs"]} == {None}
