"""Pods know their place by the variables of their operator."""

import pytest

from train_bench.core import pod_variables


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"PET_NODE_RANK": "2", "RANK": "7"}, 2),
        ({"JOB_COMPLETION_INDEX": "1", "RANK": "7"}, 1),
        ({"RANK": "0"}, 0),
        ({"PET_NODE_RANK": "", "RANK": "3"}, 3),
        ({"RANK": "pod-3"}, None),
        ({}, None),
    ],
)
def test_a_pod_has_a_number(environ, rank):
    assert pod_variables.node_rank(environ) == rank


@pytest.mark.parametrize(
    ("environ", "wrong"),
    [
        ({"PET_NNODES": "2", "WORLD_SIZE": "9"}, None),
        ({"WORLD_SIZE": "2"}, None),  # pods of a PyTorchJob
        ({"WORLD_SIZE": "8"}, None),  # their processes
        ({"PET_NNODES": "1:4"}, None),
        ({}, None),
        ({"PET_NNODES": "8"}, "PET_NNODES is 8"),
        ({"PET_NNODES": "1"}, "PET_NNODES is 1"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE is 4"),
    ],
)
def test_their_number_is_that_of_the_plan(environ, wrong):
    said = pod_variables.refuse_size(environ, nodes=2, world_size=8)
    assert said is None if wrong is None else f"{wrong} in this pod, and the plan has 2 host(s)" in said
