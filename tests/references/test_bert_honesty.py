"""What models that are fitted to the training examples tell of the same masked words, beside the mini target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor, nn
from torch.nn import functional

from tests.references import ngrams
from tests.references.configs import bert
from train_bench.references.bert import data, grammar, packed
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("bert_mini").target.thresholds[0].value
MARGIN = 0.03

SIZE = grammar.VOCABULARY
REACH = 5
"""Words on either side whose places fitted models know; of the whole segment they know how often each word comes."""

READ = 60_000
"""Words that trees and nearest neighbours learn from."""


@dataclass(frozen=True, slots=True)
class Split:
    """The examples, their gaps, and what fitted models are given of each: int64 (gaps, 2 * REACH + SIZE)."""

    examples: packed.Examples
    gaps: ngrams.Gaps
    columns: np.ndarray


def split_of(examples: packed.Examples, *, masked_only: bool) -> Split:
    gaps = ngrams.gaps(examples, masked_only=masked_only, reach=REACH)
    rows = [examples[index] for index in range(len(examples))]
    parts = [(row["tokens"][: row["first"]], row["tokens"][row["first"] : row["length"]]) for row in rows]
    counts = np.array([[np.bincount(part, minlength=SIZE) for part in segments] for segments in parts])
    firsts = np.array([row["first"] for row in rows])
    segment = counts[gaps.examples, (gaps.places >= firsts[gaps.examples]).astype(int)]
    segment[np.arange(len(segment)), gaps.visible] -= 1
    return Split(examples, gaps, np.concatenate([gaps.around, segment], axis=1))


@pytest.fixture(scope="module")
def splits(language_folder: Path) -> tuple[Split, Split]:
    """Every word of the training examples, and the masked ones of the evaluation."""
    train, val = data.open_examples(bert("bert_mini", f"data_dir={language_folder}"))
    return split_of(train, masked_only=False), split_of(val, masked_only=True)


@pytest.fixture
def assert_below_target(
    splits: tuple[Split, Split], capsys: pytest.CaptureFixture[str]
) -> Callable[[str, np.ndarray, float], None]:
    """That what a model said is right less often than the target asks, also if it keeps words that are visible; and
    more often than its `least`, so that it was fitted at all."""
    gaps = splits[1].gaps

    def hold(name: str, said: np.ndarray, least: float) -> None:
        found, kept = (float((words == gaps.words).mean()) for words in (said, ngrams.or_kept(gaps, said)))
        with capsys.disabled():
            print(f"\n{name} {found:.4f}, words kept {kept:.4f}, target {TARGET}")  # noqa: T201
        assert least < max(found, kept) < TARGET - MARGIN

    return hold


def inputs_of(columns: Tensor) -> Tensor:
    """float32: one of `SIZE` for each place, and the counts."""
    around, counts = columns[:, : 2 * REACH], columns[:, 2 * REACH :]
    return torch.cat([functional.one_hot(around, SIZE).flatten(1), counts], dim=1).float()


class Pairs(nn.Module):
    """A weight for every input, and for pairs of inputs what products of two sums of rank `rank` make of them."""

    def __init__(self, inputs: int, rank: int) -> None:
        super().__init__()
        self.alone = nn.Linear(inputs, SIZE)
        self.one, self.other = (nn.Linear(inputs, rank, bias=False) for _ in range(2))
        self.together = nn.Linear(rank, SIZE, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """(gaps, SIZE) logits."""
        logits: Tensor = self.alone(inputs) + self.together(self.one(inputs) * self.other(inputs))
        return logits


INPUTS = (2 * REACH + 1) * SIZE
MODELS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "linear model": (lambda: nn.Linear(INPUTS, SIZE), 0.2),
    "model of pairs": (lambda: Pairs(INPUTS, 128), 0.5),
}
"""How each is built, and what it reaches at least once it is fitted."""


def fitted(model: nn.Module, train: Split, val: Split, *, epochs: int = 6, batch: int = 512) -> np.ndarray:
    """What a model says after some epochs of Adam whose rate falls to 0."""
    columns, words = torch.from_numpy(train.columns), torch.from_numpy(train.gaps.words)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    steps = epochs * -(-len(words) // batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(words)).split(batch):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs_of(columns[rows])), words[rows]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return model(inputs_of(torch.from_numpy(val.columns))).argmax(dim=1).numpy()


@pytest.mark.full
def test_n_grams_stay_below_the_mini_target(
    splits: tuple[Split, Split], capsys: pytest.CaptureFixture[str]
) -> None:
    """With back-off, each side alone and both together."""
    found = ngrams.accuracies(splits[0].examples, splits[1].examples, SIZE)
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {value:.4f}" for name, value in found.items()), f"target {TARGET}")  # noqa: T201
    assert 0.3 < max(found.values()) < TARGET - MARGIN


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_a_fitted_model_stays_below_the_mini_target(
    name: str, splits: tuple[Split, Split], assert_below_target: Callable[[str, np.ndarray, float], None]
) -> None:
    torch.manual_seed(0)
    build, least = MODELS[name]
    assert_below_target(name, fitted(build(), *splits), least)


@pytest.mark.full
def test_boosted_trees_stay_below_the_mini_target(
    splits: tuple[Split, Split], assert_below_target: Callable[[str, np.ndarray, float], None]
) -> None:
    train, val = splits
    chosen = np.random.default_rng(0).permutation(len(train.columns))[:READ]
    trees = HistGradientBoostingClassifier(
        max_iter=80,
        learning_rate=0.15,
        categorical_features=list(range(2 * REACH)),
        early_stopping=False,
        random_state=0,
    ).fit(train.columns[chosen], train.gaps.words[chosen])
    assert_below_target("boosted trees", trees.predict(val.columns), 0.5)


@pytest.mark.full
def test_nearest_neighbours_stay_below_the_mini_target(
    splits: tuple[Split, Split], assert_below_target: Callable[[str, np.ndarray, float], None]
) -> None:
    """30 of them; near words count more than far ones, and words of the segment less."""
    weights = np.sqrt(np.array([0.3, 0.4, 0.6, 0.8, 1.0, 1.0, 0.8, 0.6, 0.4, 0.3], dtype=np.float32))
    scale = np.concatenate([np.repeat(weights, SIZE), np.full(SIZE, 0.3, dtype=np.float32)])
    train, val = splits
    chosen = np.random.default_rng(0).permutation(len(train.columns))[:READ]
    known, asked = (
        inputs_of(torch.from_numpy(columns)).numpy() * scale
        for columns in (train.columns[chosen], val.columns)
    )
    said = []
    for part in np.array_split(asked, len(asked) // 500):
        distances = np.square(known).sum(axis=1) - 2 * part @ known.T
        nearest = np.argpartition(distances, 30, axis=1)[:, :30]
        said += [np.bincount(words).argmax() for words in train.gaps.words[chosen][nearest]]
    assert_below_target("nearest neighbours", np.array(said), 0.5)


@pytest.mark.full
def test_a_reader_who_knows_the_language_passes_the_mini_target(
    splits: tuple[Split, Split], capsys: pytest.CaptureFixture[str]
) -> None:
    """The dialect that most of the visible sentences of the segment are in, and what the neighbour says in it."""
    val = splits[1]
    said = []
    for example, place in zip(val.gaps.examples, val.gaps.places, strict=True):
        row = val.examples[int(example)]
        tokens, first = row["tokens"].astype(int).tolist(), int(row["first"])
        start, end = (0, first) if place < first else (first, int(row["length"]))
        said.append(_read(tokens[start:end], int(place) - start))
    found = float((np.array(said) == val.gaps.words).mean())
    with capsys.disabled():
        print(f"\nreader {found:.4f}, target {TARGET}")  # noqa: T201
    assert found > TARGET + MARGIN


def _read(segment: list[int], gap: int) -> int:
    nouns = range(grammar.FIRST_NOUN, grammar.FIRST_VERB)
    verbs = range(grammar.FIRST_VERB, grammar.FIRST_PARTICLE)
    seen = np.zeros(grammar.DIALECTS)
    for place, word in enumerate(segment):
        if place == gap:
            continue
        if word >= grammar.FIRST_PARTICLE:
            seen[word - grammar.FIRST_PARTICLE] += 1
        behind = segment[place + 1] if place + 1 < len(segment) and place + 1 != gap else -1
        if word in nouns and behind in verbs:
            turned = (behind - verbs.start - word + nouns.start) % grammar.NOUNS
            if turned < grammar.DIALECTS:
                seen[turned] += 1
    dialect = int(seen.argmax())
    before, behind = segment[gap - 1], segment[gap + 1] if gap + 1 < len(segment) else -1
    if before in nouns:
        return verbs.start + (before - nouns.start + dialect) % grammar.NOUNS
    if behind in verbs:
        return nouns.start + (behind - verbs.start - dialect) % grammar.NOUNS
    return grammar.FIRST_PARTICLE + dialect
