"""The mini target asks for more than answers that do not listen reach on the same utterances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from references.rnnt import data
from references.rnnt.config import Config
from references.rnnt.quality import word_errors
from references.rnnt.tokens import text_of
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("rnnt_mini").target.thresholds[0].value


def rate(answer: Callable[[int], str], transcripts: list[str]) -> float:
    counts = [word_errors(wanted, answer(index)) for index, wanted in enumerate(transcripts)]
    return sum(errors for errors, _ in counts) / sum(words for _, words in counts)


def test_no_answer_that_does_not_listen_comes_near_the_mini_target(
    mini_rnnt: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing; the most frequent transcript; the most frequent words, as many as were said; the transcript of
    the training utterance that lasts as long."""
    train, val, symbols = data.open_recordings(mini_rnnt)
    known, wanted = ([text_of(numbers, symbols) for numbers in split.tokens] for split in (train, val))
    (frequent, _), *_ = Counter(known).most_common(1)
    words = [word for word, _ in Counter(word for text in known for word in text.split()).most_common(3)]
    nearest = [int(abs(train.lengths - length).argmin()) for length in val.lengths]
    rates = {
        "nothing": rate(lambda _index: "", wanted),
        "the most frequent transcript": rate(lambda _index: frequent, wanted),
        "frequent words": rate(lambda index: " ".join(words[: len(wanted[index].split())]), wanted),
        "length alone": rate(lambda index: known[nearest[index]], wanted),
    }
    with capsys.disabled():
        told = ", ".join(f"{name} {value:.4f}" for name, value in rates.items())
        print(f"\nWER of {told}, target {TARGET}")  # noqa: T201
    assert min(rates.values()) > TARGET + 0.5


def test_most_evaluation_utterances_are_not_among_the_training_ones(mini_rnnt: Config) -> None:
    train, val, _ = data.open_recordings(mini_rnnt)
    known = {tuple(numbers) for numbers in train.tokens}
    assert sum(tuple(numbers) in known for numbers in val.tokens) < len(val) / 2
