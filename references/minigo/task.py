"""Reinforcement learning: self-play of Go, trained to a target win rate against the target model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from train_bench.errors import RequestError
from train_bench.parallel import Parallel
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references.minigo import data, game, sgf, weights
from train_bench.references.minigo.config import Config
from train_bench.references.minigo.model import Network, tensor_names
from train_bench.references.minigo.quality import Match
from train_bench.references.minigo.recipe import loss_of, optimizer_of, schedule_of
from train_bench.references.minigo.selfplay import Infer, Record, SelfPlay, seed_of_generation
from train_bench.references.parts import checkpoint, loading, stream
from train_bench.references.parts.compilation import compile_model
from train_bench.references.parts.layout import layout_of
from train_bench.references.parts.training import non_finite
from train_bench.seeds import derive
from train_bench.task import DataFacts, SamplesTaken
from train_bench.warm_up import without_trace


class Task:
    """The benchmark `minigo` and its smaller scales; see `train_bench.task.Task` for the contract."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._generations = torch.zeros((), dtype=torch.int64)
        self.optimizer_steps = 0
        self._window: list[data.Examples] = []
        self._opponent: nn.Module | None = None
        self._learnt = loading.Record()

    @property
    def _generation(self) -> int:
        """Number of generations. A match is drawn from it, so that it belongs to the weights."""
        return int(self._generations)

    @_generation.setter
    def _generation(self, count: int) -> None:
        self._generations.fill_(count)

    def build(self, seed: int, parallel: Parallel) -> None:
        """Network, optimizer, schedule, room for the trees, warm-up. Start weights are read here, as those of any
        other network."""
        config = self.config
        self.seed, self.parallel = seed, parallel
        self.microbatches = config.hyperparameters.gradient_accumulation_steps
        _refuse(config, parallel.size)
        self.local_batch_size = config.hyperparameters.global_batch_size // (
            parallel.size * self.microbatches
        )
        self._schedule = schedule_of(config)
        torch.manual_seed(derive(seed, "weights"))
        # Convolutions whose weights are in a layout give their outputs in it, whatever their inputs' is.
        self._layout = layout_of(config.model.channels_last, parallel)
        self.model = Network(config.model).to(parallel.device).to(memory_format=self._layout)
        if config.starts_from == "undecided":
            for layer in (self.model.policy_out, self.model.value_out):
                nn.init.zeros_(layer.weight)
        start = data.start_file(config)
        self._first_step = 0 if start is None else weights.read(start, self.model)
        compile_model(self.model, config.compile_mode, parallel.device)
        self.optimizer = optimizer_of(self.model, config)
        self.forward = parallel.wrap(
            self.model, self.optimizer, gradient_accumulation_steps=self.microbatches
        )
        self._selfplay = SelfPlay(config)
        self._match = Match(config)
        self.warm_up()

    def warm_up(self) -> None:
        """Steps and inference on synthetic data, undone, and a game on the smallest board, which compiles the
        engine and the search."""
        config, parallel = self.config, self.parallel
        if config.warm_up_steps:
            with without_trace(self.model, self.optimizer, parallel):
                micro = self.synthetic(self.local_batch_size)
                least = 2 if config.compile_mode == "graphs" else 1  # recorded when called again
                for _ in range(max(config.warm_up_steps, least)):
                    self.iterate(micro)
                self.forward.eval()
                infer, points = self._infer(self.forward), config.model.board_size**2
                for _ in range(least):
                    infer(np.zeros((self._most_leaves(), game.PLANES, points), np.uint8))
        self.optimizer_steps = self._first_step
        self.last_loss = torch.zeros((), device=parallel.device)
        if config.warm_up_steps:
            _compile_games(config)

    def initialized_tensors(self) -> Sequence[str]:
        """All variables, as the rules name them (48 for the full model)."""
        return tensor_names(self.model)

    def synthetic(self, samples: int) -> data.Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def iterate(self, batch: data.Batch) -> None:
        """One iteration; all its micro-batches are `batch`."""
        self.forward.train()
        self.train_step(iter([batch] * self.microbatches))

    def dry_notes(self) -> Sequence[str]:
        """Limitations of a dry run's numbers."""
        search, games = self.config.search, self.config.hyperparameters.min_selfplay_games_per_generation
        fast = search.fast_frequency
        evaluations = fast * search.fast_readouts + (1 - fast) * search.readouts
        return (
            f"A step learns from positions that were played. Of self-play, which is not counted, a move takes about "
            f"{evaluations:g} evaluations of the network, each a forward pass of one position, and a generation "
            f"{games} games; how many moves a game has is not known before it is played.",
        )

    def open_data(self) -> DataFacts:
        """Read the target model. Games are made on the clock."""
        self._opponent = self._target_model()
        return data.facts(self.config)

    def _target_model(self) -> nn.Module:
        """The model that is played against."""
        torch.manual_seed(derive(self.seed, "opponent"))
        opponent = Network(self.config.model)
        file = data.opponent_file(self.config)
        if file is not None:
            weights.read(file, opponent)
        return opponent.to(self.parallel.device).to(memory_format=self._layout).eval()

    def train_until(self, mark: Mark) -> Progress:
        """Whole generations until `mark.count`: games, then a pass over a sample of the window."""
        games = 0
        while self._generation < mark.count:
            self._generation += 1
            games = self._play_games()
            self._learn()
        return Progress(
            samples=self._generation, extras={"actual_selfplay_games_per_generation": games} if games else {}
        )

    def _play_games(self) -> int:
        """Each rank plays its share; every rank then has the positions of all."""
        config, parallel = self.config, self.parallel
        wanted = config.hyperparameters.min_selfplay_games_per_generation
        self.forward.eval()
        mine = list(
            self._selfplay.play(
                self._infer(self.forward),
                range(parallel.rank, wanted, parallel.size),
                seed_of_generation(self.seed, self._generation),
            )
        )
        gathered = parallel.gather_objects(mine)
        records = [record for part in gathered or () for record in part]
        if parallel.rank == 0:
            self._keep_games(records)
        known = parallel.from_rank_zero(data.examples_of(records) if parallel.rank == 0 else None)
        assert known is not None, "rank 0 has the games"
        self._window = [*self._window, known][-config.data.window_size :]
        return wanted

    def _learn(self) -> None:
        """One pass over this generation's sample of the window."""
        parallel = self.parallel
        self.forward.train()
        batches = self._learnt.of(
            data.batches(
                self.config,
                self._window,
                seed=self.seed,
                generation=self._generation,
                rank=parallel.rank,
                ranks=parallel.size,
            )
        )
        for _ in range(data.steps_of(self.config, sum(len(part) for part in self._window))):
            self.train_step(batches)
        parallel.sync_buffers()
        if parallel.rank == 0:
            self._keep_weights()

    def train_step(self, batches: Iterator[data.Batch]) -> None:
        """One step of the global batch; the loss is its mean."""
        parallel = self.parallel
        for microbatch in range(1, self.microbatches + 1):
            planes, policies, winners = (
                part.to(parallel.device, non_blocking=True) for part in next(batches)
            )
            with parallel.forward(last_microbatch=microbatch == self.microbatches):
                logits, values = self.forward(planes)
                loss = loss_of(logits, values, policies, winners)
                parallel.backward(loss / self.microbatches)
        self.last_loss = loss.detach()
        self.step()

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._schedule(self.optimizer_steps)
        self.optimizer_steps += bool(self.parallel.step())

    def skip(self, iterations: int) -> None:
        """Go through so many iterations without their batches: of each, its learning rate and its `step` are left."""
        for _ in range(iterations):
            self.step()

    def _infer(self, network: nn.Module) -> Infer:
        """Network inference of the search, in evaluation mode. A compiled network, which the opponent is not, gets
        equally many positions in every call."""
        device, size = self.parallel.device, self.config.model.board_size
        least = self._most_leaves() if self.config.compile_mode and network is self.forward else 0

        def infer(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            seen = torch.from_numpy(planes).to(device).view(-1, game.PLANES, size, size)
            if least:  # a copy in any case: torch compiles views apart
                seen = torch.cat([seen, seen.new_zeros(least - len(planes), *seen.shape[1:])])
            with self.parallel.inference():
                logits, values = (each[: len(planes)].float() for each in network(seen))
            return _as_array(torch.softmax(logits, dim=1)), _as_array(values)

        return infer

    def _most_leaves(self) -> int:
        """Positions that the search hands over at once, of all games that this rank plays side by side, at most."""
        search, games = self.config.search, -(-self.config.match.games // self.parallel.size)
        return search.virtual_losses * max(search.games_at_once, games)

    def evaluate(self) -> Quality:
        """`win_rate` against the target model; NaN once the loss is not finite. Each rank plays its share of the
        games, which are the same whatever the number of ranks."""
        assert self._opponent is not None, "open_data comes first"
        parallel, games = self.parallel, self.config.match.games
        self.forward.eval()
        won = self._match.play(
            self._infer(self.forward),
            self._infer(self._opponent),
            range(parallel.rank, games, parallel.size),
            derive(self.seed, "match", self._generation),
        )
        self.forward.train()
        broken = int(non_finite(self.last_loss))
        total, diverged = parallel.sum(torch.tensor([won, broken], device=parallel.device)).tolist()
        return Quality(metrics={"win_rate": math.nan if diverged else total / games})

    def samples_taken(self) -> SamplesTaken:
        """The positions that this rank has learnt from in the latest generation."""
        return SamplesTaken(
            trained=sum(self._learnt.counts),
            order=self._learnt.beginning(self.parallel.size),
        )

    def _kept_in(self) -> Path | None:
        """Folder of this run's games and weights; None if they are not kept."""
        if self.config.keep_folder is None:
            return None
        folder = Path(self.config.keep_folder).expanduser() / f"seed_{self.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _keep_games(self, records: list[Record]) -> None:
        """Write the first games of a generation as SGF if a folder is configured."""
        config, folder = self.config, self._kept_in()
        if folder is None:
            return
        name = f"generation {self._generation}"
        for record in sorted(records, key=lambda record: record.number)[: config.kept_games]:
            written = sgf.GameRecord(
                size=config.model.board_size,
                komi=config.search.komi,
                moves=record.moves,
                result=sgf.result_of(record.winner, record.margin),
            )
            file = folder / f"generation_{self._generation:03d}_game_{record.number}.sgf"
            file.write_text(sgf.text_of(written, black=name, white=name), encoding="utf-8")

    def _keep_weights(self) -> None:
        """Write the network of a generation if a folder is configured."""
        folder = self._kept_in()
        if folder is not None:
            weights.write(folder / f"generation_{self._generation:03d}.npz", self.model, self.optimizer_steps)

    def weights(self) -> Mapping[str, Tensor]:
        """The network, and the number of generations, from which the games of a match follow."""
        return {**self.model.state_dict(), "generations": self._generations}

    def save(self, folder: Path) -> None:
        """Called by every rank; rank 0 writes, in one step."""
        counters = {
            "seed": self.seed,
            "step": self.optimizer_steps,
            "generation": self._generation,
            "window": [
                [torch.from_numpy(array) for array in (known.planes, known.policies, known.winners)]
                for known in self._window
            ],
        }
        checkpoint.save(folder, self.parallel, self.model, self.optimizer, counters)

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. Games and order follow the seed of the
        run that was saved."""
        counters = checkpoint.load(folder, self.parallel, self.model, self.optimizer)
        self.seed, self.optimizer_steps, self._generation = (
            counters[name] for name in ("seed", "step", "generation")
        )
        self._window = [
            data.Examples(planes=planes.numpy(), policies=policies.numpy(), winners=winners.numpy())
            for planes, policies, winners in counters["window"]
        ]
        if self._opponent is not None:
            self._opponent = self._target_model()

    def close(self) -> None:
        """No-op: no resources to free."""


def _as_array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.cpu().numpy())


def _compile_games(config: Config) -> None:
    """Play a game and a match on the smallest board with the fewest readouts."""
    small = replace(
        config,
        model=replace(config.model, board_size=2),
        search=replace(config.search, readouts=8, fast_readouts=4, fast_frequency=0.5, games_at_once=2),
        match=replace(config.match, games=2, readouts=8, opening_moves=1),
    )

    def uniform(planes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full((len(planes), 5), 0.2, np.float32), np.zeros(len(planes), np.float32)

    list(SelfPlay(small).play(uniform, range(4), seed=0))
    Match(small).play(uniform, uniform, range(2), seed=0)


def _refuse(config: Config, ranks: int) -> None:
    """Raises RequestError for what this number of ranks or this search cannot do."""
    stream.refuse_uneven_batches(config.hyperparameters, ranks)
    search = config.search
    for name, value in (
        ("search.readouts", search.readouts),
        ("search.fast_readouts", search.fast_readouts),
        ("match.readouts", config.match.readouts),
    ):
        if value < 2:
            raise RequestError(
                f"{name} is {value}; a search needs 2 at least, the first of which is the root's."
            )
    if not 0.0 <= search.fast_frequency < 1.0:
        raise RequestError(
            f"search.fast_frequency is {search.fast_frequency}; it is 0 or more and less than 1, because nothing is "
            "learnt from fast moves."
        )
    if config.match.games < 2 or config.match.games % 2:
        raise RequestError(f"match.games is {config.match.games}; half of them are played with each colour.")
    if not 0 <= config.match.opening_moves <= config.model.board_size:
        raise RequestError(
            f"match.opening_moves is {config.match.opening_moves}; it is 0 to {config.model.board_size}, the points a "
            "side, so that no game ends in its opening."
        )
