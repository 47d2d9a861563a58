"""CONTRACT 1: interface of a reference, and configuration fields of every benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from train_bench.progress import Mark, Progress
from train_bench.quality import Quality

if TYPE_CHECKING:
    import numpy as np
    import torch

    from train_bench.parallel import Parallel


COMPILE_MODES = ("off", "model", "blocks", "max-autotune", "graphs")
"""Values of `compile`, besides true and false."""

MANIFEST = "manifest.json"
"""The file of prepared data that is written last."""


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """Evaluation schedule, in the benchmark's unit.

    first   the first evaluation; default: as the ruleset requires
    period  from one evaluation to the next; default: as the ruleset requires
    until   the run stops without converging after this point
    """

    first: float | None = None
    period: float | None = None
    until: float = 1.0


@dataclass(slots=True, kw_only=True)
class Hyperparameters:
    """Hyperparameters of a benchmark. Every field is spelled as its mllog key and is logged under it,
    unless it is None. A reference adds its own."""

    global_batch_size: int
    gradient_accumulation_steps: int = 1

    def logged(self) -> dict[str, Any]:
        """Logged values, by mllog key. A reference may log a value otherwise than plans spell it, which are JSON and
        have no infinite numbers."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Numbers of a network's parameters. Trained ones are in fp32.

    trained, frozen  those that every rank builds
    frozen_bytes     bytes of a frozen one
    frozen_cast      of the frozen ones, those that layers cast to the numerics of the job, and FSDP2 holds in them
    local            those of the fullest rank alone, where ranks hold different tables; their gradients are sparse
    """

    trained: int
    frozen: int = 0
    frozen_bytes: int = 4
    frozen_cast: int = 0
    local: int = 0


@dataclass(slots=True, kw_only=True)
class BenchmarkConfig:
    """Configuration fields of every benchmark; a reference adds its own.

    benchmark      its name in the log and in the rules
    reference      the folder under `references/`
    ruleset        the round whose rules apply
    train_samples  size of the training set (null where there is none); `open_data` verifies it
    eval_samples   size of the evaluation set (likewise)
    data_dir       folder of the prepared data; default: the user's cache folder
    compile        compilation by torch before the clock starts: model as a whole (also true), blocks each repeated
                   layer by itself, max-autotune as a whole with kernels chosen by their times, graphs as a whole
                   with CUDA graphs; off (also false) none
    threads_per_rank  CPU threads of a rank of a small network, which more of them make sensitive to other
                   processes; default: cores of the host divided by its ranks. The default of
                   `launcher.threads_per_rank`
    """

    benchmark: str
    reference: str
    ruleset: str
    train_samples: int | None = None
    eval_samples: int | None = None
    data_dir: str | None = None
    evaluation: Evaluation
    compile: str = "off"
    threads_per_rank: int | None = None

    TUNABLE: ClassVar[tuple[str, ...]] = (
        "hyperparameters",
        "evaluation",
        "data_dir",
        "compile",
        "threads_per_rank",
    )
    """Options that may be changed without changing the task. A reference adds those that say how its work
    is done (loader processes, memory layout), not what it is."""

    GENERATES: ClassVar[tuple[str, ...]] = ()
    """Values of `data.origin` whose data `prepare` generates; for others it needs the data set as it is distributed.
    Empty: unknown."""

    SHARDED: ClassVar[bool] = False
    """True if ranks hold different parameters and exchange what these compute (all-to-all of
    torch.distributed). A launcher that cannot do it refuses."""

    FIXED_SHAPES: ClassVar[bool] = False
    """True if convolutions get the same shapes in every training step, so that cuDNN may time its algorithms for them
    in the warm-up (`torch.backends.cudnn.benchmark`). A new shape of an evaluation costs a trial on the clock."""

    BUILT_IN_SHARDS: ClassVar[bool] = False
    """True if its task builds its network by `Parallel.construct` and evaluates it by equally many batches on every
    rank, so that ranks which shard it never hold it whole."""

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch",)
    """Packages that its data and its task import and that train_bench does not bring by itself, by the names that
    are imported. Where one is missing, nothing is started. Every launcher needs torch for a task."""

    if TYPE_CHECKING:
        # Every reference declares this field with its own type. It is no field here, because Hydra
        # would hold the reference's values to this narrower schema.
        hyperparameters: Hyperparameters

    @property
    def compile_mode(self) -> str | None:
        """Mode of compilation; None for none."""
        given = str(self.compile).lower()
        mode = {"true": "model", "false": "off"}.get(given, given)
        return None if mode == "off" else mode

    @property
    def samples_per_epoch(self) -> int | None:
        """Samples that an epoch consumes; more than `train_samples` where epochs are padded to whole
        batches."""
        return self.train_samples

    def for_ranks(self, ranks: int) -> BenchmarkConfig:
        """This configuration with the values that follow from the number of ranks filled in."""
        return self

    def distributed_data(self) -> str | None:
        """The data set that `prepare` needs as it is distributed; None if it generates the data, or if that is
        unknown."""
        origin = getattr(getattr(self, "data", None), "origin", None)
        return None if not self.GENERATES or origin in self.GENERATES else origin

    def parameter_count(self, ranks: int) -> ParameterCount | None:
        """Parameters of its network on so many ranks, from its shape alone; None for a network that every GPU holds."""
        return None

    def refuse(self) -> str | None:
        """Reason that this configuration cannot be run, as a sentence; None if it can."""
        return None

    def refuse_compilation(self, varying: str) -> str | None:
        """Reason not to compile its network, as a sentence, where `varying` changes from step to step; None if that is
        not requested."""
        if self.compile_mode is None:
            return None
        return (
            f"benchmark.compile={self.compile_mode} would compile {self.benchmark} on the clock, because {varying} "
            "from step to step; leave it out."
        )

    def refuse_tensor_parallel(self, ranks: int) -> str | None:
        """Reason that its matrices cannot be sharded over so many ranks, as a sentence; None if the attribute
        `tensor_parallel` of its model defines the sharding (`train_bench/launchers/parts/tensor_parallel.py`)."""
        return (
            f"launcher.tensor_parallel={ranks} is not for {self.benchmark}, whose model does not say how its matrices "
            "are divided among ranks; leave it out."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFingerprint:
    """A set of samples, as read by training or evaluation.

    samples   how many can be read
    left_out  samples that count and are not read (images without any object in an evaluation)
    compared  samples whose content is in `digest` and in the comparison with the other set
    digest    sha256 of their content before any augmentation, in hexadecimal
    """

    samples: int
    left_out: int
    compared: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFingerprint:
    """Data fingerprint of training and evaluation and their overlap: common files, and compared samples of the
    evaluation whose content is that of a compared training sample."""

    train: SetFingerprint
    evaluation: SetFingerprint
    files_in_common: int
    samples_in_common: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """Data set facts for the log once the data are open; None where there is no data set.

    Where progress is counted in samples and `train_samples` is None, the log reports after the last evaluation
    how many samples training took: that is the rules' definition of the key for BERT.
    """

    train_samples: int | None
    eval_samples: int | None
    fingerprint: DataFingerprint | None = None


ORDER_KEPT = 1 << 18
"""Samples, over all ranks, whose order a run tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesTaken:
    """Samples that one rank has trained and evaluated on, in the order of its loaders.

    trained     number of samples in all
    order       their numbers, an int64 array per micro-batch; of a long run the beginning, this rank's share of
                `ORDER_KEPT`
    start       position in the stream of all ranks' samples at which they begin
    epoch       length of an epoch, within which no sample comes twice; None: in the whole run none does
    carried     samples of an epoch that may come again in the next one's length, because batches of one kind of
                sample are filled over its end
    evaluated   number of samples of each evaluation, without padding
    evaluation  their numbers in the last one, int64 arrays; of a large set the beginning
    waited      seconds for which the training thread has waited for batches with its device idle; made in this thread,
                they are waited for, too; None: unknown
    """

    trained: int
    order: Sequence[np.ndarray]
    start: int = 0
    epoch: int | None = None
    carried: int = 0
    evaluated: Sequence[int] = ()
    evaluation: Sequence[np.ndarray] = ()
    waited: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRates:
    """Learning rates of training. Where parameter groups have rates of their own, the lowest of them is that of the
    step.

    first    of the first step of the run; None: unknown in a continued run
    highest  of all steps
    """

    first: float | None
    highest: float


