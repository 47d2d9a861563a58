"""RNN-T beside the published reference's own code: network, start weights, rate, order, masks, decoding and word error
rate. Its loss, optimizer and features are those of packages that are not installed here."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests import needs
from tests.references.configs import rnnt
from tests.references.published_code import V1_1, counts_agree, distributions_agree, export, importing
from train_bench.references.rnnt import data, decoding, features, quality, recipe
from train_bench.references.rnnt.config import Config
from train_bench.references.rnnt.model import RNNT, StackedLSTM

pytestmark = [needs.published, pytest.mark.filterwarnings("ignore")]
ABSENT = (
    *("mlperf", "apex", "librosa", "warprnnt_pytorch", "common.data.dali.data_loader", "common.text"),
    *("common.data.dali.pipeline", "common.data.text"),
)
PARTS = {
    "pre_rnn": "encoder.pre_rnn",
    "post_rnn": "encoder.post_rnn",
    "dec_rnn": "prediction.dec_rnn",
    "pred_embed": "prediction.embed",
    "joint_enc": "joint_enc",
    "joint_pred": "joint_pred",
    "joint_net": "joint_net.2",
}
SIZES = {
    "enc_n_hid": "encoder",
    "enc_pre_rnn_layers": "pre_rnn",
    "enc_post_rnn_layers": "post_rnn",
    "enc_stack_time_factor": "time_stack",
    "enc_dropout": "encoder_dropout",
    "pred_n_hid": "prediction",
    "pred_rnn_layers": "prediction_rnn",
    "pred_dropout": "prediction_dropout",
    "joint_n_hid": "joint",
    "joint_dropout": "joint_dropout",
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Modules of the reference by name."""
    folder = export("training", V1_1, "rnn_speech_recognition/pytorch", tmp_path_factory.mktemp("published"))
    names = ["rnnt.model", "rnnt.decoder", "rnnt.config", "common.optimizers", "common.metrics"]
    with importing(folder, *ABSENT) as load:
        found = {name.rpartition(".")[2]: load(name) for name in [*names, "common.data.features"]}
        yield SimpleNamespace(**found, sampler=load("common.data.dali.sampler"), folder=folder)


@pytest.fixture(scope="module")
def full() -> Config:
    """The configuration of the full benchmark."""
    return rnnt("rnnt")


@pytest.fixture(scope="module")
def sizes(published: Any) -> dict[str, Any]:
    """The reference's own configuration of its network."""
    whole = published.config.load(str(published.folder / "configs" / "baseline_v3-1023sp.yaml"))
    return dict(published.config.rnnt(whole))


def layers(ours: RNNT, theirs: nn.Module) -> list[tuple[nn.Module, list[nn.Parameter], list[nn.Parameter]]]:
    """Parameters of each part of both in the same order."""
    found = []
    for mine, other in PARTS.items():
        found.append(
            (
                ours.get_submodule(mine),
                list(ours.get_submodule(mine).parameters()),
                list(theirs.get_submodule(other).parameters()),
            )
        )
    return found


@pytest.fixture(scope="module")
def both(published: Any, full: Config, sizes: dict[str, Any]) -> tuple[RNNT, nn.Module]:
    """Both networks at full size without dropout, ours with the weights of the reference's."""
    torch.manual_seed(1)
    theirs = published.model.RNNT(n_classes=1024, **{**sizes, "weights_init_scale": 0.5}).eval()
    ours = RNNT(full.model, features=240, scale=0.5).eval()
    for _, mine, other in layers(ours, theirs):
        for weight, value in zip(mine, other, strict=True):
            weight.data.copy_(value.data)
    return ours, theirs


def test_sizes_are_those_of_the_references_file(full: Config, sizes: dict[str, Any]) -> None:
    assert {name: sizes[name] for name in SIZES} == {
        name: getattr(full.model, field) for name, field in SIZES.items()
    }


@pytest.mark.slow
def test_logits_and_gradients_are_the_references(both: tuple[RNNT, nn.Module]) -> None:
    ours, theirs = both
    generator = torch.Generator().manual_seed(2)
    sound, labels = torch.randn(7, 2, 240, generator=generator), torch.tensor([[3, 1022, 5], [7, 7, 0]])
    mine = ours(sound, labels)
    published, lengths = theirs(sound, torch.tensor([7, 5]), labels, torch.tensor([3, 2]))
    assert torch.allclose(mine, published, atol=1e-5) and lengths.tolist() == [4, 3]
    mine.square().mean().backward()
    published.square().mean().backward()
    for _, weights, others in layers(ours, theirs):
        for weight, other in zip(weights, others, strict=True):
            assert torch.allclose(weight.grad, other.grad, atol=1e-6)


@pytest.mark.slow
def test_start_weights_are_the_references(both: tuple[RNNT, nn.Module], full: Config) -> None:
    """Of each tensor: the forget gates' biases are equal, deviation and largest value agree within their error."""
    _, theirs = both
    torch.manual_seed(3)
    for part, weights, others in layers(RNNT(full.model, features=240, scale=0.5), theirs):
        for weight, other in zip(weights, others, strict=True):
            if isinstance(part, StackedLSTM) and weight.dim() == 1:
                assert torch.equal(weight.chunk(4)[1], other.chunk(4)[1])
            assert torch.isclose(weight.std(), other.std(), rtol=0.12)
            assert torch.isclose(weight.abs().max(), other.abs().max(), rtol=0.12)


