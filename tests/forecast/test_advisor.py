"""The table of batch sizes."""

import json
from typing import Any

import pytest
from rich.console import Console

from train_bench.errors import RequestError
from train_bench.forecast import advisor
from train_bench.judge import rcp
from train_bench.report import forecast as page
from train_bench.rules import ruleset

MASKRCNN = ruleset.load("training-3.1.0").benchmark("maskrcnn")
DLRM = ruleset.load("training-1.1.0").benchmark("dlrm")
STEPS = ruleset.load("training-3.1.0").benchmark("stable_diffusion")


def point(batch_size: int, mean: float) -> rcp.Point:
    return rcp.Point(batch_size=batch_size, mean=mean, deviation=0.1, count=10, values=(mean,) * 10)


POINTS = [point(size, 10 * (1 + size / 64)) for size in (32, 64, 128)]  # E(B) = 10 (1 + B / 64) epochs


def seconds(batch_size: int, ranks: int) -> float:
    """As long as 8 samples at least, and so much for each further of a rank."""
    return 0.1 * max(batch_size / ranks, 8)


def advise(**asked: Any) -> advisor.Advice:
    return advisor.advise(POINTS, MASKRCNN, seconds_per_step=seconds, samples_per_unit=1000, **asked)


def row(advice: advisor.Advice, batch_size: int, ranks: int) -> advisor.Row:
    (found,) = (one for one in advice.rows if (one.batch_size, one.ranks) == (batch_size, ranks))
    return found


def test_a_row_is_the_law_times_the_time_of_a_step() -> None:
    at = row(advise(ranks=[4], eval_seconds=6.0, price=3.0), 64, 4)

    assert at.training == pytest.approx(20, rel=1e-5)
    assert at.point == pytest.approx(20)
    assert at.samples == pytest.approx(20_000, rel=1e-5)
    assert at.steps == pytest.approx(312.5, rel=1e-5)
    assert at.evaluations == 20
    assert at.minutes == pytest.approx((312.5 * 1.6 + 20 * 6) / 60, rel=1e-5)
    assert at.cost == pytest.approx(4 * 3.0 * at.minutes / 60, rel=1e-9)


def test_the_fastest_is_as_fast_as_any_row_and_the_cheapest_on_fewer_ranks() -> None:
    """On 16 ranks a step takes as long at 64 as at 128, so the larger wins; one rank loses nothing to small steps."""
    advice = advise(ranks=[1, 16], price=1.0)

    assert (advice.fastest.batch_size, advice.fastest.ranks) == (128, 16)
    assert advice.cheapest is not None
    assert (advice.cheapest.batch_size, advice.cheapest.ranks) == (16, 1)


def test_above_the_largest_point_rows_are_labelled_and_never_the_best() -> None:
    advice = advise(ranks=[64], batch_sizes=[64, 128, 256, 512])

    assert [one.where for one in advice.rows] == ["within", "within", "above", "above"]
    assert advice.fastest.batch_size == 128
    assert advice.faster_beyond is not None
    assert advice.faster_beyond.batch_size == 512


def test_below_the_smallest_point_rows_are_labelled() -> None:
    assert row(advise(ranks=[1]), 16, 1).where == "below"


def test_without_batch_sizes_points_and_powers_of_two_are_in_the_table_as_far_as_ranks_divide_them() -> None:
    assert [one.batch_size for one in advise(ranks=[3]).rows] == [24, 48, 96, 192, 384]
    assert [one.batch_size for one in advise(ranks=[8]).rows] == [16, 32, 64, 128, 256, 512]


def test_epochs_that_are_counted_from_1_are_not_training() -> None:
    (at,) = advisor.advise(rcp.official(DLRM), DLRM, [1], seconds, batch_sizes=[65_536]).rows

    assert at.training == pytest.approx(0.5508 * (1 + 65_536 / 87_500), rel=1e-3)
    assert at.evaluations == round(at.training / 0.05)


def test_steps_of_a_benchmark_that_counts_steps_are_steps() -> None:
    advice = advisor.advise(rcp.official(STEPS), STEPS, [1], seconds, batch_sizes=[1024])

    assert advice.rows[0].steps == pytest.approx(2800, rel=0.06)
    assert advice.rows[0].samples == pytest.approx(2800 * 1024, rel=0.06)
    assert str(advice.law).endswith(" / B")


def test_the_page_names_the_best_and_what_is_extrapolated(capsys: pytest.CaptureFixture[str]) -> None:
    advice = advise(ranks=[64], batch_sizes=[64, 128, 256], price=2.0)

    page.show_advice(json.loads(json.dumps(advice.as_json())), Console(width=200))

    out = capsys.readouterr().out
    assert "law: 10 (1 + B / 64), residual of the points 0.0 %" in out
    assert "point +0 %, fastest, cheapest" in out
    assert out.count("above points") == 2  # in its row, and where that is explained
    assert "batch size 256 on 64 rank(s) would take" in out


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"ranks": [0]}, "ranks is 0; give whole numbers of at least 1"),
        ({"ranks": []}, "ranks is empty"),
        ({"ranks": [256]}, "No batch size up to 128, the largest reference convergence point"),
        ({"ranks": [1], "price": -1.0}, "price is -1; give a number of at least 0"),
        ({"ranks": [1], "eval_seconds": float("nan")}, "eval_seconds is nan"),
    ],
)
def test_what_gives_no_table_is_refused_in_a_sentence(asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        advise(**asked)


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(RequestError, match="takes inf s; it has to be above 0"):
        advisor.advise(POINTS, MASKRCNN, [1], lambda _size, _ranks: float("inf"))
