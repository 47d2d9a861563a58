"""Every starter says in its own words which rank a process is."""

import pytest

from train_bench.run.rank_environment import local_rank, rank_and_size


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, (1, 4, 1)),
        ({"HOROVOD_RANK": "3", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1"}, (3, 4, 1)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "3",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            },
            (2, 3, 0),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2, None)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}, (5, 8, 1)),
    ],
)
def test_a_starter_says_the_rank(environ, place):
    assert (*rank_and_size(environ), local_rank(environ)) == place


def test_what_was_started_inside_an_allocation_is_believed_before_the_allocation():
    allocation = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"}
    of_torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    assert rank_and_size(allocation | of_torchrun) == (1, 2)
    assert local_rank(allocation | of_torchrun) == 1


@pytest.mark.parametrize(
    "environ", [{}, {"RANK": "0"}, {"RANK": "", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}]
)
def test_what_is_said_by_half_or_makes_no_sense_is_not_said(environ):
    assert rank_and_size(environ) is None
    assert local_rank(environ) is None
