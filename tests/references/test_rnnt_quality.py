"""Word error rate against jiwer, and its edges."""

from __future__ import annotations

import jiwer
import numpy as np
import pytest

from train_bench.references.rnnt.quality import edit_distance, word_errors

WORDS = ["zero", "one", "two", "a"]


def transcript(rng: np.random.Generator, least: int) -> str:
    return " ".join(rng.choice(WORDS, int(rng.integers(least, 8))))


def test_the_rate_is_that_of_jiwer_on_random_transcripts() -> None:
    rng = np.random.default_rng(0)
    pairs = [(transcript(rng, 1), transcript(rng, 0)) for _ in range(300)]
    for reference, hypothesis in pairs:
        errors, words = word_errors(reference, hypothesis)
        assert errors / words == pytest.approx(jiwer.wer(reference, hypothesis), abs=1e-12)
    counted = np.sum([word_errors(*pair) for pair in pairs], axis=0)
    expected = jiwer.wer([reference for reference, _ in pairs], [found for _, found in pairs])
    assert counted[0] / counted[1] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("one two", "", (2, 2)),
        ("", "one two", (2, 0)),
        ("", "", (0, 0)),
        ("one two", " one   two ", (0, 2)),
        ("one", "two one two two", (3, 1)),
        ("one two", "two one", (2, 2)),
        ("one two zero", "two zero", (1, 3)),
    ],
)
def test_deletions_insertions_and_replacements_count_one_each(
    reference: str, hypothesis: str, expected: tuple[int, int]
) -> None:
    assert word_errors(reference, hypothesis) == expected


def test_the_distance_is_symmetric() -> None:
    assert edit_distance("kitten", "sitting") == edit_distance("sitting", "kitten") == 3
