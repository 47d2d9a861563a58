"""A dry run of the minis against real steps of them, counted and measured in other ways."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tests.dry_run.measured import (
    MINIS,
    counted,
    dry,
    dry_mini,
    local_batch,
    lstm_flop,
    mini,
    peak_of,
    task_of,
)
from tests.selection import others_in_full
from train_bench.core.job import Device, Precision
from train_bench.dry_run.batch import grown, tensors_of
from train_bench.dry_run.step import step_of
from train_bench.dry_run.watch import OUTSIDE, Watch, part_of
from train_bench.plan import discover
from train_bench.references.parts.recommendation.tables import place


@pytest.mark.parametrize("name", others_in_full(MINIS, ["llama31_8b_mini", "resnet_mini"]))
def test_flop_are_those_that_torch_counts_in_a_real_step(name):
    config, step = mini(name), dry_mini(name)
    with task_of(config) as task:
        real = counted(task, step.samples).get_total_flops() / local_batch(config) / step.micro_batches
    if name == "rnnt_mini":
        real += 3 * lstm_flop(config)
    if name == "bert_mini":
        real -= scores_flop(config, config.data.sequence_length)
    if name == "llama31_8b_mini":
        real -= scores_flop(config, config.hyperparameters.max_sequence_length)
    if name == "llama2_70b_lora_mini":
        real -= scores_flop(config, config.data.sequence_length)
    if name == "flux1_mini":
        real -= joint_scores_flop(config.model)
    if name == "gpt_oss_20b_mini":
        real += mixture_flop(config)
    assert step.flop_per_sample == pytest.approx(real, rel=1e-12)


def scores_flop(config, length):
    """Of the scores that a CPU's attention computes again in a backward pass, which is no work of the model."""
    return 2 * config.model.layers * config.model.width * length**2


