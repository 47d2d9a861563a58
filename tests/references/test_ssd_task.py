"""The contract of a Task, held by single-shot detection."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import needs
from tests.references.configs import ssd
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from tests.references.tasks import mark
from train_bench.errors import RequestError
from train_bench.references.parts import backbone_weights
from train_bench.references.ssd import data
from train_bench.references.ssd.config import Config
from train_bench.references.ssd.model import SSD, UNUSED
from train_bench.references.ssd.recipe import optimizer_of, schedule_of
from train_bench.references.ssd.task import Task

GIB = 2**30
BCCD = needs.DATA / "bccd"


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


@pytest.fixture
def tiny(mini_ssd: Config) -> Config:
    """The mini benchmark with fewer channels and without warm-up."""
    mini_ssd.model.widths = [8, 8, 16]
    mini_ssd.model.stem_width = 8
    mini_ssd.data.verify = False
    mini_ssd.warm_up_steps = 0
    return mini_ssd


@pytest.mark.full
def test_micro_batches_add_up_to_the_batch_where_batch_norm_stands_still(tiny: Config) -> None:
    ends = []
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = built(tiny)
        task.forward.eval()
        batch = data.synthetic(tiny, 8)
        parts = [tuple(part.tensor_split(steps)[number] for part in batch) for number in range(steps)]
        task.optimizer_steps = 10
        task.train_step(iter(parts))
        ends.append(torch.cat([weight.detach().flatten() for weight in task.model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def trained(scenes_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path, float]:
    """The mini benchmark after some epochs: configuration, checkpoint, what one rank finds."""
    config = ssd("ssd_mini", f"data_dir={scenes_folder}", "data.verify=false", "warm_up_steps=0")
    task = built(config)
    task.open_data()
    task.train_until(mark(640))
    folder = tmp_path_factory.mktemp("trained")
    task.save(folder)
    expected = task.evaluate().metrics["mAP"]
    task.close()
    return config, folder, expected


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_find_the_quality_that_one_finds(
    trained: tuple[Config, Path, float], ranks: int
) -> None:
    config, folder, expected = trained
    config.hyperparameters.global_batch_size = 6

    def found(parallel: OneOfSeveral) -> float:
        task = built(config, parallel=parallel)
        task.load(folder)
        task.open_data()
        metric = task.evaluate().metrics["mAP"]
        task.close()
        return metric

    assert 0.0 < expected < 1.0
    assert in_threads(ranks, found)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        # W = 300 steps of 1024 from 0, the last rate is held; boundaries at 40 and 50 epochs of 117,266 samples.
        (
            "ssd_bs1024",
            {
                0: 0.0,
                150: 0.4,
                300: 0.8 * 299 / 300,
                4580: 0.8 * 299 / 300,
                4581: 0.08,
                5725: 0.08,
                5726: 0.008,
            },
        ),
        ("ssd_bs4096", {0: 0.0, 1145: 3.2 * 1144 / 1145, 2290: 3.2 * 1144 / 1145, 2291: 0.32, 2863: 0.032}),
        ("ssd_mini", {0: 0.0, 19: 0.019, 20: 0.02, 839: 0.02, 840: 0.002}),
    ],
)
def test_the_rate_warms_up_and_falls_at_the_boundaries(name: str, rates: dict[int, float]) -> None:
    schedule = schedule_of(ssd(name))
    assert {step: schedule(step) for step in rates} == pytest.approx(rates)


def test_a_warm_up_factor_lifts_the_first_rate() -> None:
    config = ssd("ssd_bs1024", "hyperparameters.opt_learning_rate_warmup_factor=2")
    held = 0.8 * (1 - 1 / 1200)
    assert [schedule_of(config)(step) for step in (0, 150, 300)] == pytest.approx([0.6, 0.7, held])


def test_momentum_sgd_decays_every_tensor() -> None:
    config = ssd("ssd_mini")
    (group,) = optimizer_of(SSD(config.model), config.hyperparameters).param_groups
    assert (group["momentum"], group["weight_decay"], group["nesterov"]) == (0.9, 0.0005, False)
    assert len(group["params"]) == len(list(SSD(config.model).parameters()))


@pytest.mark.parametrize(
    ("ranks", "span", "filled"), [(8, 128, 128), (8, 256, 256), (2, 128, 512), (1024, 16, 16)]
)
def test_the_span_of_batch_norm_is_that_of_the_ranks_that_share_it(
    ranks: int, span: int, filled: int
) -> None:
    config = ssd("ssd_bs1024", f"hyperparameters.model_bn_span={span}").for_ranks(ranks)
    assert config.hyperparameters.model_bn_span == filled


def test_start_weights_are_those_of_the_file(tmp_path: Path) -> None:
    from torchvision.models import resnet34

    torch.manual_seed(4)
    theirs = resnet34().state_dict()
    path = tmp_path / "resnet34.pth"
    torch.save(theirs, path)
    backbone_weights.check(path)
    backbone = SSD(ssd("ssd").model).backbone
    backbone_weights.load(backbone, path, unused=UNUSED)
    assert all(torch.equal(value, theirs[name]) for name, value in backbone.state_dict().items())


def test_start_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    backbone = SSD(ssd("ssd_mini").model).backbone
    path = tmp_path / "resnet34-333f7ec4.pth"
    path.write_bytes(b"nothing")
    with pytest.raises(RequestError, match="should begin with 333f7ec4"):
        backbone_weights.check(path)
    with pytest.raises(RequestError, match="does not hold the weights of this backbone"):
        backbone_weights.load(backbone, path, unused=UNUSED)
    state = backbone.state_dict()
    state.pop("conv1.weight")
    torch.save(state, path)
    with pytest.raises(RequestError, match=r"Missing key\(s\) in state_dict: \"conv1\.weight\""):
        backbone_weights.load(backbone, path, unused=UNUSED)


FULL_STEP = """
import math, torch
from tests.memory import peak_resident
from tests.references.configs import ssd
from tests.references.one_rank import OneOfSeveral, OneRank, in_threads
from train_bench.references.ssd import data
from train_bench.references.ssd.task import Task
torch.set_num_threads(2)
config = ssd("ssd", "hyperparameters.global_batch_size=1", "warm_up_steps=0", "model.start_weights=null")
task = Task(config)
task.build(1, OneRank())
assert len(task.initialized_tensors()) == 119
before = [weight.detach().clone() for weight in task.model.parameters()]
task.optimizer_steps = config.hyperparameters.opt_learning_rate_warmup_steps
task.train_step(iter([data.synthetic(config, 1)]))
assert math.isfinite(float(task.last_loss))
after = list(task.model.parameters())
assert all(bool(torch.isfinite(weight).all()) for weight in after)
assert not any(torch.equal(one, other) for one, other in zip(before, after) if one.dim() > 1)
print(peak_resident())
"""


@pytest.mark.full
def test_a_step_of_the_full_network_at_300_pixels_stays_below_4_gib() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FULL_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 * GIB


@pytest.mark.full
@needs.shared(BCCD)
def test_a_task_trains_on_blood_cells(tmp_path: Path) -> None:
    config = ssd("ssd_bccd", f"data_dir={tmp_path}", "warm_up_steps=0")
    config.hyperparameters.opt_learning_rate_warmup_steps = 1
    data.prepare(config, tmp_path, BCCD)
    task = built(config)
    facts = task.open_data()
    assert (facts.train_samples, facts.eval_samples) == (config.train_samples, config.eval_samples)
    assert facts.fingerprint is not None and facts.fingerprint.samples_in_common == 0
    losses = []
    for step in range(1, 13):
        task.train_until(mark(8 * step))
        losses.append(float(task.last_loss))
    assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[:3])
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_ssd: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip(needs.NO_GPU)
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_ssd, parallel=parallel)
    task.open_data()
    task.train_until(mark(160))
    assert math.isfinite(task.evaluate().metrics["mAP"])
    task.close()
