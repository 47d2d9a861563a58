"""Random numbers of a sample, by its position in the run."""

from __future__ import annotations

import numpy as np
import pytest

from train_bench.references.parts.generators import Generators


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_at_each_position_are_the_numbers_of_a_generator_of_its_own(seed: int) -> None:
    """Whatever was drawn at the one before: half of a word is left over where 32 bits were."""
    generators = Generators(seed)
    for number, position in enumerate([0, 1, 1, 5, 2**40, 3]):
        ours = generators.at(position)
        own = np.random.Generator(np.random.Philox(key=[seed, position]))
        for rng in (ours, own):
            rng.integers(20, size=number, dtype=np.uint32)
        assert ours.random() == own.random()
        assert ours.integers(1000) == own.integers(1000)
        assert np.array_equal(ours.standard_normal(5), own.standard_normal(5))
