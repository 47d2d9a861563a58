"""The processes that load samples, and the record of what was taken from them."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, get_worker_info

from tests.references import configs
from tests.references.one_rank import OneRank
from train_bench.references.parts import loading


@pytest.mark.parametrize(
    ("workers", "device", "processes"), [(None, "cuda", 2), (0, "cuda", 0), (1, "cpu", 1)]
)
def test_without_a_number_loading_takes_the_processors_that_training_leaves(
    monkeypatch: pytest.MonkeyPatch, workers: int | None, device: str, processes: int
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(loading.cores, "_rank", 3)
    loader = loading.loader(
        Doubled(), SimpleNamespace(workers=workers, prefetch=2), torch.device(device), [[0, 1]]
    )
    assert isinstance(loader.loading, DataLoader)
    assert loader.loading.num_workers == processes
    assert loader.loading.pin_memory == (device == "cuda")


@pytest.mark.parametrize("workers", [None, 0])
def test_on_a_cpu_a_pass_without_processes_is_made_here_and_draws_as_one_of_a_data_loader(
    workers: int | None,
) -> None:
    order = [[3, 1], [0, 5]]
    loader = loading.loader(
        Doubled(), SimpleNamespace(workers=workers, prefetch=2), torch.device("cpu"), order, collate=list
    )
    plain = DataLoader(Doubled(), batch_size=None, sampler=order, collate_fn=list)  # type: ignore[arg-type]
    drawn, passes = [], []
    for each in (loader, plain):
        torch.manual_seed(1)
        passes.append([list(each), list(each)])
        drawn.append(torch.rand(3))
    assert not isinstance(loader.loading, DataLoader)
    assert passes[0] == passes[1] == 2 * [[[6, 2], [0, 10]]]
    assert torch.equal(drawn[0], drawn[1])


class Doubled:
    """Each number is sampled as its double; lists of them, too."""

    stored: Any = None

    def __getitem__(self, item: Any) -> Any:
        return [2 * each for each in item] if isinstance(item, list) else 2 * item


class Process(Doubled):
    """Each sample is the number of the process that made it."""

    def __getitem__(self, item: Any) -> Any:
        return os.getpid()


def test_a_loader_process_outlives_the_warning_of_a_host() -> None:
    loader = loading.loader(
        Process(), SimpleNamespace(workers=1, prefetch=2), torch.device("cpu"), [[0]] * 20, collate=list
    )
    made = iter(loader)
    (first,) = next(made)
    assert first != os.getpid()
    os.kill(first, signal.SIGTERM)
    os.kill(first, signal.SIGUSR1)
    assert list(made) == [[first]] * 19


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_noted_when_they_are_taken_whoever_made_them(workers: int) -> None:
    config = SimpleNamespace(workers=workers, prefetch=2)
    order = [[3, 1], [0, 5], [4, 9]]
    loader = loading.loader(Doubled(), config, torch.device("cpu"), order, collate=list, padding_from=9)
    batches = iter(loader)
    assert [next(batches), next(batches)] == [[6, 2], [0, 10]]
    assert loader.record.counts == [4]
    assert [numbers.tolist() for numbers in loader.record.numbers] == [[3, 1], [0, 5]]
    assert list(loader) == [[6, 2], [0, 10], [8, 18]]
    assert loader.record.counts == [4, 5]
    assert [numbers.tolist() for numbers in loader.record.numbers] == [[3, 1], [0, 5], [4]]


def test_a_set_may_make_whole_batches_and_number_its_samples_otherwise() -> None:
    config = SimpleNamespace(workers=0, prefetch=2)
    loader = loading.loader(
        Doubled(),
        config,
        torch.device("cpu"),
        [[3, 1]],
        collate=None,
        numbers=lambda items: np.array(items) + 7,
    )
    assert list(loader) == [[6, 2]]
    assert loader.record.numbers[0].tolist() == [10, 8]


class Rows:
    """A number as a row of a tensor, with the process that has made it."""

    stored: Any = None

    def __getitem__(self, item: int) -> tuple[torch.Tensor, int]:
        made_by = get_worker_info()
        return torch.full((3,), item), -1 if made_by is None else made_by.id


def test_all_processes_make_parts_of_a_batch_and_the_batch_is_what_one_makes() -> None:
    """Lists of 17, 16 and 15 items: 15 are too few for parts."""
    order = [list(range(start, end)) for start, end in ((0, 17), (40, 56), (20, 35))]
    whole, parts = (
        loading.loader(
            Rows(),
            SimpleNamespace(workers=workers, prefetch=2),
            torch.device("cpu"),
            order,
            padding_from=33,
            in_parts=True,
        )
        for workers in (0, 2)
    )
    for _ in range(2):
        for (one, _), (other, makers) in zip(whole, parts, strict=True):
            assert torch.equal(one, other)
            assert makers.tolist() == sorted(makers.tolist()) or len(makers) < 16
            assert len(set(makers.tolist())) == (2 if len(makers) >= 16 else 1)
        assert whole.record.counts == parts.record.counts
        for one, other in zip(whole.record.numbers, parts.record.numbers, strict=True):
            assert one.tolist() == other.tolist()


def test_of_a_long_pass_the_share_of_a_rank_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ORDER_KEPT", 8)
    record = loading.Record()
    list(record.of((np.arange(3), None) for _ in range(10)))
    assert record.counts == [30]
    assert [len(record.beginning(ranks)) for ranks in (1, 2, 8, 99)] == [3, 2, 1, 1]


def test_waits_are_those_for_batches_that_come_to_an_idle_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch takes 3 s to make and 5 s to train on, each pass 1 s to begin. While the device is busy all that costs
    nothing."""
    now, device = [0.0], ["idle"]
    monkeypatch.setattr(loading.time, "perf_counter", lambda: now[0])

    def made() -> Any:
        for number in range(3):
            now[0] += 3
            yield [number], number

    class Passes:
        def __iter__(self) -> Any:
            now[0] += 1
            return made()

    loader = loading.Loader(
        Doubled(), [], Passes(), numbers=np.array, padding_from=None, idle=lambda: device[0] == "idle"
    )
    for _ in loader:
        now[0] += 5
    assert loader.waited == 1 + 3 * 3
    for number in loader:
        now[0] += 5
        device[0] = "busy" if number == 0 else "idle"
    assert loader.waited == 10 + 1 + 2 * 3
    taken = loading.samples_taken(_with_order(loader), loader)
    assert taken.waited == 2 * loader.waited


def _with_order(loader: loading.Loader) -> loading.Loader:
    order = SimpleNamespace(epoch=None, carried=0)
    loader.sampler = SimpleNamespace(ranks=1, first_iteration=0, global_batch_size=1, order=order)  # type: ignore[assignment]
    return loader


@pytest.mark.parametrize(
    ("name", "part"), [("resnet", "data"), pytest.param("ssd", "model", marks=pytest.mark.slow)]
)
def test_batches_of_large_images_are_made_in_parts(
    prepared: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    def side(variant: str) -> int:
        return getattr(getattr(configs, name)(variant), part).image_size

    mini = f"{name}_mini"
    assert side(name) >= loading.LARGE_IMAGE > side(mini)
    config = getattr(configs, name)(
        mini, f"data_dir={prepared(name)}", "data.verify=false", "data.workers=2", "warm_up_steps=0"
    )
    task = importlib.import_module(f"train_bench.references.{name}.task").Task(config)
    task.build(1, OneRank())
    for large in (True, False):
        monkeypatch.setattr(loading, "LARGE_IMAGE", side(mini) + (not large))
        task.open_data()
        assert [isinstance(each.loading, loading._Gathered) for each in (task._train, task._eval)] == [
            large
        ] * 2
    task.close()
