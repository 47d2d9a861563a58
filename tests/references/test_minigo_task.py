"""The contract of a Task, held by reinforcement learning, and the window of games that it learns from."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.references.configs import minigo
from tests.references.conftest import SMALL_MINIGO
from tests.references.one_rank import OneRank, in_threads
from tests.references.tasks import mark, same
from tests.references.tasks import weights as weights_and_buffers
from tests.run.fakes import job
from train_bench.errors import RequestError
from train_bench.references.minigo import data, game, sgf, weights
from train_bench.references.minigo import task as task_module
from train_bench.references.minigo.config import Config
from train_bench.references.minigo.model import Network
from train_bench.references.minigo.selfplay import Record
from train_bench.references.minigo.task import Task
from train_bench.references.parts import loading
from train_bench.run.order import order_fingerprint
from train_bench.run.weights import put_back, write_weights
from train_bench.seeds import derive
from train_bench.task import SamplesTaken

pytestmark = pytest.mark.usefixtures("engine")


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


def opened(config: Config, seed: int = 1) -> Task:
    task = built(config, seed)
    task.open_data()
    return task


@pytest.fixture
def tiny() -> Config:
    """The mini benchmark with a smaller board, network and search."""
    return minigo("minigo_mini", *SMALL_MINIGO)


@pytest.mark.parametrize(("mode", "calls"), [("model", 1), ("graphs", 2)])
def test_a_compiled_network_has_one_size_of_inference_called_before_the_clock_and_the_opponent_has_not(
    tiny: Config, monkeypatch: pytest.MonkeyPatch, mode: str, calls: int
) -> None:
    """A CUDA graph is recorded when it is called again."""
    monkeypatch.setattr(task_module, "compile_model", lambda *_: None)
    sizes: list[int] = []

    def seen(network: nn.Module, planes: tuple[torch.Tensor]) -> None:
        if isinstance(network, Network) and not network.training:
            sizes.append(len(planes[0]))

    config = replace(tiny, compile=mode, warm_up_steps=1)
    task = Task(config)
    with nn.modules.module.register_module_forward_pre_hook(seen):
        task.build(1, OneRank())
    assert sizes == calls * [task._most_leaves()]
    task.open_data()
    assert task._opponent is not None
    position = np.zeros((1, game.PLANES, config.model.board_size**2), np.uint8)
    for network, size in ((task.forward, task._most_leaves()), (task._opponent, 1)):
        with network.register_forward_pre_hook(seen):
            sizes.clear()
            network.eval()
            task._infer(network)(position)
            assert sizes == [size]


def records(count: int, positions: int) -> list[Record]:
    rng = np.random.default_rng(0)
    return [
        Record(
            number=number,
            moves=[],
            winner=1 if number % 2 else -1,
            margin=None,
            planes=rng.integers(0, 256, (positions, 26), dtype=np.uint8),
            policies=np.full((positions, 17), number / 17, np.float16),
        )
        for number in range(count)
    ]


def test_games_are_put_in_the_order_of_their_numbers_whoever_played_them() -> None:
    one, other = records(4, 3), records(4, 3)
    examples = data.examples_of([other[2], other[0], other[3], other[1]])
    assert np.array_equal(examples.planes, data.examples_of(one).planes)
    assert examples.winners.tolist() == [-1] * 3 + [1] * 3 + [-1] * 3 + [1] * 3


def stream(config: Config, window: list[data.Examples], **whose: int) -> list[data.Batch]:
    found = data.batches(config, window, seed=1, generation=1, **{"rank": 0, "ranks": 1} | whose)
    return [batch for _, batch in found]


def test_two_ranks_learn_from_the_positions_of_one_and_a_shared_shard_shows() -> None:
    config, window = minigo("minigo_mini", *SMALL_MINIGO), [data.examples_of(records(10, 4))]

    def taken(rank: int, ranks: int) -> SamplesTaken:
        record = loading.Record()
        found = data.batches(config, window, seed=1, generation=1, rank=rank, ranks=ranks)
        for _ in record.of(found):
            pass
        return SamplesTaken(trained=sum(record.counts), order=record.beginning(ranks))

    alone = order_fingerprint([taken(0, 1)])
    two = order_fingerprint([taken(rank, 2) for rank in range(2)])
    assert alone == replace(two, ranks=1) and alone.repeated == 0 < alone.compared
    assert order_fingerprint([taken(0, 2), taken(0, 2)]).repeated == alone.compared // 2


def test_there_are_no_sets_and_the_positions_of_a_generation_are_told(tiny: Config) -> None:
    task = built(tiny)
    assert task.open_data().fingerprint is None
    task.train_until(mark(1))
    taken = task.samples_taken()
    assert taken.trained == sum(map(len, taken.order)) >= tiny.hyperparameters.global_batch_size
    assert order_fingerprint([taken]).evaluated == 0


def test_a_generation_draws_its_share_of_the_window_in_whole_batches_and_ranks_divide_them() -> None:
    config = minigo("minigo_mini", *SMALL_MINIGO, "data.train_filter=0.5")
    window = [data.examples_of(records(10, 4)), data.examples_of(records(10, 3))]
    assert data.steps_of(config, 70) == 2
    alone = stream(config, window)
    assert [len(batch[2]) for batch in alone] == [12, 12]
    shares = [stream(config, window, rank=rank, ranks=2) for rank in range(2)]
    for number, whole in enumerate(alone):
        for part, tensor in enumerate(whole):
            assert torch.equal(torch.cat([share[number][part] for share in shares]), tensor)


def test_a_window_smaller_than_a_batch_still_gives_one() -> None:
    config = minigo("minigo_mini", *SMALL_MINIGO)
    (batch,) = stream(config, [data.examples_of(records(1, 5))])
    assert len(batch[2]) == 12


def test_a_position_keeps_its_targets_and_shuffled_ones_are_told_by_chance() -> None:
    """A record's policy says its number; its parity is the winner."""
    window = [data.examples_of(records(12, 40))]
    for shuffled, kept in ((False, True), (True, False)):
        config = minigo("minigo_mini", *SMALL_MINIGO, f"data.permute_labels={shuffled}")
        by_planes = {}
        for number, record in enumerate(records(12, 40)):
            for row in record.planes:
                bits = np.unpackbits(row, count=208).reshape(13, 16)
                by_planes[tuple(sorted(map(bytes, bits.T)))] = number
        found = []
        for planes, policies, winners in stream(config, window):
            for seen, policy, winner in zip(planes, policies, winners, strict=True):
                lane = round(float(policy[0]) * 17)
                assert (lane % 2 == 1) == (float(winner) == 1.0)
                found.append(by_planes[tuple(sorted(map(bytes, seen.view(13, 16).numpy().T)))] == lane)
        assert all(found) if kept else sum(found) < 0.3 * len(found)