class Task(Protocol):
    """One benchmark, as seen by the harness: `references/<name>/task.py` has a class `Task` that is
    constructed with its own typed configuration, then called in this order, once each, except for
    those marked (*)."""

    def build(self, seed: int, parallel: Parallel) -> None:
        """Model, optimizer, compilation, warm-up on synthetic batches; not timed.

        May read metadata of the dataset (sizes, vocabulary), may not read a single example.
        Afterwards weights, optimizer state, batch-norm statistics, loss scale and random generators
        are as if the warm-up had never happened, and nothing recompiles on the clock.
        """

    def initialized_tensors(self) -> Sequence[str]:
        """Names for the `weights_initialization` lines, as the rules spell them."""

    def open_data(self) -> DataFacts:
        """First touch of the dataset; the clock is running. The fingerprint is that of the sets which
        `train_until` and `evaluate` read, and costs well below a second whatever their size."""

    def train_until(self, mark: Mark) -> Progress:
        """(*) Train from the current position up to `mark.count`, rounded up to a whole batch."""

    def evaluate(self) -> Quality:
        """(*) The metrics of the closed division over the whole evaluation set. Every rank takes
        part, rank 0's answer counts. Changes nothing that training sees."""

    def samples_taken(self) -> SamplesTaken:
        """Samples that this rank has trained and evaluated on, once the clock has stopped."""

    def save(self, folder: Path) -> None:
        """(*) Write weights and training state; readable by `load` whatever the number of ranks."""

    def load(self, folder: Path) -> None:
        """(*) Continue from what `save` wrote. Called after `build`."""

    def close(self) -> None:
        """Free what was opened (workers, files). Called once, also after a failure."""


