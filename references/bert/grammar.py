"""Text of an invented language, from a seed: words follow from syntax, from agreement and from topic.

A sentence is

    article adjective noun adverb verb article noun particle stop

The article agrees with the gender of its noun; adjectives belong to the document's topic, as nouns do; each
noun has a verb of its own, which stands two words behind it; the particle follows from the verb; the object
of a sentence is the subject of the next. All draws are integers, so that a seed means the same text everywhere.
"""

from __future__ import annotations

from random import Random

from train_bench.references.bert.examples import SPECIAL, Document

TOPICS, NOUNS, ADJECTIVES = 6, 5, 3
"""Topics, and per topic nouns (as many verbs) and adjectives."""

ARTICLES, ADVERBS, PARTICLES = 3, 3, 4
SENTENCES = 12
"""In a document."""

FIRST_ARTICLE = SPECIAL
FIRST_ADVERB = FIRST_ARTICLE + ARTICLES
FIRST_PARTICLE = FIRST_ADVERB + ADVERBS
STOP = FIRST_PARTICLE + PARTICLES
FIRST_NOUN = STOP + 1
FIRST_VERB = FIRST_NOUN + TOPICS * NOUNS
FIRST_ADJECTIVE = FIRST_VERB + TOPICS * NOUNS
VOCABULARY = FIRST_ADJECTIVE + TOPICS * ADJECTIVES


def documents(count: int, seed: int) -> list[Document]:
    """Word ids from `SPECIAL` to below `VOCABULARY`."""
    rng = Random(seed)
    return [_document(rng) for _ in range(count)]


def _document(rng: Random) -> Document:
    topic = rng.randrange(TOPICS)
    subject = rng.randrange(NOUNS)
    sentences = []
    for _ in range(SENTENCES):
        other = (subject + rng.randrange(1, NOUNS)) % NOUNS
        sentences.append(_sentence(topic, topic * NOUNS + subject, topic * NOUNS + other, rng))
        subject = other
    return sentences


def _sentence(topic: int, subject: int, other: int, rng: Random) -> list[int]:
    """`subject` and `other` are numbers of nouns."""
    return [
        FIRST_ARTICLE + subject % ARTICLES,
        FIRST_ADJECTIVE + topic * ADJECTIVES + rng.randrange(ADJECTIVES),
        FIRST_NOUN + subject,
        FIRST_ADVERB + rng.randrange(ADVERBS),
        FIRST_VERB + subject,
        FIRST_ARTICLE + other % ARTICLES,
        FIRST_NOUN + other,
        FIRST_PARTICLE + subject % PARTICLES,
        STOP,
    ]