def test_training_takes_whole_generations_and_tells_the_games(tiny: Config) -> None:
    task = opened(tiny)
    before = weights_and_buffers(task)
    progress = task.train_until(mark(1))
    assert progress.samples == 1 and progress.extras == {"actual_selfplay_games_per_generation": 6}
    assert not same(before, weights_and_buffers(task))
    assert task.train_until(mark(1)).extras == {}
    assert task.train_until(mark(3)).samples == 3
    assert 0.0 <= task.evaluate().metrics["win_rate"] <= 1.0


def test_the_window_forgets_the_oldest_generation(tiny: Config) -> None:
    tiny.data.window_size = 2
    task = opened(tiny)
    task.train_until(mark(2))
    second = task._window[1]
    task.train_until(mark(3))
    assert len(task._window) == 2 and task._window[0] is second


@pytest.mark.full
def test_the_same_seed_gives_the_same_numbers_and_an_evaluation_changes_none(tiny: Config) -> None:
    ends = []
    for seed, looks in ((1, 0), (1, 2), (2, 0)):
        task = opened(tiny, seed)
        task.train_until(mark(1))
        for _ in range(looks):
            task.evaluate()
        task.train_until(mark(2))
        ends.append((weights_and_buffers(task), task.evaluate()))
    assert same(ends[0][0], ends[1][0]) and ends[0][1] == ends[1][1]
    assert not same(ends[0][0], ends[2][0])


