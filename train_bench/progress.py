"""Progress of training, and evaluation points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Unit(str, Enum):
    """Unit of a benchmark's progress, as in its logs and reference convergence points."""

    EPOCH = "epoch"
    SAMPLE = "sample"
    STEP = "step"
    TOKEN = "token"
    GENERATION = "generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A point of training at which quality is evaluated, and the block of training that leads to it.

    `count` is for the task: samples (or generations) since the start of training, an
    integer. The other three are for the log, in the benchmark's unit: `epoch_num` on the
    evaluation, `first_epoch_num` and `epoch_count` on the block. With `samples_count`, the evaluation
    has it under that name, too.
    """

    count: int
    epoch_num: float
    first_epoch_num: float
    epoch_count: float
    samples_count: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Result of `Task.train_until`: samples consumed since the start of training, and the extra values (key -> value)
    that the rules require for the block, almost always none."""

    samples: int
    extras: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSchedule:
    """Evaluate at `first`, then every `period`, up to and including `until`; in the benchmark's unit.

    start             the logged position before any training: 0, or 1 where it counts the epoch that is under way
                      (DLRM, whose epoch 1.05 is a twentieth of the data)
    samples_per_unit  size of the training set where the unit is an epoch, 1 where it is a sample or a generation
    samples_count     whether logs call the position of an evaluation so, too, as some rounds ask for
    """

    first: float
    period: float
    until: float
    start: float = 0.0
    samples_per_unit: int = 1
    samples_count: bool = False

    def points(self) -> tuple[float, ...]:
        """The positions of all evaluations. Whole numbers stay integers."""
        count = int((self.until - self.first) / self.period + 1e-9) + 1 if self.until >= self.first else 0
        return tuple(_tidy(self.first + index * self.period) for index in range(count))

    def marks(self) -> tuple[Mark, ...]:
        """One mark per evaluation.

        Blocks are numbered from 1 as the rules number epochs: the block that ends at epoch 2 with
        two epochs in it has `first_epoch_num` 1.
        """
        marks = []
        before = self.start
        for point in self.points():
            marks.append(
                Mark(
                    count=round((point - self.start) * self.samples_per_unit),
                    epoch_num=point,
                    first_epoch_num=_tidy(before + 1 - self.start),
                    epoch_count=_tidy(point - before),
                    samples_count=self.samples_count,
                )
            )
            before = point
        return tuple(marks)


def _tidy(value: float) -> float:
    rounded = round(value, 6)
    return int(rounded) if rounded == int(rounded) else rounded
