"""The mini target asks for more than the nearest words tell on the same examples."""

from __future__ import annotations

import numpy as np
import pytest

from references.bert import data, packed
from references.bert.config import Config
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("bert_mini").target.thresholds[0].value


def masked_words(examples: packed.Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int64: the visible word before each masked one, the masked one, and the visible word behind it."""
    found = []
    for index in range(len(examples)):
        row = examples[index]
        tokens = row["tokens"].astype(np.int64)
        places = row["positions"][: row["masked"]].astype(np.int64)
        found.append(np.stack([tokens[places - 1], row["words"][: row["masked"]], tokens[places + 1]]))
    before, word, behind = np.concatenate(found, axis=1)
    return before, word, behind


def accuracy(
    seen: np.ndarray, words: np.ndarray, asked: np.ndarray, truth: np.ndarray, contexts: int, size: int
) -> float:
    """Of always saying the word that was most frequent in a context of the training set."""
    counts = np.bincount(seen * size + words, minlength=contexts * size).reshape(contexts, size)
    return float((counts.argmax(axis=1)[asked] == truth).mean())


def test_neighbouring_words_alone_do_not_reach_the_mini_target(
    mini_bert: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unigrams, bigrams in both directions, and trigrams of both neighbours."""
    size = mini_bert.model.vocabulary
    (before, words, behind), (asked_before, truth, asked_behind) = map(
        masked_words, data.open_examples(mini_bert)
    )
    none, nothing = np.zeros_like(before), np.zeros_like(asked_before)
    unigram = accuracy(none, words, nothing, truth, 1, size)
    bigram = max(
        accuracy(before, words, asked_before, truth, size, size),
        accuracy(behind, words, asked_behind, truth, size, size),
    )
    trigram = accuracy(
        before * size + behind, words, asked_before * size + asked_behind, truth, size * size, size
    )
    with capsys.disabled():
        print(  # noqa: T201
            f"\nmasked words: unigram {unigram:.4f}, bigram {bigram:.4f}, trigram {trigram:.4f}, target {TARGET}"
        )
    assert unigram < TARGET / 2 and bigram < TARGET - 0.1 and trigram < TARGET - 0.05
