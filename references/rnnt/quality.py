"""Word error rate."""

from __future__ import annotations

from collections.abc import Sequence


def word_errors(reference: str, hypothesis: str) -> tuple[int, int]:
    """Words that have to be inserted, deleted or replaced to make one transcript of the other, and the words
    of the reference. WER is the sum of the first over all utterances, divided by that of the second."""
    wanted, decoded = reference.split(), hypothesis.split()
    return edit_distance(wanted, decoded), len(wanted)


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Levenshtein's distance: the fewest insertions, deletions and replacements."""
    row = list(range(len(other) + 1))
    for number, item in enumerate(one, start=1):
        diagonal, row[0] = row[0], number
        for place, candidate in enumerate(other, start=1):
            replaced = diagonal + (item != candidate)
            diagonal = row[place]
            row[place] = min(replaced, diagonal + 1, row[place - 1] + 1)
    return row[-1]