def test_rates_are_the_references(published: Any) -> None:
    schedule = recipe.WarmUpHoldDecay(
        base=0.004, least=1e-5, factor=0.5, warmup_epochs=2, hold_epochs=3, steps_per_epoch=7
    )
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
    for step in range(7 * 20):
        published.optimizers.lr_policy(step + 1, step // 7 + 1, 0.004, optimizer, 7, 2, 3, 1e-5, 0.5)
        assert schedule(step) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)


def test_batches_are_drawn_as_by_the_reference(published: Any) -> None:
    """Which utterance of 23 is left out, and which batch comes first, of 3,000 epochs of four buckets."""
    durations = [(number * 7) % 23 + 1.0 for number in range(23)]
    files = {str(number): {"duration": one, "label": 0} for number, one in enumerate(durations)}
    sampler = published.sampler.BucketingSampler(4, 4, 1, 3000, np.random.default_rng(4))
    epochs = np.reshape([int(name) for name, _ in sampler.process_output_files(files)], (3000, 5, 4))
    rng = np.random.default_rng(5)
    lengths = np.array(durations)
    ours = [data.epoch_order(lengths, buckets=4, batch=4, kept=20, rng=rng) for _ in range(3000)]
    for seen in (
        lambda one: missing(one)[0],
        lambda one: round(lengths[one[0]].mean()),
        lambda one: int(one[2, 1]),
    ):
        assert counts_agree([seen(one) for one in ours], [seen(one) for one in epochs])


def missing(epoch: np.ndarray) -> list[int]:
    """Utterances of 23 that are not in an epoch."""
    return sorted({*range(23)} - {*epoch.flatten().tolist()})


def test_masks_are_drawn_as_by_the_reference(published: Any, full: Config) -> None:
    """Values set to 0 in 600 batches of ones of two lengths: how many channels and frames of each utterance are whole,
    and where the first masked frame is."""
    torch.manual_seed(6)
    rng, change = np.random.default_rng(7), published.features.SpecAugment(0, 2, 0, 20, 10, 0, 0.03)
    theirs, ours = [], []
    for _ in range(600):
        masked, _ = change.calculate_features(torch.ones(2, 80, 300), torch.tensor([300, 100]))
        theirs.append(whole(masked.transpose(1, 2)))
        mine = torch.ones(2, 300, 80)
        drawn = [features.draw_masks(count, 80, full.hyperparameters, rng) for count in (300, 100)]
        features.mask(mine, drawn)
        ours.append(whole(mine))
    for one, other in zip(zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        assert distributions_agree(list(one), list(other))


def whole(batch: torch.Tensor) -> list[float]:
    """Of (2, 300, 80) for each utterance: channels and frames that are not masked, and the first masked frame."""
    found = []
    for utterance in batch:
        frames = utterance.any(dim=1)
        found += [int(utterance.any(dim=0).sum()), int(frames.sum()), int(frames.float().argmin())]
    return found


def test_transcripts_are_decoded_as_by_the_reference(published: Any, both: tuple[RNNT, nn.Module]) -> None:
    """Of a small network whose blank is likely enough to come and go, with low limits."""
    torch.manual_seed(8)
    ours, theirs = small(published)
    sound = torch.randn(40, 5, 12)
    lengths = torch.tensor([20, 17, 9, 20, 3])
    decoder = published.decoder.RNNTGreedyDecoder(9, max_symbols_per_step=3, max_symbol_per_sample=25)
    expected = decoder.decode(theirs, sound, 2 * lengths)
    with torch.no_grad():
        got = decoding.greedy(ours, sound, lengths, symbols_per_frame=3, most_symbols=25)
    assert got == expected and len({len(one) for one in got}) > 1


def small(published: Any) -> tuple[RNNT, nn.Module]:
    """Both networks with nine labels and equal weights."""
    shape = rnnt(
        "rnnt_mini", "model.labels=9", "model.encoder_dropout=0.0", "model.prediction_dropout=0.0"
    ).model
    shape.joint_dropout = 0.0
    ours = RNNT(shape, features=12, scale=3.0).eval()
    theirs = published.model.RNNT(
        n_classes=10,
        in_feats=12,
        forget_gate_bias=1.0,
        **{name: getattr(shape, field) for name, field in SIZES.items()},
    ).eval()
    for _, mine, other in layers(ours, theirs):
        for weight, value in zip(mine, other, strict=True):
            value.data.copy_(weight.data)
    return ours, theirs


def test_word_errors_are_the_references(published: Any) -> None:
    rng = np.random.default_rng(9)
    said, heard = ([" ".join(rng.choice([*"abcd"], rng.integers(1, 9))) for _ in range(50)] for _ in range(2))
    pairs = [quality.word_errors(one, other) for one, other in zip(said, heard, strict=True)]
    _, errors, words = published.metrics.word_error_rate(heard, said)
    assert (sum(one for one, _ in pairs), sum(count for _, count in pairs)) == (errors, words)
