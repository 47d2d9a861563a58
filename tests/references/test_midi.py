"""Training steps of the benchmarks that are sized for a GPU, on the CPU: at their full width, with few samples."""

import pytest
import torch

from tests.dry_run.measured import task_of
from tests.references.configs import composed
from tests.references.tasks import weights

pytestmark = pytest.mark.full


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("resnet_midi", ()),
        ("bert_midi", ()),
        ("llama31_8b_midi", ("hyperparameters.max_sequence_length=16",)),
    ],
)
def test_steps_change_weights_and_leave_them_finite(name, short):
    few = ("warm_up_steps=0", "hyperparameters.global_batch_size=4", *short)
    with task_of(composed(name, *few)) as task:
        before = weights(task)
        for _ in range(3):
            task.iterate(task.synthetic(4))
        after = weights(task)
    assert all(torch.isfinite(tensor).all() for tensor in after)
    assert sum(not torch.equal(a, b) for a, b in zip(before, after, strict=True)) > len(after) / 2
