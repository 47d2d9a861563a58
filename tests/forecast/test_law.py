"""The law over the batch size, against a table that was fitted by somebody else with another program."""

import numpy as np
import pytest

from train_bench.errors import RequestError
from train_bench.forecast import law
from train_bench.judge import rcp
from train_bench.rules import ruleset

# Round, points, E_min, B_crit, the largest distance of a point from the law in percent, and median and largest error of
# one point by the law of the others. An independent fit by scipy.optimize.least_squares with its loss soft_l1.
TABLE = {
    "resnet": ("4.0.0", 10, 34.6, 46_900, 6, 3, 7),
    "bert": ("5.0.0", 13, 2.33e6, 12_800, 12, 5, 15),
    "dlrm": ("2.1.0", 3, 0.551, 87_500, 0, 1, 1),
    "rnnt": ("3.1.0", 6, 35.6, 3_700, 3, 3, 5),
    "ssd": ("1.1.0", 4, 37.4, 3_040, 4, 4, 7),
    "maskrcnn": ("3.1.0", 7, 12.75, 816, 5, 2, 6),
    "unet3d": ("4.0.0", 4, 306_500, 244, 5, 5, 11),
    "retinanet": ("5.1.0", 9, 3.38, 1_380, 13, 6, 19),
    "dlrm_dcnv2": ("5.1.0", 6, 0.650, 316_000, 3, 2, 4),
    "rgat": ("5.1.0", 5, 0.752, 116_000, 3, 2, 4),
    "llama2_70b_lora": ("5.1.0", 4, 2_870, 39.9, 17, 20, 54),
    "llama31_8b": ("6.1.0", 5, 131_800, 83.7, 3, 3, 7),
    "gpt_oss_20b": ("6.1.0", 3, 160_500, 72.1, 1, 4, 5),
    "llama31_405b": ("5.1.0", 3, 252_100, 4_860, 1, 2, 3),
    "flux1": ("5.1.0", 4, 6.87e6, 3_360, 3, 6, 10),
    "stable_diffusion": ("5.0.0", 5, 1.46e6, 1_140, 5, 7, 9),
    "gpt3": ("4.1.0", 6, 1.05e9, 16_800, 4, 4, 9),
}


def point(batch_size: int, mean: float) -> rcp.Point:
    return rcp.Point(batch_size=batch_size, mean=mean, deviation=0.1, count=10, values=(mean,) * 10)


@pytest.mark.parametrize("name", TABLE)
def test_constants_of_the_official_points_are_those_of_an_independent_fit(name: str) -> None:
    number, count, e_min, b_crit, worst, median_left_out, worst_left_out = TABLE[name]
    rules = ruleset.load(f"training-{number}").benchmark(name)
    points = rcp.official(rules)
    rule = rules.schedule_at(points[0].batch_size)
    start = rule.start if rule else 0.0

    fitted = law.fit(points, start)

    # The table's mean of 3D U-Net drops one value at each end; the checker's, which is ours, drops four.
    digits = 0.03 if name == "unet3d" else 0.004
    ratios = [(item.mean - start) / fitted.at(item.batch_size) for item in points]
    errors = 100 * np.abs(np.exp(-np.array(fitted.leave_one_out)) - 1)
    assert len(points) == count
    assert fitted.e_min == pytest.approx(e_min, rel=digits)
    assert fitted.b_crit == pytest.approx(b_crit, rel=digits)
    assert 100 * max(abs(ratio - 1) for ratio in ratios) == pytest.approx(worst, abs=0.6)
    assert np.median(errors) == pytest.approx(median_left_out, abs=0.6)
    assert errors.max() == pytest.approx(worst_left_out, abs=0.6)


def test_points_that_lie_on_a_law_give_it_back() -> None:
    fitted = law.fit([point(size, 3.5 * (1 + size / 700)) for size in (64, 256, 1024, 4096)])

    assert fitted.e_min == pytest.approx(3.5, rel=1e-6)
    assert fitted.b_crit == pytest.approx(700, rel=1e-6)
    assert fitted.log_residual == pytest.approx(0, abs=1e-6)
    assert fitted.leave_one_out == pytest.approx((0, 0, 0, 0), abs=1e-6)


def test_the_law_is_of_the_training_done_and_not_of_what_the_log_says_before_any() -> None:
    fitted = law.fit([point(size, 1 + 3.5 * (1 + size / 700)) for size in (64, 256, 1024)], start=1.0)

    assert fitted.e_min == pytest.approx(3.5, rel=1e-6)


def test_the_error_grows_with_the_distance_from_the_points() -> None:
    fitted = law.fit([point(size, 3.5 * (1 + size / 700)) for size in (64, 256, 1024)])

    assert fitted.log_error(256) < fitted.log_error(2048) < fitted.log_error(8192)


def test_two_points_give_a_law_whose_error_is_what_others_have() -> None:
    fitted = law.fit([point(64, 4.0), point(256, 5.0)])

    assert fitted.at(64) == pytest.approx(4.0, rel=1e-6)
    assert fitted.leave_one_out == ()
    assert fitted.log_error(256) == pytest.approx(2**0.5 * law.TYPICAL_ERROR, rel=1e-3)


@pytest.mark.parametrize("points", [[], [point(64, 4.0)], [point(64, 4.0), point(64, 5.0)]])
def test_fewer_than_two_batch_sizes_give_no_law(points: list[rcp.Point]) -> None:
    with pytest.raises(RequestError, match="needs reference convergence points at two batch sizes"):
        law.fit(points)
