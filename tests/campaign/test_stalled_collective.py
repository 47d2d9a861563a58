"""The collective that ranks waited in, and the ranks that have not joined it."""

import json

import pytest

from tests.run.fakes import job
from train_bench.campaign import failures, stalled_collective
from train_bench.core.collective_records import KEPT, KEYS, record_file
from train_bench.launchers.inline.config import Config
from train_bench.launchers.inline.start import Launcher
from train_bench.plan.process import Ended

# An entry of `_dump_fr_trace_json` of torch 2.15, Gloo.
ENTRY = {
    "collective_seq_id": 3,
    "input_dtypes": ["Float"],
    "input_sizes": [[7, 2]],
    "is_p2p": False,
    "op_id": 3,
    "process_group": ["0", "default_pg"],
    "profiling_name": "gloo:all_reduce",
    "record_id": 2,
    "retired": False,
    "state": "scheduled",
    "thread_name": "python",
    "timeout_ms": 8000,
}


def entries(until, **changes):
    """Collectives of one rank up to a number, the last of which has not ended."""
    return [
        {
            key: (ENTRY | {"collective_seq_id": number, "retired": number < until} | changes)[key]
            for key in KEYS
        }
        for number in range(1, until + 1)
    ]


def ended(count):
    return [one | {"retired": True} for one in entries(count)]


def write(one, ranks, backend="gloo"):
    one.ranks_folder.mkdir(parents=True, exist_ok=True)
    for rank, recorded in ranks.items():
        record_file(one, rank).write_text(json.dumps({backend: recorded}))
    return one


@pytest.fixture
def four(tmp_path):
    return job(tmp_path, nproc_per_node=4)


def test_the_rank_that_has_not_joined_is_named_with_the_collective(four):
    write(four, {0: entries(3), 1: ended(2), 2: entries(3), 3: entries(3)})
    assert stalled_collective.sentence(four) == (
        "ranks 0, 2, 3 waited in collective 3 of default_pg (gloo:all_reduce of 7x2 Float); rank 1 has not joined it."
    )


def test_a_rank_that_left_no_record_is_named(four):
    write(four, {0: entries(3), 1: entries(3), 2: entries(3)})
    assert stalled_collective.sentence(four).endswith("; nothing is known of rank 3.")


def test_ranks_in_different_collectives_are_told_apart(four):
    other = entries(3, profiling_name="gloo:broadcast")
    write(four, {0: entries(3), 1: other, 2: entries(3), 3: entries(3)})
    assert stalled_collective.sentence(four) == (
        "Ranks disagree in collective 3 of default_pg: rank 0 calls gloo:all_reduce of 7x2 Float, rank 1 calls "
        "gloo:broadcast of 7x2 Float."
    )


def test_collectives_that_nccl_runs_ahead_of_are_judged_by_the_first_that_has_not_ended(four):
    ahead = [one | {"retired": one["collective_seq_id"] < 4} for one in entries(9)]
    behind = [one | {"retired": False, "state": "completed"} for one in entries(3)]
    write(four, {0: ahead, 1: ahead, 2: ahead, 3: behind}, "nccl")
    assert "ranks 0, 1, 2 waited in collective 4 of default_pg" in stalled_collective.sentence(four)
    assert "rank 3 has not joined it" in stalled_collective.sentence(four)


def test_a_group_of_some_ranks_has_those_that_used_it(four):
    pair = {"process_group": ["3", "tensor"]}
    write(
        four,
        {
            0: entries(2, **pair),
            1: [one | {"retired": True} for one in entries(1, **pair)],
            2: ended(1),
            3: ended(1),
        },
    )
    assert stalled_collective.sentence(four).startswith("rank 0 waited in collective 2 of tensor")
    assert "rank 1 has not joined it." in stalled_collective.sentence(four)


def test_of_many_ranks_some_are_named(tmp_path):
    many = job(tmp_path, nproc_per_node=64)
    write(many, {rank: ended(2) if rank == 40 else entries(3) for rank in range(64)})
    assert stalled_collective.sentence(many).startswith("ranks 0, 1, 2, 3, 4, 5, 6, 7 and 55 more waited in")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gloo": 3}', '{"gloo": [{}]}'])
def test_a_damaged_record_is_none(four, text):
    write(four, {0: entries(3), 2: entries(3), 3: entries(3)})
    record_file(four, 1).write_text(text)
    assert "nothing is known of rank 1" in stalled_collective.sentence(four)


def test_nothing_is_said_without_records_or_where_all_have_joined(four):
    assert stalled_collective.sentence(four) is None
    write(four, {rank: entries(3) for rank in range(4)})
    assert stalled_collective.sentence(four) is None
    write(four, {rank: ended(3) for rank in range(4)})
    assert stalled_collective.sentence(four) is None


@pytest.mark.parametrize(
    ("error", "told"), [("waited in step for 9 s (stall_limit_seconds)", True), ("x", False)]
)
def test_a_run_that_ended_by_a_stall_says_where(four, error, told):
    write(four, {0: entries(3), 1: ended(2), 2: entries(3), 3: entries(3)})
    (four.ranks_folder / "rank_0.json").write_text(json.dumps({"state": "failed", "error": error}))
    found = failures.deaths(four, Launcher(Config()), Ended(exit_code=1, stderr=""), (), whole=False)
    assert str(found[0]) == f"rank 0 failed: {error}"
    assert any("rank 1 has not joined it" in str(death) for death in found) is told


def test_a_rank_writes_fewer_collectives_than_make_a_large_file():
    assert len(json.dumps(entries(KEPT))) < 2**17
