"""The contract of a Task, held by single-shot detection."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from references.ssd import data, start_weights
from references.ssd.config import Config
from references.ssd.model import SSD
from references.ssd.recipe import optimizer_of, schedule_of
from references.ssd.task import Task
from tests.references.configs import ssd
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.progress import Mark

GIB = 2**30
BCCD = Path(__file__).parents[3] / "shared" / "data" / "bccd"


def mark(samples: int) -> Mark:
    return Mark(count=samples, epoch_num=1, first_epoch_num=1, epoch_count=1)


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


def weights(task: Task) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in task._model.state_dict().values()]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture
def tiny(mini_ssd: Config) -> Config:
    """The mini benchmark with fewer channels and without warm-up."""
    mini_ssd.model.widths = [8, 8, 16]
    mini_ssd.model.stem_width = 8
    mini_ssd.data.verify = False
    mini_ssd.warm_up_steps = 0
    return mini_ssd


LISTENER = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from tests.references.configs import ssd
from tests.references.one_rank import OneRank
from references.ssd.task import Task
task = Task(ssd("ssd_mini", "data_dir=" + sys.argv[1]))
task.build(1, OneRank())
touched = [name for name in opened if name.startswith(sys.argv[1])]
assert not touched, touched
task.open_data()
assert any(name.startswith(sys.argv[1]) for name in opened)
"""


def test_building_touches_no_data(scenes_folder: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LISTENER, str(scenes_folder)], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_opening_the_data_announces_their_sizes(tiny: Config) -> None:
    task = built(tiny)
    assert task.open_data() == data.facts(tiny)
    task.close()


def test_a_task_without_a_data_folder_says_so() -> None:
    task = built(ssd("ssd_mini", "warm_up_steps=0"))
    with pytest.raises(RequestError, match="was not told where its data lie"):
        task.open_data()


