"""What models that are fitted to the training tokens reach on the same evaluation tokens, beside the targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import needs
from tests.references.configs import llama31_8b
from tests.references.fitted_to_tokens import MARGIN, linear, n_grams, reader, tokens
from train_bench.references.parts.decoder import data, grammar
from train_bench.rules import ruleset

TARGETS = {
    name: ruleset.load("mini-1.0").benchmark(name).target.thresholds[0].value
    for name in ("llama31_8b_mini", "gpt_oss_20b_mini", "llama31_8b_shakespeare")
}
SHAKESPEARE = needs.DATA / "tinyshakespeare"


@pytest.fixture(scope="module")
def splits(prepared: Callable[[str], Path]) -> tuple[np.ndarray, np.ndarray]:
    config = llama31_8b("llama31_8b_mini", f"data_dir={prepared('llama31_8b')}")
    train, val = data.open_sequences(config)
    return tokens(train), tokens(val)


@pytest.mark.full
def test_the_target_lies_between_what_n_grams_and_what_a_reader_who_knows_the_language_reaches(
    splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    target = TARGETS["llama31_8b_mini"]
    assert target == TARGETS["gpt_oss_20b_mini"]  # of the same tokens
    found = [float(nats.mean()) for nats in n_grams(*splits, grammar.VOCABULARY)]
    best = float(reader(splits[1], 64).mean())
    with capsys.disabled():
        print("\nn-grams", *(f"{value:.3f}" for value in found), f"reader {best:.3f} target {target}")  # noqa: T201
    assert min(found) > target + MARGIN
    assert target == pytest.approx(best + 0.2, abs=0.01)
    assert grammar.entropy() < best


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_linear_model_of_tokens_in_their_places_stays_above_the_target(
    splits: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]
) -> None:
    found = float(linear(*splits, grammar.VOCABULARY).mean())
    with capsys.disabled():
        print(f"\nlinear model {found:.3f}")  # noqa: T201
    assert found > TARGETS["llama31_8b_mini"] + MARGIN


def test_no_document_of_the_evaluation_is_one_that_trains(
    splits: tuple[np.ndarray, np.ndarray],
) -> None:
    """Of those that are longer than three sentences, which may be the same by chance."""
    known, asked = (
        {
            tuple(one.tolist())
            for one in np.split(split, np.flatnonzero(split == grammar.END))
            if len(one) > 14
        }
        for split in splits
    )
    assert len(asked) > 300 and not known & asked


@needs.shared(SHAKESPEARE)
@pytest.mark.full
def test_the_target_on_shakespeare_is_below_what_n_grams_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = llama31_8b("llama31_8b_shakespeare", f"data_dir={tmp_path}")
    data.prepare(config, tmp_path, SHAKESPEARE)
    train, val = (tokens(split) for split in data.open_sequences(config))
    found = [float(nats.mean()) for nats in n_grams(train, val, 256, orders=7)]
    with capsys.disabled():
        print("\nn-grams", *(f"{value:.3f}" for value in found))  # noqa: T201
    assert min(found) > TARGETS["llama31_8b_shakespeare"] + 0.05