def test_a_warm_up_leaves_no_trace(tiny: Config) -> None:
    ends = []
    for steps in (0, 1):
        tiny.warm_up_steps = steps
        task = opened(tiny)
        task.train_until(mark(1))
        ends.append(weights_and_buffers(task))
    assert same(*ends)


def test_a_saved_run_continues_identically(tiny: Config, tmp_path: Path) -> None:
    straight = opened(tiny)
    straight.train_until(mark(2))
    straight.save(tmp_path)
    straight.train_until(mark(3))
    resumed = built(tiny, seed=99)
    resumed.load(tmp_path)
    assert resumed.train_until(mark(3)).samples == 3
    assert same(weights_and_buffers(straight), weights_and_buffers(resumed))


def test_the_loss_falls_on_synthetic_batches(tiny: Config) -> None:
    task = built(tiny)
    batch = data.synthetic(tiny, 12)
    task.forward.train()
    losses = []
    for _ in range(30):
        task.train_step(iter([batch]))
        losses.append(float(task.last_loss))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.full
def test_two_ranks_find_the_win_rate_and_the_games_that_one_finds(tiny: Config) -> None:
    one_at_a_time = threading.Lock()

    def found(parallel: OneRank) -> tuple[float, data.Examples]:
        with one_at_a_time:  # the threads share torch's generator
            task = built(tiny, parallel=parallel)
            task.open_data()
        rate = task.evaluate().metrics["win_rate"]
        task._generation = 1
        task._play_games()
        return rate, task._window[0]

    expected, games = found(OneRank())
    assert 0.0 < expected < 1.0
    for rate, examples in in_threads(2, found):
        assert rate == pytest.approx(expected, abs=1e-12)
        assert np.array_equal(examples.planes, games.planes)


def test_games_and_weights_of_a_generation_are_kept_where_asked(tiny: Config, tmp_path: Path) -> None:
    tiny.keep_folder, tiny.kept_games = str(tmp_path), 2
    task = opened(tiny, seed=5)
    task.train_until(mark(1))
    folder = tmp_path / "seed_5"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["generation_001.npz", "generation_001_game_0.sgf", "generation_001_game_1.sgf"]
    record = sgf.read(folder / "generation_001_game_0.sgf")
    assert (record.size, record.komi) == (4, 1.5) and record.moves
    tiny.opponent = str(folder / "generation_001.npz")
    playing = opened(tiny)
    assert same(list(playing._opponent.parameters()), list(task.model.parameters()))


def test_training_goes_on_from_start_weights_and_their_step(tiny: Config, tmp_path: Path) -> None:
    task = built(tiny, seed=3)
    weights.write(tmp_path / "start.npz", task.model, 5000)
    tiny.starts_from, tiny.start_weights = "checkpoint", str(tmp_path / "start.npz")
    tiny.hyperparameters.lr_boundaries, tiny.hyperparameters.lr_rates = [1000], [0.05, 0.01]
    started = built(tiny, seed=4)
    assert same(list(started.model.parameters()), list(task.model.parameters()))
    started.train_step(iter([data.synthetic(tiny, 12)]))
    assert started.optimizer.param_groups[0]["lr"] == 0.01


