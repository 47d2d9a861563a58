"""Many results as one number."""

import json
import math
from types import SimpleNamespace

import pytest

from train_bench.errors import RequestError, TrainBenchError
from train_bench.judge.statistics import weighted_geometric_mean
from train_bench.judge.summary import custom_summary, normalised, read_reference_results, read_weights


def score(benchmark, minutes):
    return SimpleNamespace(benchmark=benchmark, score_minutes=minutes)


SCORES = [score("resnet", 4.0), score("bert", 25.0)]


def test_the_mean_is_the_weighted_root_of_the_product():
    assert weighted_geometric_mean([4, 25], [1, 1]) == pytest.approx(10)
    assert weighted_geometric_mean([4, 25], [3, 1]) == pytest.approx((4**3 * 25) ** 0.25)


def test_without_weights_all_entries_weigh_alike():
    assert custom_summary(SCORES, {}, None).value == pytest.approx(10)


def test_weights_choose_the_entries():
    assert custom_summary(SCORES, {"bert": 2}, None).value == pytest.approx(25)


def test_normalised_results_are_reference_over_score():
    reference = {"resnet": 8.0, "bert": 50.0}
    assert [normalised(one, reference) for one in SCORES] == [2, 2]
    summary = custom_summary(SCORES, {}, reference)
    assert (summary.of, summary.value) == ("normalised", pytest.approx(2))


def test_an_entry_without_a_score_leaves_no_summary():
    assert custom_summary([*SCORES, score("ssd", None)], {}, None).value is None


def test_a_weight_of_what_is_not_there_is_refused():
    with pytest.raises(RequestError, match="ssd"):
        custom_summary(SCORES, {"ssd": 1}, None)


@pytest.mark.parametrize(
    "text",
    [
        *("resnet", "resnet=", "resnet=x", "resnet=0", "resnet=-1", "resnet=nan", "resnet=inf"),
        *("resnet=1e309", "resnet=-inf", "resnet=1,resnet=2"),
    ],
)
def test_a_weight_that_is_no_positive_number_is_refused(text):
    with pytest.raises(RequestError):
        read_weights(text)


def test_weights_are_read_by_benchmark():
    assert read_weights("resnet=2, bert=0.5") == {"resnet": 2, "bert": 0.5}
    assert read_weights("") == {}


@pytest.mark.parametrize(("large", "small"), [(1e308, 1e308), (1e308, 1e-308), (5e-324, 5e-324)])
def test_weights_of_any_size_give_a_mean_between_the_results(large, small):
    value = custom_summary(SCORES, {"resnet": large, "bert": small}, None).value
    assert 4.0 <= value <= 25.0


@pytest.mark.parametrize(
    "content",
    [
        *("[]", '{"resnet": 0}', '{"resnet": "x"}', '{"resnet": Infinity}', "7"),
        *('{"resnet": 1e308}', '{"resnet": 1' + "0" * 400 + "}"),
    ],
    ids=range(7),
)
def test_reference_results_that_are_no_minutes_are_refused(content, tmp_path):
    path = tmp_path / "reference.json"
    path.write_text(content)
    with pytest.raises(TrainBenchError, match=r"positive minutes|Infinity"):
        read_reference_results(path)


def test_reference_results_are_minutes_by_benchmark(tmp_path):
    path = tmp_path / "reference.json"
    path.write_text(json.dumps({"resnet": 8}))
    assert read_reference_results(path) == {"resnet": 8.0}
    assert math.isfinite(read_reference_results(path)["resnet"])
