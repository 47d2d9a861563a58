"""What models that are fitted to the training examples tell of the same masked words, beside the mini target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.references import ngrams
from train_bench.references.bert import data
from train_bench.references.bert.config import Config
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("bert_mini").target.thresholds[0].value
MARGIN = 0.03
N_GRAMS = 0.674
"""What n-grams of two words on either side reach, as the README says."""

REACH = 5
LINEAR = 0.81
"""What a linear model reaches, as the README says."""


def test_n_grams_of_one_word_on_either_side_stay_below_the_mini_target_and_those_of_two_do_not(
    mini_bert: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """With back-off, each side alone and both together."""
    found = ngrams.accuracies(*data.open_examples(mini_bert), mini_bert.model.vocabulary)
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {value:.4f}" for name, value in found.items()), f"target {TARGET}")  # noqa: T201
    one = ("unigram", "left bigram", "right bigram", "left and right bigram")
    assert max(found[name] for name in one) < TARGET - MARGIN
    assert max(found.values()) == pytest.approx(N_GRAMS, abs=0.01)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_linear_model_of_words_in_their_places_reaches_what_the_readme_says(
    mini_bert: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logistic regression with a weight for every word in each of ten places around the gap; one epoch of Adagrad."""
    size = mini_bert.model.vocabulary
    train, val = data.open_examples(mini_bert)
    known, unknown = (ngrams.gaps(part, masked_only=part is val, reach=REACH) for part in (train, val))
    places = np.arange(2 * REACH) * size
    inputs, words = torch.from_numpy(known.around + places), torch.from_numpy(known.words)
    torch.manual_seed(0)
    weights = nn.EmbeddingBag(2 * REACH * size, size, mode="sum", sparse=True)
    nn.init.zeros_(weights.weight)
    optimizer = torch.optim.Adagrad(weights.parameters(), lr=0.1)
    for rows in torch.randperm(len(inputs)).split(1024):
        optimizer.zero_grad()
        functional.cross_entropy(weights(inputs[rows]), words[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        said = weights(torch.from_numpy(unknown.around + places)).argmax(dim=1).numpy()
    found = float((said == unknown.words).mean())
    with capsys.disabled():
        print(f"\nlinear model {found:.4f}, target {TARGET}")  # noqa: T201
    assert found == pytest.approx(LINEAR, abs=0.01)