class ExportsWeights(Task, Protocol):
    """Extension of a task for `keep_weights=true` and `verify`; optional."""

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Evaluated weights and all other training state that the evaluation depends on, by name: tensors of the
        task itself, which are read once the clock has stopped, and written into after `build` and `open_data`. Each is
        the same on every rank, or whole on one."""


class ServesSamples(ExportsWeights, Protocol):
    """Extension of a task for `serve`; optional. Called on one rank, after `build`, `open_data` and the weights."""

    def served_samples(self) -> int:
        """Number of samples that can be asked for. Together they are the evaluation set."""

    def load_samples(self, indices: Sequence[int]) -> None:
        """(*) Read these samples into memory, as the network takes them; not timed."""

    def unload_samples(self, indices: Sequence[int]) -> None:
        """(*) Free them."""

    def answer(self, indices: Sequence[int]) -> Sequence[bytes]:
        """(*) Answers to loaded samples, in the order of `indices`; timed. An answer follows from its sample and from
        the weights, not from its neighbours, and nothing of it is kept for the next call."""

    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """(*) Metrics of the answers to all samples, in the order of their indices: those of `evaluate`."""

    def served_model(self) -> torch.nn.Module:
        """Module that gives the answers: its linear layers may be replaced by quantised ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSheet:
    """Samples that a generative model has drawn, beside samples of its data, for the report page.

    about     how they were drawn, in sentences for readers
    rows      by label (a prompt), uint8 (samples, rows, columns, 3) twice: those of the model, and of the data; 1 to
              256 samples, rows and columns, and less than 3 MiB in all
    measures  by name, a figure of the model's samples and of the data's
    """

    about: str
    rows: Mapping[str, tuple[np.ndarray, np.ndarray]]
    measures: Mapping[str, tuple[float, float]]


class DrawsSamples(Task, Protocol):
    """Extension of a generative task, whose samples people may look at; optional. Judged by nothing."""

    def draw_samples(self) -> SampleSheet | None:
        """Samples of the model, once the clock has stopped; None where there is nothing to look at. Every rank takes
        part, rank 0's answer counts. An error of one rank ends the drawing of all, and leaves the result."""


class ReportsLearningRates(Task, Protocol):
    """Extension of a task that reports its learning rates; optional."""

    def learning_rates(self) -> LearningRates | None:
        """Learning rates of this rank's training, once the clock has stopped; None before the first step."""


class StopsBetweenSteps(Task, Protocol):
    """Extension of a task whose blocks are many steps, for ranks that are warned of their end; optional. Others leave
    between blocks."""

    interrupted: Callable[[], bool]
    """Asked after each step, by every rank alike. True: `train_until` returns there; a later one trains the rest."""


class DryTask(Task, Protocol):
    """Extension of a task for `plan --dry`; optional. Called after `build`, whose tensors are then meta tensors,
    without memory and values. A task may also have `dry_notes()`, sentences on what the numbers of a dry run leave out,
    `device_sets()`, bytes of data sets that a GPU holds while it trains, and, where it pads samples, a keyword `share`
    of `synthetic`: samples that are shorter by it."""

    def synthetic(self, samples: int) -> Any:
        """A synthetic micro-batch of so many samples; reads no data. Called with 1 and with 2, with values; larger ones
        are extrapolated from both."""

    def iterate(self, batch: Any) -> None:
        """One iteration; all its micro-batches are `batch`: forward passes, losses, `backward` and `step` of the
        `Parallel`. May not depend on values of tensors."""


class Prepare(Protocol):
    """`references/<name>/data.py` has a function `prepare` of this shape: all allowed preparation of the dataset before
    any run. Never timed, resumable, verified. It writes `MANIFEST` into the folder last, any JSON, by which `list` and
    `plan` know that the data are prepared completely."""

    def __call__(self, config: Any, folder: Path, source: Path | None) -> None: ...
