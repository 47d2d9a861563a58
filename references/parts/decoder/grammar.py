"""Text of an invented language, from a seed, with long-range dependencies on a word at the document's beginning.

A document is its subject, sentences and the end. A sentence is

    adjective noun adverb verb

Every subject has a verb of its own for every noun, out of a table that is the same for all documents; adjectives, nouns
and adverbs are drawn evenly. After each sentence the document ends with probability 1 / `SENTENCES`. So neither the
subject nor the noun determines the verb but both together do, and the subject stands many words before it. All draws
are integers, so that a seed means the same text everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

import numpy as np

SUBJECTS, ADJECTIVES, NOUNS, ADVERBS, VERBS = 12, 4, 24, 4, 24
SENTENCES = 8
"""In a document, on average."""

END = 0
FIRST_SUBJECT = 1
FIRST_ADJECTIVE = FIRST_SUBJECT + SUBJECTS
FIRST_NOUN = FIRST_ADJECTIVE + ADJECTIVES
FIRST_ADVERB = FIRST_NOUN + NOUNS
FIRST_VERB = FIRST_ADVERB + ADVERBS
VOCABULARY = FIRST_VERB + VERBS

_table = Random(20250500)
VERB_OF = [[_table.randrange(VERBS) for _ in range(NOUNS)] for _ in range(SUBJECTS)]


def documents(count: int, seed: int, verb_of: Sequence[Sequence[int]] = VERB_OF) -> Iterator[list[int]]:
    """Tokens below `VOCABULARY`, with the end of each document. `verb_of` are the verbs by subject and noun."""
    rng = Random(seed)
    for _ in range(count):
        subject = rng.randrange(SUBJECTS)
        tokens = [FIRST_SUBJECT + subject]
        while len(tokens) == 1 or rng.randrange(SENTENCES):
            adjective, noun = rng.randrange(ADJECTIVES), rng.randrange(NOUNS)
            tokens += [FIRST_ADJECTIVE + adjective, FIRST_NOUN + noun]
            tokens += [FIRST_ADVERB + rng.randrange(ADVERBS), FIRST_VERB + verb_of[subject][noun]]
        yield [*tokens, END]


def entropy() -> float:
    """Nats per token of the language."""
    sentence = sum(math.log(kinds) for kinds in (ADJECTIVES, NOUNS, ADVERBS))
    ends = math.log(SENTENCES) - (SENTENCES - 1) * math.log(1 - 1 / SENTENCES)
    return (math.log(SUBJECTS) + SENTENCES * sentence + ends) / (2 + 4 * SENTENCES)


def surprise(tokens: Sequence[int], verb_of: Sequence[Sequence[int]] = VERB_OF) -> list[float]:
    """Negative log-likelihood in nats of every token but the first under the language itself, given only these tokens:
    if they begin within a document, only its verbs reveal its subject."""
    verbs = np.array(verb_of)
    subjects = np.full(SUBJECTS, 1 / SUBJECTS)
    noun: int | None = None
    nats = []
    for before, token in pairwise(tokens):
        if before == END:
            chance, noun = 1 / SUBJECTS, None
        elif before < FIRST_ADJECTIVE:
            subjects = np.arange(SUBJECTS) == before - FIRST_SUBJECT
            chance = 1 / ADJECTIVES
        elif before < FIRST_NOUN:
            chance = 1 / NOUNS
        elif before < FIRST_ADVERB:
            noun, chance = before - FIRST_NOUN, 1 / ADVERBS
        elif before < FIRST_VERB:
            told = verbs == token - FIRST_VERB
            likely = told.mean(axis=1) if noun is None else told[:, noun]
            chance = float(subjects @ likely)
            subjects = subjects * likely / chance
        else:
            chance = 1 / SENTENCES if token == END else (1 - 1 / SENTENCES) / ADJECTIVES
        nats.append(-math.log(chance))
    return nats
