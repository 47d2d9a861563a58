"""What models that are fitted to the training tokens reach on the tokens that the mixture's evaluation counts: all but
the first of documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.references.configs import gpt_oss_20b
from tests.references.fitted_to_tokens import MARGIN, linear, n_grams, reader, tokens
from train_bench.references.parts.decoder import data, grammar
from train_bench.rules import ruleset

TARGET = ruleset.load("mini-1.0").benchmark("gpt_oss_20b_mini").target.thresholds[0].value


@pytest.fixture(scope="module")
def splits(prepared: Callable[[str], Path]) -> tuple[np.ndarray, np.ndarray]:
    train, val = data.open_sequences(gpt_oss_20b("gpt_oss_20b_mini", f"data_dir={prepared('gpt_oss_20b')}"))
    return tokens(train), tokens(val)


@pytest.mark.full
def test_the_target_lies_between_what_n_grams_and_what_a_reader_who_knows_the_language_reaches(
    splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    counted = splits[1][:-1] != grammar.END
    found = [float(nats[counted].mean()) for nats in n_grams(*splits, grammar.VOCABULARY)]
    best = float(reader(splits[1], 64)[counted].mean())
    with capsys.disabled():
        print("\nn-grams", *(f"{value:.3f}" for value in found), f"reader {best:.3f} target {TARGET}")  # noqa: T201
    assert min(found) > TARGET + MARGIN
    assert pytest.approx(best + 0.2, abs=0.01) == TARGET


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_linear_model_of_tokens_in_their_places_stays_above_the_target(
    splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    nats = linear(*splits, grammar.VOCABULARY)
    found = float(nats[splits[1][-len(nats) - 1 : -1] != grammar.END].mean())
    with capsys.disabled():
        print(f"\nlinear model {found:.3f}")  # noqa: T201
    assert found > TARGET + MARGIN