def test_training_twice_advances_by_whole_batches(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    assert task.train_until(mark(12)).samples == 16
    first = weights(task)
    assert task.train_until(mark(16)).samples == 16
    assert task.train_until(mark(24)).samples == 24
    assert not same(first, weights(task))
    task.close()


def test_a_skipped_step_holds_the_schedule_and_not_the_data(tiny: Config) -> None:
    class Overflowing(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            return super().step(clip_norm=clip_norm) and self.steps_taken != 1

    task = built(tiny, parallel=Overflowing())
    task.open_data()
    assert task.train_until(mark(24)).samples == 24
    assert task._step == 2
    task.close()


def test_the_loss_falls_on_synthetic_batches(tiny: Config) -> None:
    tiny.hyperparameters.opt_learning_rate_warmup_steps = 1
    task = built(tiny)
    batch = data.synthetic(tiny, 8)
    task._forward.train()
    losses = []
    for _ in range(15):
        task._train_step(iter([batch]))
        losses.append(float(task._last_loss))
    assert losses[-1] < 0.8 * losses[0]


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(tiny: Config) -> None:
    ends = []
    for seed in (1, 1, 2):
        task = built(tiny, seed)
        task.open_data()
        task.train_until(mark(24))
        ends.append(weights(task))
        task.close()
    assert same(ends[0], ends[1])
    assert not same(ends[0], ends[2])


def test_micro_batches_add_up_to_the_batch_where_batch_norm_stands_still(tiny: Config) -> None:
    ends = []
    for steps in (1, 2):
        tiny.hyperparameters.gradient_accumulation_steps = steps
        task = built(tiny)
        task._forward.eval()
        batch = data.synthetic(tiny, 8)
        parts = [tuple(part.tensor_split(steps)[number] for part in batch) for number in range(steps)]
        task._step = 10
        task._train_step(iter(parts))
        ends.append(torch.cat([weight.detach().flatten() for weight in task._model.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-5, rtol=1e-4)


def test_the_warm_up_leaves_no_trace(tiny: Config) -> None:
    ends = []
    for steps in (0, 2):
        tiny.warm_up_steps = steps
        parallel = OneRank()
        task = built(tiny, parallel=parallel)
        assert parallel.steps_taken == 0 and task._optimizer.state_dict()["state"] == {}
        generator = torch.rand(1).item()
        task.open_data()
        task.train_until(mark(16))
        ends.append((weights(task), generator))
        task.close()
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]


def test_an_evaluation_changes_nothing_that_training_sees(tiny: Config) -> None:
    ends = []
    for looks in (0, 1):
        task = built(tiny)
        task.open_data()
        task.train_until(mark(8))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mark(16))
        ends.append(weights(task))
        task.close()
    assert same(*ends)


def test_a_saved_run_continues_identically(tiny: Config, tmp_path: Path) -> None:
    straight = built(tiny)
    straight.open_data()
    straight.train_until(mark(16))
    straight.save(tmp_path)
    straight.train_until(mark(32))
    for opened_first in (True, False):
        resumed = built(tiny, seed=99)
        if opened_first:
            resumed.open_data()
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert resumed.train_until(mark(32)).samples == 32
        assert same(weights(straight), weights(resumed))
        resumed.close()
    straight.close()


class Meeting:
    """Where ranks that are threads of this process bring what they have."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks)
        self.brought: dict[int, Any] = {}

    def all(self, rank: int, value: Any) -> list[Any]:
        self.brought[rank] = value
        self.barrier.wait()
        found = [self.brought[number] for number in sorted(self.brought)]
        self.barrier.wait()
        return found


class OneOfSeveral(OneRank):
    def __init__(self, meeting: Meeting, *, rank: int, size: int) -> None:
        super().__init__(rank=rank, size=size)
        self.meeting = meeting

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.meeting.all(self.rank, value)).sum(dim=0)

    def gather_objects(self, value: Any) -> list[Any] | None:
        found = self.meeting.all(self.rank, value)
        return found if self.rank == 0 else None


@pytest.fixture(scope="module")
def trained(scenes_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path, float]:
    """The mini benchmark after some epochs: configuration, checkpoint, what one rank finds."""
    config = ssd("ssd_mini", f"data_dir={scenes_folder}", "data.verify=false", "warm_up_steps=0")
    task = built(config)
    task.open_data()
    task.train_until(mark(4 * 160))
    folder = tmp_path_factory.mktemp("trained")
    task.save(folder)
    expected = task.evaluate().metrics["mAP"]
    task.close()
    return config, folder, expected


@pytest.mark.parametrize("ranks", [2, 3])
def test_several_ranks_find_the_quality_that_one_finds(
    trained: tuple[Config, Path, float], ranks: int
) -> None:
    config, folder, expected = trained
    config.hyperparameters.global_batch_size = 6
    meeting = Meeting(ranks)
    found: dict[int, Any] = {}

    def one(rank: int) -> None:
        task = built(config, parallel=OneOfSeveral(meeting, rank=rank, size=ranks))
        task.load(folder)
        task.open_data()
        found[rank] = task.evaluate().metrics["mAP"]
        task.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.0 < expected < 1.0
    assert found[0] == pytest.approx(expected, abs=1e-6)
    assert len(found) == ranks


def test_a_diverged_run_reports_not_a_number(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    assert math.isfinite(task.evaluate().metrics["mAP"])
    with torch.no_grad():
        next(task._model.parameters()).fill_(math.nan)
    assert task.evaluate().diverged
    task.close()


def test_a_batch_that_ranks_cannot_share_is_refused(tiny: Config) -> None:
    with pytest.raises(RequestError, match="global_batch_size 8 cannot be divided among 3 ranks"):
        built(tiny, parallel=OneRank(size=3))


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        # W = 300 steps of 1024 from 0; boundaries at 40 and 50 epochs of 117,266 samples.
        ("ssd_bs1024", {0: 0.0, 150: 0.4, 300: 0.8, 4580: 0.8, 4581: 0.08, 5725: 0.08, 5726: 0.008}),
        ("ssd_bs4096", {0: 0.0, 1145: 3.2, 2290: 3.2, 2291: 0.32, 2863: 0.032}),
    ],
)
def test_the_rate_warms_up_and_falls_at_the_boundaries(name: str, rates: dict[int, float]) -> None:
    schedule = schedule_of(ssd(name))
    assert {step: schedule(step) for step in rates} == pytest.approx(rates)


def test_a_warm_up_factor_lifts_the_first_rate() -> None:
    config = ssd("ssd_bs1024", "hyperparameters.opt_learning_rate_warmup_factor=2")
    assert [schedule_of(config)(step) for step in (0, 150, 300)] == pytest.approx([0.6, 0.7, 0.8])


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
    start_weights.check(path)
    backbone = SSD(ssd("ssd").model).backbone
    start_weights.load(backbone, path)
    assert all(torch.equal(value, theirs[name]) for name, value in backbone.state_dict().items())


def test_start_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    backbone = SSD(ssd("ssd_mini").model).backbone
    path = tmp_path / "resnet34-333f7ec4.pth"
    path.write_bytes(b"nothing")
    with pytest.raises(RequestError, match="should begin with 333f7ec4"):
        start_weights.check(path)
    with pytest.raises(RequestError, match="does not hold the weights of this backbone"):
        start_weights.load(backbone, path)
    state = backbone.state_dict()
    state.pop("conv1.weight")
    torch.save(state, path)
    with pytest.raises(RequestError, match=r"Missing key\(s\) in state_dict: \"conv1\.weight\""):
        start_weights.load(backbone, path)


FULL_STEP = """
import math, resource, torch
from tests.references.configs import ssd
from tests.references.one_rank import OneRank
from references.ssd import data
from references.ssd.task import Task
torch.set_num_threads(2)
config = ssd("ssd", "hyperparameters.global_batch_size=1", "warm_up_steps=0", "model.start_weights=null")
task = Task(config)
task.build(1, OneRank())
assert len(task.initialized_tensors()) == 119
before = [weight.detach().clone() for weight in task._model.parameters()]
task._step = config.hyperparameters.opt_learning_rate_warmup_steps
task._train_step(iter([data.synthetic(config, 1)]))
assert math.isfinite(float(task._last_loss))
after = list(task._model.parameters())
assert all(bool(torch.isfinite(weight).all()) for weight in after)
assert not any(torch.equal(one, other) for one, other in zip(before, after) if one.dim() > 1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def test_a_step_of_the_full_network_at_300_pixels_stays_below_4_gib() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", FULL_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 4 * GIB


@pytest.mark.skipif(not BCCD.is_dir(), reason="no blood cells beside the checkout")
def test_a_task_trains_on_blood_cells(tmp_path: Path) -> None:
    config = ssd("ssd_bccd", f"data_dir={tmp_path}", "warm_up_steps=0")
    config.hyperparameters.opt_learning_rate_warmup_steps = 1
    data.prepare(config, tmp_path, BCCD)
    task = built(config)
    assert task.open_data() == data.facts(config)
    losses = []
    for step in range(1, 13):
        task.train_until(mark(8 * step))
        losses.append(float(task._last_loss))
    assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[:3])
    task.close()


@pytest.mark.gpu
def test_a_task_trains_on_a_gpu(mini_ssd: Config) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    parallel = OneRank()
    parallel.device = torch.device("cuda")
    task = built(mini_ssd, parallel=parallel)
    task.open_data()
    task.train_until(mark(160))
    assert math.isfinite(task.evaluate().metrics["mAP"])
    task.close()
