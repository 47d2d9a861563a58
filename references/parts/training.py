"""Training loop over a data set, independent of the benchmark: `class Task(TrainingTask[...])`.

A benchmark defines, in the order of a run:

    build_model()           model and optimizer, with random weights from torch's generator, which is seeded, and
                            `tensor_names` for the log, if the parameters' own are not those of the rules
    warm_up()               steps and an evaluation batch on synthetic data; what it does is undone
    open_data()             opens the data sets and ends with `self.use_loaders(train, evaluation)`
    train_step(batches)     one iteration: micro-batches, losses, optimizer step, learning rate
    evaluate()              the metrics over `for batch in self.evaluation_batches()`

and this class does the rest of `train_bench.task.Task`: it counts, undoes the warm-up, saves, continues. A training
step is written as

    for images, labels in self.micro_batches(batches):
        loss = cross_entropy(self.forward(images.to(self.parallel.device)), ...)
        self.backward(loss)
    self.step(rate(self.optimizer_steps))
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from train_bench.parallel import Parallel, Stepped
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references.parts import checkpoint, loading, stream
from train_bench.references.parts.compilation import compile_model
from train_bench.references.parts.prefetch import side_of
from train_bench.seeds import derive
from train_bench.task import DataFacts, DataFingerprint, Hyperparameters, LearningRates, SamplesTaken
from train_bench.warm_up import without_trace


class TrainingConfig(Protocol):
    """Configuration fields that this loop reads.

    warm_up_steps  iterations on synthetic batches before the clock, which are undone; 0 disables it
    """

    @property
    def hyperparameters(self) -> Hyperparameters: ...
    @property
    def compile_mode(self) -> str | None: ...
    @property
    def warm_up_steps(self) -> int: ...


C = TypeVar("C", bound=TrainingConfig)
B = TypeVar("B")


def non_finite(*tensors: Tensor) -> Tensor:
    """() int64: 1 if a value of `tensors` is NaN or infinite, else 0."""
    return torch.stack([~torch.isfinite(tensor).all() for tensor in tensors]).any().long()


class TrainingTask(ABC, Generic[C, B]):
    """Training with configuration `C` on micro-batches of type `B`.

    config               the configuration
    seed, parallel       of the run, since `build`
    microbatches         per iteration and rank
    local_batch_size     samples of a micro-batch
    model, optimizer     what `build_model` gave
    interrupted          asked after each step: whether the block ends there, to be continued in another process
    tensor_names         of what starts from random weights, as the rules name it; None is all parameters
    forward              the module whose forward is called in training and evaluation
    last_loss            () the loss of the latest micro-batch, 0 before the first
    iterations           global batches that were taken
    optimizer_steps      iterations but for those whose step was skipped for an overflow
    _first_rate          the learning rate of the first of these, None before it
    _highest_rate        of all of these
    _latest              result and learning rate of the latest step, if it is not in these numbers yet
    """

    seed: int
    parallel: Parallel
    microbatches: int
    local_batch_size: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    interrupted: Callable[[], bool] = staticmethod(lambda: False)
    tensor_names: Sequence[str] | None = None
    forward: nn.Module
    last_loss: Tensor

    EVALUATES_COPIES: ClassVar[bool] = False
    """True if evaluation uses all tensors of its batches on the device, so that they come there as those of training
    do."""

    def __init__(self, config: C) -> None:
        self.config = config
        self._latest: tuple[Stepped, float | None] | None = None
        self.iterations = 0
        self.optimizer_steps = 0
        self._first_rate: float | None = None
        self._highest_rate: float | None = None
        self._train: loading.Loader | None = None
        self._eval: loading.Loader | None = None
        self._batches: Iterator[B] | None = None

    @property
    def optimizer_steps(self) -> int:
        """Steps so far. Whether the latest was skipped may be known to the device alone; it is asked for here, after
        the backward passes of the next one were queued, so that the device has work meanwhile."""
        self._count_latest()
        return self._optimizer_steps

    @optimizer_steps.setter
    def optimizer_steps(self, count: int) -> None:
        self._latest = None
        self._optimizer_steps = count

    # Abstract: defined by a benchmark.

    @abstractmethod
    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """The model on `self.parallel.device` and its optimizer. Reads no data. Torch's generator was seeded with
        the run's seed just before; `seed`, `parallel` and the sizes of batches are known."""

    @abstractmethod
    def warm_up(self) -> None:
        """`self.run_warmup(synthetic batch)`, then an evaluation batch, so that nothing is compiled on the clock. Not
        called if `warm_up_steps` is 0."""

    @abstractmethod
    def open_data(self) -> DataFacts:
        """Open the data sets, then `self.use_loaders(...)`. Called again when a run is continued from a checkpoint:
        order and augmentation follow `self.seed`, and `self.sampler(order)` begins at the present iteration."""

    @abstractmethod
    def train_step(self, batches: Iterator[B]) -> None:
        """One iteration, as the head of this file shows; takes `microbatches` of `batches`, in training mode."""

    @abstractmethod
    def evaluate(self) -> Quality:
        """Metrics of the whole evaluation set, which `self.evaluation_batches()` gives, on rank 0 at least; NaN once
        `self.has_diverged()`."""

    # The contract.

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, optimizer, compilation, warm-up."""
        hyperparameters = self.config.hyperparameters
        stream.refuse_uneven_batches(hyperparameters, parallel.data_ranks)
        self.seed, self.parallel = seed, parallel
        self.microbatches = hyperparameters.gradient_accumulation_steps
        self.local_batch_size = hyperparameters.global_batch_size // (parallel.data_ranks * self.microbatches)
        self.last_loss = torch.zeros((), device=parallel.device)
        torch.manual_seed(derive(seed, "weights"))
        self.model, self.optimizer = self.build_model()
        self.forward = self._wrapped()
        if self.config.warm_up_steps:
            with self._without_trace():
                for _ in range(
                    2 if self.config.compile_mode == "graphs" else 1
                ):  # recorded when called again
                    self.warm_up()
        self.iterations = self.optimizer_steps = 0
        self._first_rate = self._highest_rate = None
        self.last_loss = torch.zeros((), device=parallel.device)

    def initialized_tensors(self) -> Sequence[str]:
        """Names in the rules, else all parameters by their names in the model."""
        if self.tensor_names is not None:
            return self.tensor_names
        return [name for name, _ in self.model.named_parameters()]

    def train_until(self, mark: Mark) -> Progress:
        """Train whole batches until `mark.count` samples are consumed. After an overflow the schedule skips the step;
        the data do not."""
        assert self._batches is not None, "open_data comes first"
        batch_size = self.config.hyperparameters.global_batch_size
        self.forward.train()
        for _ in range(self.iterations, math.ceil(mark.count / batch_size)):
            self.train_step(self._batches)
            if self.interrupted():
                break
        return Progress(samples=self.iterations * batch_size)

    def samples_taken(self) -> SamplesTaken:
        """Samples that this rank has trained and evaluated on."""
        assert self._train is not None and self._eval is not None, "open_data comes first"
        return loading.samples_taken(self._train, self._eval)

    def learning_rates(self) -> LearningRates | None:
        """With which rates this rank has trained; the warm-up before the clock does not count."""
        self._count_latest()
        if self._highest_rate is None:
            return None
        first = None if self._first_rate is None else float(self._first_rate)
        return LearningRates(first=first, highest=float(self._highest_rate))

    def weights(self) -> Mapping[str, Tensor]:
        """Parameters and buffers of the model that this rank has."""
        return self.model.state_dict()

    def save(self, folder: Path) -> None:
        """Called by every rank; rank 0 writes, in one step."""
        checkpoint.save(folder, self.parallel, self.model, self.optimizer, self._counters())

    def load(self, folder: Path) -> None:
        """Called by every rank after `build`, before or after `open_data`. All that is drawn follows the seed of the
        run that was saved."""
        self._continue_from(checkpoint.load(folder, self.parallel, self.model, self.optimizer))

    def close(self) -> None:
        """Stop the loaders' processes."""
        self._batches = self._train = self._eval = None

    # Helpers that a benchmark calls and may override.

    def _wrapped(self) -> nn.Module:
        """The wrapped model, compiled if configured."""
        compile_model(self.model, self.config.compile_mode, self.parallel.device)
        return self.parallel.wrap(self.model, self.optimizer, gradient_accumulation_steps=self.microbatches)

    @contextmanager
    def _without_trace(self) -> Iterator[None]:
        """Afterwards model, optimizer and generators are as they were (rules: initialisation may not change them)."""
        with without_trace(self.model, self.optimizer, self.parallel):
            yield

    def run_warmup(self, batch: B) -> None:
        """`warm_up_steps` iterations on a synthetic micro-batch, then evaluation mode."""
        for _ in range(self.config.warm_up_steps):
            self.train_step(iter([batch] * self.microbatches))
        self.forward.eval()

    def iterate(self, batch: B) -> None:
        """One iteration; all its micro-batches are `batch`."""
        if not self.forward.training:  # setting it visits every module, which steps of a run do not wait for
            self.forward.train()
        self.train_step(iter([batch] * self.microbatches))

    def skip(self, iterations: int) -> None:
        """Go through so many iterations without their batches: of each, its learning rate and its `step` are left."""
        microbatches, self.microbatches = self.microbatches, 0
        for _ in range(iterations):
            self.train_step(iter(()))
        self.microbatches = microbatches

    def sampler(self, order: stream.Order) -> stream.Sampler:
        """This rank's micro-batches of `order` from the present iteration on."""
        return stream.Sampler(
            order=order,
            global_batch_size=self.config.hyperparameters.global_batch_size,
            microbatches=self.microbatches,
            rank=self.parallel.data_rank,
            ranks=self.parallel.data_ranks,
            first_iteration=self.iterations,
        )

    def use_loaders(
        self, train: loading.Loader, evaluation: loading.Loader, *, eval_left_out: int = 0
    ) -> DataFingerprint:
        """Train and evaluate on these loaders from now on. `eval_left_out` samples of the evaluation set count and are
        not read. On a GPU training batches come on it, but for parts of classes of a benchmark's own."""
        device = self.parallel.device
        self._train, self._eval = train, evaluation
        self._batches = train.copied_by(side_of(device), device)
        return loading.fingerprint_of(train, evaluation, eval_left_out=eval_left_out)

    def evaluation_files(self) -> list[Path]:
        """Files of the evaluation set that training does not read."""
        train, evaluation = (
            one.samples.stored.files() for one in (self._train, self._eval) if one is not None
        )
        return sorted({path.resolve() for path in evaluation} - {path.resolve() for path in train})

    def micro_batches(self, batches: Iterator[B]) -> Iterator[B]:
        """The micro-batches of an iteration, as the loader gives them. The body of the loop over them runs in the
        job's numerics and ends with `backward`."""
        for number in range(1, self.microbatches + 1):
            batch = next(batches)
            with self.parallel.forward(last_microbatch=number == self.microbatches):
                yield batch

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of () `loss`, the mean over this rank's micro-batch."""
        kept = loss.detach()
        # The memory of a CUDA graph's output is used again by the next call.
        self.last_loss = kept.clone() if self.config.compile_mode == "graphs" else kept
        self.parallel.backward(loss / self.microbatches)

    def step(self, rate: float | None = None, *, clip_norm: float | None = None) -> Stepped:
        """Average the gradients of all ranks, clip their global norm, update with learning rate `rate`, or with the
        rates of the optimizer's groups. False if the step was skipped for an overflow."""
        self._count_latest()
        if rate is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        rates = [group["lr"] for group in self.optimizer.param_groups]
        unread = any(isinstance(each, Tensor) for each in rates)
        stepped = self.parallel.step(clip_norm=clip_norm)
        self._latest = stepped, None if unread else min(rates)
        self.iterations += 1
        return stepped

    def _count_latest(self) -> None:
        """Count the latest step and its learning rate, unless it was skipped. Tensor rates are not read."""
        if self._latest is None:
            return
        (stepped, rate), self._latest = self._latest, None
        if not stepped:
            return
        if rate is not None:
            if self._optimizer_steps == 0:
                self._first_rate = rate
            if self._highest_rate is None or rate > self._highest_rate:
                self._highest_rate = rate
        self._optimizer_steps += 1

    def evaluation_batches(self) -> Iterator[Any]:
        """This rank's batches of the evaluation set, with the model in evaluation mode and batch-norm statistics
        averaged over ranks, until the loop over them has ended."""
        assert self._eval is not None, "open_data comes first"
        self.parallel.sync_buffers()
        self.forward.eval()
        device = self.parallel.device
        yield from self._eval.copied_by(side_of(device) if self.EVALUATES_COPIES else None, device)
        self.forward.train()

    def infer(self, *inputs: Any) -> Any:
        """Model outputs without gradients, in the numerics of the job."""
        with self.parallel.inference():
            return self.forward(*inputs)

    def reduce_over_eval(self, measure: Callable[[Any], Tensor], start: Tensor) -> Tensor:
        """This rank's `start`, and what `measure` gives for each of its batches of the evaluation set, added up and
        summed over ranks."""
        total = start
        for batch in self.evaluation_batches():
            total = total + measure(batch)
        return self.parallel.sum(total)

    def has_diverged(self, *outputs: Tensor) -> bool:
        """True if the latest loss or a value of `outputs` is NaN or infinite on any rank. One collective; an
        evaluation that has a sum of its own adds `non_finite` to it."""
        return bool(self.parallel.sum(non_finite(self.last_loss, *outputs)).item())

    def derived_seed(self, purpose: str, *numbers: int) -> int:
        """A seed for `purpose` that follows from the run's."""
        return derive(self.seed, purpose, *numbers)

    def _counters(self) -> dict[str, Any]:
        """Counters of a checkpoint, besides weights and state."""
        self._count_latest()
        return {
            "seed": self.seed,
            "step": self.optimizer_steps,
            "taken": self.iterations,
            "first_rate": self._first_rate,
            "highest_rate": self._highest_rate,
        }

    def _continue_from(self, counters: Mapping[str, Any]) -> None:
        """Go on as the run with these counters would. A checkpoint that was written before rates were in it leaves
        the first one unknown, and the highest is that of the steps from here on."""
        self.seed, self.optimizer_steps, self.iterations = (
            counters[name] for name in ("seed", "step", "taken")
        )
        self._first_rate, self._highest_rate = (
            counters.get(f"{which}_rate") for which in ("first", "highest")
        )
        if self._batches is not None:
            self.open_data()
