"""Every operator that a training step of a reference meets has a class."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.dry_run.measured import MINIS, mini, task_of
from train_bench.profile.classes import UNKNOWN, class_of


@pytest.mark.full
@pytest.mark.parametrize("name", MINIS)
def test_every_operator_of_a_reference_is_classified(name):
    torch.manual_seed(0)
    with task_of(mini(name)) as task:
        batch = task.synthetic(2)
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            task.iterate(batch)
    seen = {event.name for event in profiler.events()}
    assert {one for one in seen if class_of(one) == UNKNOWN} == set()
    assert len(seen) > 20


def test_every_operator_of_ranks_that_divide_weights_is_classified():
    import torch.distributed.fsdp  # which registers them

    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("fsdp::")]
    assert {one for one in names if class_of(one) == UNKNOWN} == set()
    assert "fsdp::chunk_cat" in names


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "matrix"),
        ("aten::_cudnn_attention_backward", "matrix"),
        ("aten::convolution_backward", "convolution"),
        ("aten::native_batch_norm_backward", "normalisation"),
        ("aten::mkldnn_rnn_layer_backward", "recurrent"),
        ("aten::embedding_dense_backward", "embedding and index"),
        ("aten::_log_softmax_backward_data", "reduction"),
        ("aten::relu_", "element-wise"),
        ("aten::threshold_backward", "element-wise"),
        ("aten::bernoulli_", "random"),
        ("aten::_foreach_addcdiv_", "optimizer"),
        ("aten::copy_", "data movement"),
        ("aten::_local_scalar_dense", "synchronisation"),
        ("aten::transpose", "views, allocation"),
        ("c10d::allreduce_", "communication"),
        ("gloo:all_reduce", "communication"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "framework"),
        ("Optimizer.step#SGD.step", "framework"),
        ("torch.distributed.ddp.reducer::copy_bucket_to_grad", "data movement"),
        ("AddmmBackward0", "framework"),
        ("DistributedDataParallel.forward", "framework"),
        ("_TransducerLossBackward", "own code"),
        ("aten::an_operator_of_tomorrow", UNKNOWN),
    ],
)
def test_an_operator_is_of_the_class_that_fathom_has_for_it(name, kind):
    assert class_of(name) == kind
