"""Serving of a trained model: a task's samples, loaded one by one before they are asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

from torch import nn

from train_bench.quality import Quality
from train_bench.references.parts.training import TrainingConfig, TrainingTask

C = TypeVar("C", bound=TrainingConfig)
B = TypeVar("B")


class ServesEvaluationSet(TrainingTask[C, B]):
    """Part of a `TrainingTask` that serves its evaluation set; a benchmark defines

    served_samples()      how many samples there are
    served_sample(index)  one as the network takes it
    answers(samples)      an answer to each of several, as bytes
    quality_of(answers)   the metrics of `evaluate`

    Networks of floating-point answers take samples one by one: in a batch of another size, sums are rounded otherwise,
    and the answers of two tests could not be compared bit by bit.
    """

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self._loaded: dict[int, Any] = {}

    @abstractmethod
    def served_samples(self) -> int:
        """Number of samples."""

    @abstractmethod
    def served_sample(self, index: int) -> Any:
        """A sample of the evaluation set in memory."""

    @abstractmethod
    def answers(self, samples: Sequence[Any]) -> Sequence[bytes]:
        """Answers to samples in their order."""

    @abstractmethod
    def quality_of(self, answers: Sequence[bytes]) -> Quality:
        """Metrics of the answers to all samples."""

    def load_samples(self, indices: Sequence[int]) -> None:
        """Read samples; from here on the network is in evaluation mode."""
        self.forward.eval()
        self._loaded |= {index: self.served_sample(index) for index in indices}

    def unload_samples(self, indices: Sequence[int]) -> None:
        """Free samples."""
        for index in indices:
            self._loaded.pop(index, None)

    def answer(self, indices: Sequence[int]) -> Sequence[bytes]:
        """Answers to loaded samples."""
        return self.answers([self._loaded[index] for index in indices])

    def served_model(self) -> nn.Module:
        """The trained network."""
        return self.model
