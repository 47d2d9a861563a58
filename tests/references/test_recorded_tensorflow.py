"""BERT, ResNet and the network of Go beside what their published references compute: recorded under TensorFlow by
`bench/studies/record_tensorflow.py`, so that these tests need neither it nor the references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.references.configs import minigo
from train_bench.references.bert.config import Hyperparameters, Model
from train_bench.references.bert.loss import pretraining_loss
from train_bench.references.bert.model import Bert, Logits, _initialize, tensor_name
from train_bench.references.bert.recipe import optimizer_of, schedule_of
from train_bench.references.bert.weights import load_start_weights
from train_bench.references.minigo import weights as go_weights
from train_bench.references.minigo.config import Model as GoModel
from train_bench.references.minigo.model import Network
from train_bench.references.minigo.recipe import Piecewise
from train_bench.references.minigo.recipe import loss_of as go_loss
from train_bench.references.minigo.recipe import optimizer_of as go_optimizer
from train_bench.references.parts.lars import LARS
from train_bench.references.parts.lr_schedules import PolynomialDecay
from train_bench.references.resnet.model import initialize

RECORDED = Path(__file__).parent / "recorded"
SHAPE = Model(
    layers=2, width=8, heads=2, intermediate=16, vocabulary=30, positions=12, token_types=2, dropout=0.0
)
BERT = Hyperparameters(
    global_batch_size=3,
    opt_base_learning_rate=0.01,
    opt_epsilon=1e-6,
    opt_learning_rate_training_steps=20,
    opt_learning_rate_warmup_steps=4,
    num_warmup_steps=4,
    start_warmup_step=-1,
    opt_lamb_beta_1=0.9,
    opt_lamb_beta_2=0.999,
    opt_lamb_weight_decay_rate=0.01,
)


@pytest.fixture(scope="module")
def bert() -> dict[str, np.ndarray]:
    """Inputs, start weights, outputs, gradients and weights after six steps of a BERT of two layers."""
    with np.load(RECORDED / "bert.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def resnet() -> dict[str, np.ndarray]:
    """Rates, weights before and after six steps, a loss, and drawn weights."""
    with np.load(RECORDED / "resnet.npz") as file:
        return dict(file)


@pytest.fixture
def model(bert: dict[str, np.ndarray], tmp_path: Path) -> Bert:
    """Ours, with the start weights in the format of `weights.py`."""
    found = Bert(SHAPE)
    starts = {name.removeprefix("start/"): value for name, value in bert.items() if name.startswith("start/")}
    np.savez(tmp_path / "start.npz", **starts)  # type: ignore[arg-type]
    load_start_weights(found, tmp_path / "start.npz")
    return found


def loss_of(model: Bert, bert: dict[str, np.ndarray]) -> tuple[Logits, torch.Tensor]:
    """Logits and loss of the recorded batch."""
    batch = {
        name.removeprefix("input/"): torch.from_numpy(value)
        for name, value in bert.items()
        if name.startswith("input/")
    }
    lengths = batch["mask"].sum(dim=1)
    logits = model(batch["tokens"].long(), batch["segments"].long(), lengths, batch["places"].long())
    loss = pretraining_loss(logits, batch["words"].long(), batch["weights"], batch["random_next"].long())
    return logits, loss


def test_answers_loss_and_gradients_of_bert_are_the_references(
    model: Bert, bert: dict[str, np.ndarray]
) -> None:
    logits, loss = loss_of(model, bert)
    words = functional.log_softmax(logits.words.flatten(0, 1), dim=-1)
    assert np.allclose(words.detach().numpy(), bert["output/word_logs"], atol=1e-4)
    pairs = functional.log_softmax(logits.sentences, dim=-1)
    assert np.allclose(pairs.detach().numpy(), bert["output/pair_logs"], atol=1e-4)
    assert loss.item() == pytest.approx(bert["output/words"] + bert["output/pairs"], rel=1e-5)
    loss.backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        assert np.allclose(as_ours(bert, "gradient", name), weight.grad.numpy(), atol=1e-5, rtol=1e-3), name


def as_ours(bert: dict[str, np.ndarray], kind: str, name: str) -> np.ndarray:
    """A recorded tensor in the shape of our parameter."""
    recorded = bert[f"{kind}/{tensor_name(name)}"]
    return recorded.T if tensor_name(name).endswith("/kernel") else recorded


def test_steps_of_lamb_with_warm_up_decay_and_clipping_are_the_references(
    model: Bert, bert: dict[str, np.ndarray]
) -> None:
    optimizer, schedule = optimizer_of(model, BERT), schedule_of(BERT)
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, bert)[1].backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        optimizer.step()
    for name, weight in model.named_parameters():
        if "key.bias" not in name:  # whose gradient is rounding alone
            start, end = as_ours(bert, "start", name), as_ours(bert, "end", name)
            moved = np.abs(end - start).max()
            assert moved > 0 and np.abs(weight.detach().numpy() - end).max() < 0.02 * moved, name


def test_start_weights_of_bert_have_the_references_distribution(bert: dict[str, np.ndarray]) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(50, 100)
    _initialize(layer)
    drawn = bert["drawn"]
    weight = layer.weight.detach()
    assert float(weight.abs().max()) == pytest.approx(np.abs(drawn).max(), rel=0.02)
    assert float(weight.std()) == pytest.approx(drawn.std(), rel=0.04)


def test_rates_of_resnet_are_the_references(resnet: dict[str, np.ndarray]) -> None:
    schedule = PolynomialDecay(base=8.5, end=1e-4, power=2.0, warmup_steps=20, decay_steps=41)
    assert [schedule(step) for step in range(80)] == pytest.approx(resnet["rates"].tolist(), rel=1e-5)


def test_steps_of_lars_are_the_references(resnet: dict[str, np.ndarray]) -> None:
    """The reference's epsilon, 1e-7 in place of the logged 0, is below rounding."""
    names = ["conv/kernel", "bn_conv/gamma", "fc/bias"]
    weights = [nn.Parameter(torch.from_numpy(resnet[f"start/{name}"].copy())) for name in names]
    groups = [{"params": weights[:1]}, {"params": weights[1:], "layer_adaptation": False}]
    optimizer = LARS(groups, lr=0.0, momentum=0.9, weight_decay=2e-4)
    schedule = PolynomialDecay(base=8.5, end=1e-4, power=2.0, warmup_steps=20, decay_steps=41)
    for step, drawn in enumerate(torch.from_numpy(resnet["gradients"])):
        for place, weight in enumerate(weights):
            weight.grad = drawn[place, : weight.numel()].reshape(weight.shape)
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        optimizer.step()
    for name, weight in zip(names, weights, strict=True):
        assert np.allclose(weight.detach().numpy(), resnet[f"end/{name}"], rtol=1e-5, atol=1e-5), name


