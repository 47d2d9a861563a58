"""Text of an invented language, from a seed, with long-range dependencies: a word follows from two others, near or far.

A document is written in one of `DIALECTS` dialects, which share all their nouns and verbs. A sentence is some clauses,
each a noun and the verb that belongs to it in the dialect; one in `PARTICLE_EVERY` ends with the dialect's particle:

    noun verb [particle]

So a missing noun or verb follows from its neighbour and from the dialect, which a particle somewhere in the segment
reveals or, as most segments have no visible one, the verbs after the other nouns. All draws are integers, so that a
seed means the same text everywhere.
"""

from __future__ import annotations

from random import Random

from train_bench.references.bert.examples import SPECIAL, Document

DIALECTS, NOUNS = 4, 8
"""Dialects, and nouns of the language, which has as many verbs."""

PARTICLE_EVERY = 6
CLAUSES, SENTENCES = 4, 6
"""In a sentence, and sentences in a document."""

FIRST_NOUN = SPECIAL
FIRST_VERB = FIRST_NOUN + NOUNS
FIRST_PARTICLE = FIRST_VERB + NOUNS
VOCABULARY = FIRST_PARTICLE + DIALECTS


def documents(count: int, seed: int) -> list[Document]:
    """Word ids from `SPECIAL` to below `VOCABULARY`."""
    rng = Random(seed)
    return [_document(rng) for _ in range(count)]


def _document(rng: Random) -> Document:
    dialect = rng.randrange(DIALECTS)
    return [_sentence(dialect, rng) for _ in range(SENTENCES)]


def _sentence(dialect: int, rng: Random) -> list[int]:
    return [word for _ in range(CLAUSES) for word in _clause(dialect, rng)]


def _clause(dialect: int, rng: Random) -> list[int]:
    noun = rng.randrange(NOUNS)
    words = [FIRST_NOUN + noun, FIRST_VERB + (noun + dialect) % NOUNS]
    if rng.randrange(PARTICLE_EVERY) == 0:
        words.append(FIRST_PARTICLE + dialect)
    return words