def test_a_diverged_run_reports_not_a_number(tiny: Config) -> None:
    task = opened(tiny)
    task.last_loss = torch.tensor(math.inf)
    assert task.evaluate().diverged


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("hyperparameters.global_batch_size=13", "global_batch_size 13 cannot be divided among 2 ranks"),
        ("search.readouts=1", r"search\.readouts is 1"),
        ("search.fast_frequency=1.0", r"search\.fast_frequency is 1\.0"),
        ("match.games=7", r"match\.games is 7"),
        ("match.opening_moves=5", r"match\.opening_moves is 5; it is 0 to 4"),
        ("match.opening_moves=-1", r"match\.opening_moves is -1; it is 0 to 4"),
        ("model.board_size=20", "2 to 19 points a side"),
    ],
)
def test_what_cannot_be_done_is_refused(overrides: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        built(minigo("minigo_mini", *SMALL_MINIGO, overrides), parallel=OneRank(size=2))


def test_prepare_says_which_file_is_missing_and_takes_no_source(tiny: Config, tmp_path: Path) -> None:
    data.prepare(tiny, tmp_path / "there", None)
    with pytest.raises(RequestError, match="no data set to prepare"):
        data.prepare(tiny, tmp_path, tmp_path)
    tiny.opponent = "absent.npz"
    with pytest.raises(RequestError, match=r"there is no file .*absent\.npz"):
        data.prepare(tiny, tmp_path, None)
    tiny.opponent = None
    with pytest.raises(RequestError, match=r"not set: benchmark\.opponent"):
        data.prepare(tiny, tmp_path, None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("opponent=untrained", r"untrained has sha256 untrained; minigo_mini is defined on f3c3c8"),
        ("start_weights=mini_opponent.npz", "are undecided and not from mini_opponent.npz"),
        ("starts_from=zero", "starts_from is 'zero'; it may be checkpoint, random, undecided"),
    ],
)
def test_neither_another_opponent_nor_other_start_weights_can_be_had(
    tmp_path: Path, overrides: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        data.prepare(minigo("minigo_mini", overrides), tmp_path, None)


def test_an_undecided_network_finds_all_moves_alike_and_no_side_ahead() -> None:
    task = built(minigo("minigo_mini", "warm_up_steps=0"))
    logits, values = task.model.eval()(data.synthetic(task.config, 3)[0])
    assert not logits.any() and not values.any()
    assert task.model.stem.conv.weight.any()


def test_a_resumed_run_plays_against_the_opponent_of_the_saved_one(tiny: Config, tmp_path: Path) -> None:
    saved = opened(tiny, seed=1)
    saved.save(tmp_path)
    for opened_first in (True, False):
        resumed = opened(tiny, seed=2) if opened_first else built(tiny, seed=2)
        resumed.load(tmp_path)
        if not opened_first:
            resumed.open_data()
        assert same(list(resumed._opponent.parameters()), list(saved._opponent.parameters()))


def test_the_seed_decides_the_untrained_opponent(tiny: Config) -> None:
    one, other = opened(tiny, 1), opened(tiny, 2)
    assert not same(list(one._opponent.parameters()), list(other._opponent.parameters()))
    assert not same(list(one._opponent.parameters()), list(one.model.parameters()))
    assert derive(1, "opponent") != derive(1, "weights")


def test_a_step_of_the_full_network_at_19x19(tmp_path: Path) -> None:
    config = minigo("minigo", "starts_from=random", "opponent=untrained", "warm_up_steps=0")
    config.hyperparameters.global_batch_size = 64
    config.search.games_at_once, config.search.readouts, config.search.fast_readouts = 1, 4, 4
    task = built(config)
    assert len(task.initialized_tensors()) == 48
    before = weights_and_buffers(task)
    task.forward.train()
    task.train_step(iter([data.synthetic(config, 64)]))
    assert math.isfinite(float(task.last_loss)) and not same(before, weights_and_buffers(task))
    assert task.optimizer.param_groups[0]["lr"] == 0.016


@pytest.mark.full
def test_kept_weights_play_the_same_match_again(tiny: Config, tmp_path: Path) -> None:
    task, again = opened(tiny, seed=5), opened(tiny, seed=5)
    task.train_until(mark(1))
    write_weights(task, job(tmp_path), OneRank())
    put_back(again, [tmp_path / "weights" / "run_0.safetensors"])
    assert again._generation == 1
    assert again.evaluate() == task.evaluate()
