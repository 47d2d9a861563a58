"""Step times of published families at sizes that they were not fitted to."""

import math

import numpy as np
import pytest

from train_bench.errors import RequestError
from train_bench.forecast import families, published_pace
from train_bench.forecast.families import VAGUE, Family, Size
from train_bench.judge.published import published_entries

KNOWN = families.families(published_entries.shipped(), published_pace.needed)


def made(rng, *, fixed, doubling, fullness=0.95, sizes=((8, 512), (64, 1024), (512, 2048), (2048, 4096))):
    """A family that keeps the model exactly, of a benchmark that is called made."""
    scale = float(np.exp(rng.normal()))
    local = [batch / count / 64 for count, batch in sizes]
    steps = [
        scale * (part**fullness + fixed + doubling * math.log2(count / 8))
        for part, (count, _) in zip(local, sizes, strict=True)
    ]
    return Family(
        round="v1.0",
        submitter=str(scale),
        benchmark="made",
        accelerator="A",
        sizes=tuple(
            Size(accelerators=count, batch_size=batch, log_step=math.log(step))
            for (count, batch), step in zip(sizes, steps, strict=True)
        ),
    )


def test_what_families_have_in_common_is_learned_and_carries_over_to_one_of_which_two_sizes_are_known() -> (
    None
):
    rng = np.random.default_rng(5)
    seen = [made(rng, fixed=0.02, doubling=0.03) for _ in range(12)]
    asked = made(rng, fixed=0.02, doubling=0.03)

    learned = families.fit(asked.sizes[:2], families.learn(seen, "made"))
    alone = families.fit(asked.sizes[:2], VAGUE)

    largest = asked.sizes[-1]
    draws = learned.log_seconds(largest.accelerators, largest.batch_size)
    assert np.median(draws) == pytest.approx(largest.log_step, abs=0.1)
    assert np.std(draws) < np.std(alone.log_seconds(largest.accelerators, largest.batch_size))


@pytest.mark.full
def test_a_size_that_was_fitted_to_is_met_within_the_stated_error() -> None:
    for family in KNOWN[:5]:
        times = families.fit(family.sizes[:1], families.learn(KNOWN))
        first = family.sizes[0]

        draws = times.log_seconds(first.accelerators, first.batch_size, error=0.0)

        assert draws == pytest.approx(np.full(len(draws), first.log_step))


def test_weighing_agrees_with_integration_over_a_grid_of_one_shape() -> None:
    family = made(np.random.default_rng(2), fixed=0.1, doubling=0.05)
    fixed_shape = np.array([math.log(0.1), math.log(0.05), math.log(0.95 / 0.05)])
    prior = families.Prior(mean=fixed_shape, covariance=np.diag([1.0, 1e-8, 1e-8]))
    known, asked = family.sizes[:2], family.sizes[3]

    drawn = np.median(families.fit(known, prior).log_seconds(asked.accelerators, asked.batch_size, error=0.0))

    grid = np.linspace(-5, 5, 20_001)
    densities, forecasts = [], []
    for step in grid:
        off = []
        for size in known:
            local = size.batch_size / size.accelerators / 64
            relative = local**0.95 + math.exp(fixed_shape[0] + step) + 0.05 * math.log2(size.accelerators / 8)
            off.append(size.log_step - math.log(relative))
        mean = sum(off) / 2
        squares = sum((one - mean) ** 2 for one in off)
        densities.append(math.exp(-0.5 * step**2 - 0.5 * squares / families.KNOWN_ERROR**2))
        local = asked.batch_size / asked.accelerators / 64
        relative = local**0.95 + math.exp(fixed_shape[0] + step) + 0.05 * math.log2(asked.accelerators / 8)
        forecasts.append(mean + math.log(relative))
    order = np.argsort(forecasts)
    cumulated = np.cumsum(np.array(densities)[order])
    middle = np.array(forecasts)[order][np.searchsorted(cumulated, cumulated[-1] / 2)]
    assert drawn == pytest.approx(middle, abs=0.02)


def test_entries_at_one_size_open_ones_and_those_without_points_make_no_family() -> None:
    entry = published_entries.Entry(
        round="v1.1",
        submitter="S",
        system="s8",
        benchmark="resnet",
        division="closed",
        accelerators=8,
        accelerator="A",
        global_batch=3264,
        samples_to_target=44e6,
        minutes=30.0,
    )
    other = {"system": "s16", "accelerators": 16, "minutes": 16.0}

    def found(**changes):
        second = published_entries.Entry(
            **{**{name: getattr(entry, name) for name in entry.__slots__}, **other, **changes}
        )
        return families.families([entry, second], published_pace.needed)

    assert [len(family.sizes) for family in found()] == [2]
    assert found(accelerators=8) == []
    assert found(division="open") == []
    assert found(minutes=None) == []
    assert found(accelerator="B") == []
    assert found(benchmark="nothing") == []


def test_a_family_that_trains_more_than_the_reference_is_expected_to_do_so_at_other_sizes() -> None:
    more = [
        Size(accelerators=count, batch_size=64, log_step=0.0, log_samples=math.log(1.2)) for count in (1, 2)
    ]

    mean, deviation = families.samples_beside_reference(more)

    assert 0 < mean < math.log(1.2)
    assert deviation > families.SAMPLES_ERROR


def test_entries_that_are_counted_in_another_unit_than_the_reference_say_themselves_how_many_samples_that_is() -> (
    None
):
    other = [
        Size(accelerators=count, batch_size=64, log_step=0.0, log_samples=math.log(168)) for count in (1, 2)
    ]

    mean, _ = families.samples_beside_reference(other)

    assert mean == pytest.approx(math.log(168))


def test_a_forecast_for_published_systems_is_near_what_they_published() -> None:
    asked = published_pace.family(KNOWN, "resnet", "NVIDIA", "NVIDIA A100-SXM4-80GB", "2.1.0")
    others = [one for one in KNOWN if (one.submitter, one.benchmark) != ("NVIDIA", "resnet")]
    times = families.fit(asked.sizes[:2], families.learn(others, "resnet"))
    size = asked.sizes[2]
    assert (size.accelerators, size.batch_size) == (1024, 35840)

    pace = published_pace.pace(asked, times, asked.sizes[:2], 1024, 35840)

    samples_per_second = 1_281_167 / np.median(pace.unit)
    entry = next(one for one in published_entries.shipped() if one.system == "dgxa100_n128_ngc22.04_mxnet")
    assert samples_per_second == pytest.approx(entry.samples_per_second, rel=0.35)
    assert any("extrapolated" in note for note in pace.notes)


def test_who_has_published_nothing_is_told_who_has() -> None:
    with pytest.raises(
        RequestError, match=r"no published entries of resnet by Nobody .*NVIDIA with NVIDIA A100"
    ):
        published_pace.family(KNOWN, "resnet", "Nobody", "A", None)
    with pytest.raises(RequestError, match="none in this table and round"):
        published_pace.family(KNOWN, "resnet", "NVIDIA", "A", "5.1.0")
