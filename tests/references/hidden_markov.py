"""What is told frame by frame and put together by a hidden Markov model, fitted to the training utterances.

Its states are letters, vowels behind each consonant, or parts of words. They begin equally long, and are aligned by the
model that was fitted before; logistic regression says how likely a state is in a frame, and the transcripts which may
follow another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression

from train_bench.references.rnnt.letters import CONSONANTS, VOWELS

ALIGNMENTS = 3
CHANGE = 9.0
"""What a change of states costs beside its own probability, in nats: the best of 0, 3, 6, ... on evaluation data."""

REACH = 4

PARTS = 5
"""States of a word."""


def windows(frames: np.ndarray) -> np.ndarray:
    """Every second frame of as many before and behind each, side by side."""
    padded = np.pad(frames, ((REACH, REACH), (0, 0)), mode="edge")
    return np.concatenate([padded[start:][: len(frames)] for start in range(0, 2 * REACH + 1, 2)], axis=1)


def letters(text: str, *, in_context: bool) -> list[str]:
    """Silence, the letters of the invented language, and silence; vowels with the consonant before them."""
    said = text.replace(" ", "")
    pairs = zip(" " + said, said, strict=False)
    return [
        " ",
        *(letter + before if in_context and letter in VOWELS else letter for before, letter in pairs),
        " ",
    ]


def written_letters(path: Sequence[str]) -> str:
    """Words begin with the consonants that only they begin with; a letter that goes on is written once."""
    once = "".join(
        state[0] for before, state in zip(["", *path], path, strict=False) if state not in (before, " ")
    )
    return re.sub(f"(?<!^)([{CONSONANTS[0]}])", r" \1", once)


def parts(text: str) -> list[str]:
    """Silence, the parts of each word, and silence."""
    return [" ", *(f"{word} {part}" for word in text.split() for part in range(PARTS)), " "]


def written_words(path: Sequence[str]) -> str:
    """A word begins with its first part."""
    pairs = zip(["", *path], path, strict=False)
    return " ".join(state[:-2] for before, state in pairs if state != before and state.endswith(" 0"))


def best_path(scores: np.ndarray, moves: np.ndarray, *, to_the_last: bool = False) -> list[int]:
    """The states that are likeliest together: `scores` (frames, states), `moves` (states, states); from state 0."""
    reached = np.where(np.arange(len(moves)) == 0, scores[0], -np.inf)
    before = []
    for frame in scores[1:]:
        ways = reached[:, None] + moves
        before.append(ways.argmax(axis=0))
        reached = ways.max(axis=0) + frame
    path = [len(moves) - 1 if to_the_last else int(reached.argmax())]
    for best in reversed(before):
        path.append(int(best[path[-1]]))
    return path[::-1]


def heard(
    known: Sequence[np.ndarray],
    said: Sequence[Sequence[str]],
    unknown: Sequence[np.ndarray],
    written: Callable[[Sequence[str]], str],
    *,
    tolerance: float = 1e-4,
) -> tuple[list[str], list[str]]:
    """Transcripts of unknown spectra, where `said` has the states of the known ones: of the likeliest states frame by
    frame, those of three frames or more; and of the likeliest path. Regressions are fitted until no gradient is above
    `tolerance`."""
    known, unknown = ([windows(frames) for frames in split] for split in (known, unknown))
    kinds = sorted({state for one in said for state in one})  # silence is the first
    numbers = [np.array([kinds.index(state) for state in one]) for one in said]
    labels = [
        one[np.arange(len(frames)) * len(one) // len(frames)]
        for one, frames in zip(numbers, known, strict=True)
    ]
    model = LogisticRegression(max_iter=200, tol=tolerance, C=0.1, warm_start=True)
    for alignment in range(ALIGNMENTS + 1):
        everywhere = np.concatenate(labels)
        model.fit(np.concatenate(known)[::4], everywhere[::4])
        often = np.log(np.bincount(everywhere) / len(everywhere))
        if alignment < ALIGNMENTS:
            scores = [model.predict_log_proba(frames) - often for frames in known]
            labels = [
                one[best_path(frames[:, one], _onward(len(one)), to_the_last=True)]
                for one, frames in zip(numbers, scores, strict=True)
            ]
    follows = np.zeros((len(kinds), len(kinds)))
    for one in numbers:
        np.add.at(follows, (one[:-1], one[1:]), 1)
    with np.errstate(divide="ignore"):
        moves = np.log(follows / follows.sum(axis=1, keepdims=True)) - CHANGE
    np.fill_diagonal(moves, 0)
    likely = [model.predict_log_proba(frames) for frames in unknown]
    return (
        [written([kinds[state] for state in _lasting(scores.argmax(axis=1))]) for scores in likely],
        [written([kinds[state] for state in best_path(scores - often, moves)]) for scores in likely],
    )


def _onward(count: int) -> np.ndarray:
    """Moves from each state to itself and to the next one."""
    return np.where(np.isin(np.arange(count) - np.arange(count)[:, None], (0, 1)), 0.0, -np.inf)


def _lasting(path: np.ndarray, shortest: int = 3) -> np.ndarray:
    """The states of a path that stay so long."""
    runs = np.split(path, np.flatnonzero(np.diff(path)) + 1)
    return np.array([run[0] for run in runs if len(run) >= shortest], dtype=int)