def test_the_loss_of_resnet_is_the_references(resnet: dict[str, np.ndarray]) -> None:
    logits, labels = torch.from_numpy(resnet["logits"]), torch.from_numpy(resnet["labels"])
    loss = functional.cross_entropy(logits, labels, label_smoothing=0.1)
    assert loss.item() == pytest.approx(float(resnet["loss"]), rel=1e-5)


def test_start_weights_of_resnet_have_the_references_distribution(resnet: dict[str, np.ndarray]) -> None:
    torch.manual_seed(2)
    layer, drawn = nn.Conv2d(10, 50, 3, bias=False), resnet["he_normal"]
    initialize(nn.Sequential(layer), truncated=True)
    weight = layer.weight.detach()
    assert float(weight.abs().max()) == pytest.approx(np.abs(drawn).max(), rel=0.03)
    assert float(weight.std()) == pytest.approx(drawn.std(), rel=0.05)


@pytest.fixture(scope="module")
def go() -> dict[str, np.ndarray]:
    """Positions, start weights, answers, loss and weights after six steps on a board of 5 x 5. Channels come last
    there, so that a row of the policy's dense layer is turned."""
    with np.load(RECORDED / "minigo.npz") as file:
        found = dict(file)
    for kind in ("start", "end"):
        kernel = found[f"{kind}/dense/kernel"]
        found[f"{kind}/dense/kernel"] = kernel.reshape(25, 2, 26).transpose(1, 0, 2).reshape(50, 26)
    return found


def network_of(go: dict[str, np.ndarray], kind: str, tmp_path: Path) -> Network:
    """Ours with recorded weights, by way of a file of weights."""
    prefix = f"{kind}/"
    arrays = {name.removeprefix(prefix): value for name, value in go.items() if name.startswith(prefix)}
    np.savez(tmp_path / f"{kind}.npz", **arrays)  # type: ignore[arg-type]
    network = Network(GoModel(board_size=5, channels=8, blocks=2, value_width=7))
    assert go_weights.read(tmp_path / f"{kind}.npz", network) == (0 if kind == "start" else 6)
    return network


def test_answers_and_steps_of_the_network_of_go_are_the_references(
    go: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """The loss without its L2 term, which is the optimizer's here; rates change after steps 1 and 3."""
    network, expected = network_of(go, "start", tmp_path), network_of(go, "end", tmp_path)
    config = minigo("minigo", "l2=0.01")
    optimizer, schedule = (
        go_optimizer(network, config),
        Piecewise(boundaries=(1, 3), rates=(0.02, 0.05, 0.01)),
    )
    planes, policies, winners = (torch.from_numpy(go[name]) for name in ("planes", "policies", "winners"))
    for step in range(6):
        logits, values = network(planes.permute(0, 3, 1, 2))
        loss = go_loss(logits, values, policies, winners)
        if step == 0:
            assert np.allclose(logits.softmax(dim=1).detach().numpy(), go["policy_output"], atol=1e-5)
            assert np.allclose(values.detach().numpy(), go["value_output"], atol=1e-5)
            squares = sum(
                float(weight.detach().square().sum())
                for name, weight in network.named_parameters()
                if not name.endswith("bias")
            )
            assert loss.item() + 0.01 * squares / 2 == pytest.approx(float(go["loss"]), rel=1e-5)
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        optimizer.step()
    for (name, mine), theirs in zip(
        network.state_dict().items(), expected.state_dict().values(), strict=True
    ):
        assert torch.allclose(mine.float(), theirs.float(), rtol=1e-3, atol=1e-4) or "tracked" in name, name


def test_start_weights_of_the_network_of_go_are_glorots(go: dict[str, np.ndarray], tmp_path: Path) -> None:
    """Largest values of each kernel, and biases, shifts and scales."""
    drawn = Network(GoModel(board_size=5, channels=8, blocks=2, value_width=7))
    recorded = network_of(go, "start", tmp_path)
    for (name, mine), theirs in zip(drawn.named_parameters(), recorded.parameters(), strict=True):
        if mine.dim() == 1:
            assert torch.equal(mine, theirs), name
        elif mine.numel() > 200:
            largest = [one.detach().abs().max() for one in (mine, theirs)]
            assert torch.isclose(*largest, rtol=0.05), name