def joint_scores_flop(model):
    """Likewise, of text and image tokens together."""
    tokens = model.text_length + (model.latent_size // model.patch) ** 2
    return 2 * (model.double_blocks + model.single_blocks) * model.width * tokens**2


def mixture_flop(config):
    """Of the products of experts, which torch's counter leaves out, less those of scores that are computed again: in
    blocks of a window in one half of the layers."""
    model, length = config.model, config.hyperparameters.max_sequence_length
    experts = 3 * 2 * length * model.experts_per_token * 3 * model.width * model.intermediate
    blocks = -(-length // model.window)
    pairs = (2 * blocks * model.window**2 + length**2) / 2
    return model.layers * (experts - 2 * model.heads * model.head_size * pairs)


@pytest.mark.full
def test_dense_parts_of_mask_rcnn_are_those_of_its_real_forward_pass():
    config = mini("maskrcnn_mini")
    step = dry(config)
    with task_of(config) as task, torch.no_grad():
        network, batch = task.model.network, task.synthetic(2)
        counter = FlopCounterMode(display=False)
        with counter:
            network.rpn(network.fpn(network.backbone(batch.images)))
    forward = sum(step.flop[f"network.{part}"][0] for part in ("backbone", "fpn", "rpn"))
    assert forward == pytest.approx(counter.get_total_flops() / 2, rel=1e-12)


@pytest.mark.parametrize("name", others_in_full(MINIS, ["llama31_8b_mini", "resnet_mini"]))
def test_the_peak_is_within_a_tenth_of_what_the_allocator_gives_out(name):
    config, step = mini(name), dry_mini(name)
    assert sum(step.peak.values()) == pytest.approx(peak_of(config, step.samples), rel=0.1)


@pytest.mark.parametrize("name", others_in_full(MINIS, ["llama31_8b_mini", "resnet_mini"]))
def test_memory_that_steps_keep_is_that_of_real_tensors(name):
    config, step = mini(name), dry_mini(name)
    with task_of(config) as task:
        model, optimizer = task.model, task.optimizer
        task.iterate(task.synthetic(step.samples))
        weights = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values()
        state = [value for each in optimizer.state.values() for value in each.values()]
        trainable = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        batch = list(tensors_of(task.synthetic(step.samples)))
    assert step.trainable == trainable
    assert step.memory["weights"] == size(weights)
    assert step.memory["optimizer"] == size(value for value in state if isinstance(value, torch.Tensor))
    assert step.memory["inputs"] == size(batch)


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize("name", others_in_full(MINIS, ["llama31_8b_mini", "resnet_mini"]))
def test_a_batch_grows_from_two_small_ones_into_one_like_a_real_one(name):
    config = mini(name)
    with task_of(config) as task:
        real = list(tensors_of(task.synthetic(5)))
        made = list(tensors_of(grown(task.synthetic(1), task.synthetic(2), 5)))
    assert [(one.shape, one.dtype) for one in made] == [(one.shape, one.dtype) for one in real]


@pytest.mark.full
def test_micro_batches_beyond_the_second_change_no_memory_and_no_flop_of_a_sample():
    two, eight = (
        dry(mini("bert_mini", f"hyperparameters.global_batch_size={4 * parts}", accumulating(parts)))
        for parts in (2, 8)
    )
    assert (two.samples, two.micro_batches, eight.samples, eight.micro_batches) == (4, 2, 4, 8)
    assert (two.flop, two.memory, two.peak) == (eight.flop, eight.memory, eight.peak)


def accumulating(parts):
    return f"hyperparameters.gradient_accumulation_steps={parts}"


def test_with_accumulation_gradients_are_there_during_a_forward_pass():
    one, two = (
        dry(mini("resnet_mini", f"hyperparameters.global_batch_size={64 * parts}", accumulating(parts)))
        for parts in (1, 2)
    )
    more = sum(two.peak.values()) - sum(one.peak.values())
    assert 0 < more <= one.memory["gradients"]


def test_ranks_average_all_gradients_and_a_single_rank_none():
    one, four = (dry(mini("resnet_mini"), ranks=ranks) for ranks in (1, 4))
    assert (one.reduced, one.exchanged) == (0, 0)
    assert (four.reduced, four.exchanged) == (4 * four.trainable, 0)
    assert four.samples == one.samples // 4


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_of_dlrm_hold_some_tables_and_exchange_rows_of_the_others(ranks):
    config = mini("dlrm_mini")
    step = dry(config, ranks=ranks)
    with task_of(config) as task:
        tables = task.model.tables
        dense = sum(weight.numel() for weight in task.model.dense.parameters())
        own = max(
            place(config.model.rows, [1] * len(config.model.rows), ranks),
            key=lambda one: sum(config.model.rows[table] for table in one),
        )
        held = sum(tables.weights[str(table)].numel() for table in own)
    width, every, share = config.model.bottom[-1], len(config.model.rows), step.samples
    assert step.trainable == dense + held
    assert step.reduced == 4 * dense
    indices = 8 * share * every  # int64, each rank's to whoever has the table
    vectors = 4 * share * len(own) * width * ranks  # of the global batch, forward
    gradients = 4 * share * every * width
    assert step.exchanged == indices + vectors + gradients


@pytest.mark.full
def test_half_of_the_numerics_take_less_memory_between_the_passes():
    full, half = (dry(mini("bert_mini"), precision=one) for one in (Precision.fp32, Precision.bf16))
    assert half.memory["activations"] < full.memory["activations"]
    assert half.memory["weights"] == full.memory["weights"]
    assert half.flop_per_sample == full.flop_per_sample
    assert dry(mini("bert_mini"), precision=Precision.fp16).peak == half.peak


def test_attention_of_a_gpu_keeps_no_scores_and_computes_as_much():
    config = mini("bert_mini", "model.dropout=0.1")
    cpu, gpu = (dry(config, device=device) for device in (Device.cpu, Device.cuda))
    assert gpu.flop_per_sample == cpu.flop_per_sample
    model, length = config.model, config.data.sequence_length
    scores = 4 * cpu.samples * model.layers * model.heads * length**2
    assert cpu.memory["activations"] - gpu.memory["activations"] > scores


@pytest.mark.full
@pytest.mark.parametrize(
    ("device", "precision", "layout"),
    [
        (Device.cpu, Precision.fp32, torch.channels_last),
        (Device.cuda, Precision.fp32, torch.contiguous_format),
        (Device.cuda, Precision.bf16, torch.channels_last),
    ],
)
def test_images_lie_as_on_the_device_of_the_plan(device, precision, layout):
    built = []

    class Observed(discover.task("resnet")):
        def build(self, seed, parallel):
            super().build(seed, parallel)
            built.extend(weight for weight in self.model.parameters() if weight.ndim == 4)

    step_of(Observed, mini("resnet_mini"), ranks=1, device=device, precision=precision)
    assert all(weight.is_contiguous(memory_format=layout) for weight in built)
    assert built


def test_samples_that_are_shorter_take_fewer_flop():
    config = mini("bert_mini")
    step = dry(config, real_share=0.5)
    half = dry(composed_shorter(config))
    assert step.real_flop == pytest.approx(half.flop_per_sample, rel=1e-12)
    assert dry(config).real_flop is None


def composed_shorter(config):
    data = config.data
    return mini(
        "bert_mini",
        f"data.sequence_length={data.sequence_length // 2}",
        f"data.predictions={round(0.5 * data.predictions)}",
    )


def test_flop_of_a_convolution_are_in_the_closed_form():
    step = dry(mini("resnet_mini"))
    model, side = mini("resnet_mini").model, mini("resnet_mini").data.image_size
    out = side // model.stem_stride
    forward = 2 * out * out * model.stem_width * 3 * model.stem_kernel**2
    assert step.flop["conv0"] == (forward, forward)  # images have no gradient


def test_flop_of_a_bert_layer_are_in_the_closed_form():
    config = mini("bert_mini")
    shape, length = config.model, config.data.sequence_length
    dense = 4 * shape.width**2 + 2 * shape.width * shape.intermediate
    layer = 2 * length * dense + 2 * 2 * length**2 * shape.width
    assert dry(config).flop["layers"] == (shape.layers * layer, 2 * shape.layers * layer)


def test_every_row_that_dlrm_dcnv2_looks_up_has_a_gradient_until_the_update():
    config, step = mini("dlrm_dcnv2_mini"), dry_mini("dlrm_dcnv2_mini")
    model = config.model
    width = model.bottom[-1]
    dense = step.trainable - width * sum(model.table_rows)
    of_bags = sum(rows for rows in model.multi_hot if rows > 1)
    # A table's single row is a part of the gradient of the interaction's input.
    joined = 1 + len(model.table_rows)
    assert step.memory["gradients"] == 4 * (dense + step.samples * width * (of_bags + joined))


def test_flop_of_the_interaction_of_dlrm_are_in_the_closed_form():
    config = mini("dlrm_mini")
    shape, vectors = config.model, len(config.model.rows) + 1
    sizes = [shape.dense_features, *shape.bottom]
    wide = [shape.bottom[-1] + vectors * (vectors - 1) // 2, *shape.top]
    bottom, top = (sum(2 * a * b for a, b in pairwise(one)) for one in (sizes, wide))
    products = 2 * vectors * vectors * shape.bottom[-1]
    first = 2 * sizes[0] * sizes[1]  # dense features have no gradient
    forward, backward = bottom + top + products, 2 * (bottom + top) - first + products
    assert dry(config).flop["dense"] == (forward, backward)


def test_parts_are_the_outermost_modules_and_backward_passes_are_theirs():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 5), nn.Linear(5, 4)])
            self.other = nn.Sequential(nn.Linear(3, 4), nn.ReLU())

        def forward(self, x):
            left, right = self.one(x), self.other(x)
            for layer in self.two:
                left = layer(left)
            return left @ right.T

    model, watch = Model(), Watch()
    with watch:
        watch.follow(model)
        with watch.phase("forward"):
            loss = model(torch.zeros(2, 3)).sum()
        with watch.phase("backward"):
            loss.backward()
    assert watch.flop == {
        ("forward", "one"): 48,
        ("forward", "other"): 48,
        ("forward", "two"): 160,
        ("forward", OUTSIDE): 32,
        ("backward", "one"): 48,
        ("backward", "other"): 48,
        ("backward", "two"): 320,
        ("backward", OUTSIDE): 64,
    }
    assert part_of("layers.12") == "layers"
