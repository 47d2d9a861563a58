"""The transducer network: size, names, start weights, dropout; decoding, rates, averaged weights, clipping."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tests.references.configs import rnnt
from train_bench.errors import RequestError, UnknownName
from train_bench.references.parts.lamb import LAMB
from train_bench.references.rnnt import model as networks
from train_bench.references.rnnt.decoding import greedy
from train_bench.references.rnnt.model import RNNT, join_frames, joined_length, tensor_names
from train_bench.references.rnnt.recipe import follow, optimizer_of, schedule_of


@pytest.fixture(scope="module")
def full() -> RNNT:
    torch.manual_seed(0)
    return RNNT(rnnt("rnnt").model, features=240, scale=0.5)


def small(seed: int = 0, **sizes: float) -> RNNT:
    torch.manual_seed(seed)
    shape = rnnt(
        "rnnt",
        *("model.labels=5", "model.encoder=8", "model.prediction=6", "model.joint=7"),
        *(f"model.{name}={value}" for name, value in sizes.items()),
    ).model
    return RNNT(shape, features=4, scale=0.5)


def count(*parts: nn.Module) -> int:
    return sum(weight.numel() for part in parts for weight in part.parameters())


def test_the_full_network_has_49006080_parameters(full: RNNT) -> None:
    assert count(full.pre_rnn, full.post_rnn) == 42_967_040
    assert count(full.pred_embed, full.dec_rnn) == 4_726_272
    assert count(full.joint_enc, full.joint_pred, full.joint_net) == 1_312_768
    assert count(full) == 49_006_080


def test_the_full_network_initialises_the_seven_tensors_of_the_rules(full: RNNT) -> None:
    expected = ["pre_rnn", "post_rnn", "pred_embed", "dec_rnn", "joint_pred", "joint_enc", "joint_net"]
    assert sorted(tensor_names(full)) == sorted(expected)


@torch.no_grad()
def test_lstms_start_uniform_with_an_open_forget_gate_and_are_scaled(full: RNNT) -> None:
    for stack, units in ((full.pre_rnn, 1024), (full.post_rnn, 1024), (full.dec_rnn, 512)):
        bound = 0.5 / math.sqrt(units)
        for layer in stack.layers:
            forget = slice(units, 2 * units)
            assert bool((layer.bias_ih_l0[forget] == 0.5).all())
            assert not layer.bias_hh_l0[forget].any()
            for weight in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_hh_l0[:units]):
                assert 0.95 * bound < float(weight.abs().max()) <= bound
            assert float(layer.weight_hh_l0.std()) == pytest.approx(bound / math.sqrt(3), rel=0.01)


@torch.no_grad()
def test_only_lstms_are_scaled(full: RNNT) -> None:
    assert float(full.pred_embed.weight.std()) == pytest.approx(1.0, rel=0.01)
    assert float(full.joint_enc.weight.abs().max()) == pytest.approx(1 / math.sqrt(1024), rel=0.01)
    assert float(full.joint_net.weight.abs().max()) == pytest.approx(1 / math.sqrt(512), rel=0.01)


def test_neighbouring_frames_are_joined_and_the_last_is_filled_with_zeros() -> None:
    x = torch.arange(1.0, 11.0).view(5, 1, 2)
    joined = join_frames(x, 2)
    assert joined[:, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 0, 0]]
    assert joined_length(torch.tensor([5, 4, 1]), 2).tolist() == [3, 2, 1]


def test_logits_have_half_the_frames_and_one_more_label() -> None:
    assert small()(torch.randn(7, 3, 4), torch.zeros(3, 2, dtype=torch.int64)).shape == (3, 4, 3, 6)
    assert small()(torch.randn(7, 3, 4), torch.zeros(3, 0, dtype=torch.int64)).shape == (3, 4, 1, 6)


def test_the_first_prediction_knows_no_label_and_the_next_ones_those_before() -> None:
    network = small().eval()
    features = torch.randn(4, 1, 4)
    one, other = (network(features, torch.tensor([labels])) for labels in ([1, 2], [1, 3]))
    assert torch.equal(one[:, :, :2], other[:, :, :2])
    assert not torch.equal(one[:, :, 2], other[:, :, 2])
    network.pred_embed.weight.data.zero_()  # then a label is what stands before the first one: nothing
    logits = network(features, torch.tensor([[1]]))
    expected, state = network.predict(None, None, 1)
    again, _ = network.predict(torch.tensor([1]), state, 1)
    encoded = network.encode(features)
    torch.testing.assert_close(logits[:, :, 0], network.join(encoded, expected.unsqueeze(1)))
    torch.testing.assert_close(logits[:, :, 1], network.join(encoded, again.unsqueeze(1)))


def test_the_encoder_does_not_hear_what_comes_later() -> None:
    network = small().eval()
    features = torch.randn(8, 1, 4)
    changed = features.clone()
    changed[4:] += 1.0
    one, other = network.encode(features), network.encode(changed)
    assert torch.equal(one[:, :2], other[:, :2]) and not torch.equal(one[:, 2:], other[:, 2:])


def test_dropout_acts_behind_every_layer_and_in_the_joint() -> None:
    network = small(encoder_dropout=0.5, prediction_dropout=0.5, joint_dropout=0.5).train()
    shares = []
    for part in network.modules():
        if isinstance(part, nn.Dropout):
            part.register_forward_hook(lambda _m, _a, out: shares.append(float((out == 0).float().mean())))
    network(torch.randn(40, 20, 4), torch.zeros(20, 9, dtype=torch.int64))
    assert len(shares) == 2 + 3 + 2 + 1
    assert all(0.4 < share < 0.6 for share in shares[:-1])


def plain_greedy(network: RNNT, features: torch.Tensor, frames: int, per_frame: int, most: int) -> list[int]:
    """One utterance (T, 1, features), as the reference describes it."""
    encoded = network.encode(features)
    predicted, state = network.predict(None, None, 1)
    labels: list[int] = []
    for t in range(frames):
        if len(labels) > most:
            break
        for _ in range(per_frame):
            choice = int(network.join(encoded[:, t], predicted).argmax())
            if choice == 5:
                break
            labels.append(choice)
            predicted, state = network.predict(torch.tensor([choice]), state, 1)
    return labels


@pytest.mark.parametrize(("per_frame", "most"), [(30, 300), (2, 5), (1, 0)])
@pytest.mark.parametrize("bias", [-0.5, 0.3])
def test_a_batch_is_decoded_as_its_utterances_are_one_by_one(per_frame: int, most: int, bias: float) -> None:
    network = small(seed=3).eval()
    with torch.no_grad():
        network.pred_embed.weight.mul_(4)
        network.joint_net.weight.mul_(4)
        network.joint_net.bias[5] += bias
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(12, 6, 4, generator=generator) * 3
    counts = torch.tensor([6, 1, 3, 0, 5, 6])
    with torch.no_grad():
        found = greedy(network, features, counts, symbols_per_frame=per_frame, most_symbols=most)
        for number, labels in enumerate(found):
            one = features[:, number : number + 1]
            assert labels == plain_greedy(network, one, int(counts[number]), per_frame, most)
    assert len({tuple(labels) for labels in found}) > 1


def test_a_network_that_never_says_blank_is_given_up() -> None:
    network = small().eval()
    with torch.no_grad():
        network.joint_net.bias[2] = 1e3
        found = greedy(
            network, torch.randn(40, 1, 4), torch.tensor([20]), symbols_per_frame=30, most_symbols=300
        )
    assert found == [[2] * 330]


def test_the_rate_warms_up_holds_and_decays_by_whole_epochs() -> None:
    rate = schedule_of(rnnt("rnnt"))
    n = rate.steps_per_epoch
    assert n == 272
    assert rate(0) == 1e-5
    assert rate(9) == pytest.approx(0.004 * 11 / (6 * n + 1))
    assert rate(6 * n - 2) == pytest.approx(0.004 * 6 * n / (6 * n + 1))
    assert rate(6 * n - 1) == rate(46 * n - 2) == rate(46 * n - 1) == 0.004
    assert rate(46 * n) == rate(47 * n - 2) == pytest.approx(0.004 * 0.935)
    assert rate(48 * n) == pytest.approx(0.004 * 0.935**3)
    assert rate(10**6) == 1e-5


@pytest.mark.parametrize(
    ("name", "steps", "warmup", "hold", "base", "samples"),
    [
        ("rnnt_bs2048", 136, 6, 33, 0.007, 278528),
        ("rnnt_bs3072", 90, 9, 40, 0.009, 276480),
        ("rnnt_bs6144", 45, 16, 40, 0.014, 276480),
    ],
)
def test_each_published_point_has_its_own_schedule(
    name: str, steps: int, warmup: int, hold: int, base: float, samples: int
) -> None:
    config = rnnt(name)
    rate = schedule_of(config)
    assert (rate.steps_per_epoch, rate.warmup_epochs, rate.hold_epochs, rate.base) == (
        steps,
        warmup,
        hold,
        base,
    )
    assert config.samples_per_epoch == samples


def test_an_epoch_without_a_whole_batch_is_refused() -> None:
    with pytest.raises(RequestError, match="no whole batch of 1024"):
        schedule_of(rnnt("rnnt", "train_samples=1000"))


def test_the_optimizer_is_lamb_with_decay_and_trust_ratio_for_every_tensor() -> None:
    config = rnnt("rnnt_bs6144")
    network = small()
    optimizer = optimizer_of(network, config.hyperparameters)
    assert isinstance(optimizer, LAMB)
    (group,) = optimizer.param_groups
    assert len(group["params"]) == len(list(network.parameters())) and group["layer_adaptation"]
    assert (group["betas"], group["epsilon"], group["weight_decay"]) == ((0.82, 0.98), 1e-9, 1e-3)
    config.hyperparameters.opt_name = "adam"
    with pytest.raises(UnknownName, match="lamb"):
        optimizer_of(network, config.hyperparameters)


def test_gradients_that_are_not_clipped_are_logged_with_the_infinite_norm_that_the_rules_ask_for() -> None:
    assert rnnt("rnnt").hyperparameters.logged()["opt_gradient_clip_norm"] == 1.0
    free = rnnt("rnnt", "hyperparameters.opt_gradient_clip_norm=null")
    assert free.hyperparameters.logged()["opt_gradient_clip_norm"] == math.inf
    assert free.refuse() is None


def test_an_infinite_clip_norm_is_refused_because_no_plan_can_hold_it() -> None:
    refusal = rnnt("rnnt", "hyperparameters.opt_gradient_clip_norm=inf").refuse()
    assert refusal == "opt_gradient_clip_norm is inf; where nothing is to be clipped, it is null."


def test_averaged_weights_start_where_the_weights_do_and_follow_them() -> None:
    average, weights = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    average.weight.data.fill_(8.0)
    weights.weight.data.fill_(0.0)
    follow(average, weights, 0.75)
    follow(average, weights, 0.75)
    assert average.weight.item() == pytest.approx(8 * 0.75**2)
    assert weights.weight.item() == 0.0


def test_states_are_those_of_lstms() -> None:
    """A stack of layers is torch's LSTM of as many layers, where nothing is dropped."""
    stack = networks.StackedLSTM(3, 4, 2, 0.0)
    whole = nn.LSTM(3, 4, 2)
    with torch.no_grad():
        for number, layer in enumerate(stack.layers):
            for name, weight in layer.named_parameters():
                getattr(whole, name.replace("l0", f"l{number}")).copy_(weight)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(stack(x)[0], whole(x)[0])
