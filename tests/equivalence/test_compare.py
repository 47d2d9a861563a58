"""Two recordings, rung by rung."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.equivalence.fakes import recorded
from train_bench.equivalence import compare, distributions, initial, record, recording
from train_bench.equivalence.compare import CANNOT_TELL, DIFFERENT, EQUAL, NOT_COMPARED, Pair
from train_bench.equivalence.observe import Notes

U = 2.0**-24


def pair(b, **more):
    """B beside an A in single precision with two twins and a recording in double."""
    twins = [recorded(noise=U, seed=seed) for seed in (1, 2)]
    return Pair(a=recorded(), b=b, twins=twins, double=recorded(dtype=np.float64), **more)


def rungs(b, **more):
    return {rung.name: rung for rung in compare.run_checks(pair(b, **more))}


def test_what_differs_by_rounding_alone_is_equal_on_every_rung():
    found = rungs(recorded(noise=2 * U, seed=3))
    assert {rung.verdict for rung in found.values()} == {EQUAL}
    assert compare.verdict(list(found.values())) == EQUAL


def test_an_error_of_a_few_roundings_more_is_found_in_its_tensor():
    found = rungs(recorded(gradients__0__first=None, **{"gradients__0__first.weight": _off(2e-6)}))
    assert found["gradients"].verdict == DIFFERENT
    assert found["gradients"].where == "first.weight, step 0"
    assert found["gradients"].error > found["gradients"].tolerance


def test_a_difference_that_is_near_what_may_be_is_measured_again_and_no_other_is():
    near = recorded(**{"gradients__0__first.weight": _off(2e-6)})
    found = compare.run_checks(pair(near))
    assert compare.is_near(found)
    assert compare.verdict(found) == DIFFERENT
    assert compare.verdict(compare.run_checks(replace(pair(near), twins=[near]))) == EQUAL, (
        "had a twin been there"
    )
    assert compare.verdict(compare.run_checks(replace(pair(near), b_again=[near, near]))) == DIFFERENT
    assert compare.verdict(compare.run_checks(replace(pair(near), b_again=[near, recorded()]))) == EQUAL
    assert not compare.is_near(
        compare.run_checks(pair(recorded(**{"gradients__0__first.weight": _off(2e-2)})))
    )
    assert not compare.is_near(compare.run_checks(pair(replace(near, facts={**near.facts, "trained": []}))))
    assert not compare.is_near(compare.run_checks(pair(recorded(noise=2 * U, seed=3))))


def test_coarse_rounding_says_what_may_be_of_gradients_and_what_follows_and_of_no_output():
    coarse = [recorded(noise=2.0**-13, seed=5)]
    for name, verdict in (("gradients__0__first.weight", EQUAL), ("forward__0.0__first", DIFFERENT)):
        near = recorded(**{name: recorded().arrays[name.replace("__", "/")] * np.float32(1 + 5e-4)})
        assert compare.verdict(compare.run_checks(pair(near))) == DIFFERENT
        assert compare.verdict(compare.run_checks(pair(near, coarse=coarse))) == verdict


def _off(share):
    return recorded().arrays["gradients/0/first.weight"] * np.float32(1 + share)


def test_a_gradient_that_only_one_has_is_a_difference_unless_it_is_zero():
    lost = recorded()
    gone = {name: values for name, values in lost.arrays.items() if name != "gradients/0/first.weight"}
    found = rungs(replace(lost, arrays=gone))["gradients"]
    assert found.where == "first.weight, step 0 has a gradient in A only"
    more = recorded(gradients__0__third=np.zeros(3))
    assert rungs(more)["gradients"].verdict == EQUAL


def test_an_optimizer_of_another_shape_or_whose_weights_vanish_is_told():
    short = rungs(recorded(**{"optimizer__0__first.weight": np.ones((4, 2))}))["optimizer"]
    assert short.where == "first.weight, step 0: 4x3 and 4x2"
    zero = recorded(**{"optimizer__0__first.weight": np.zeros((4, 3))})
    (found,) = compare.run_checks(Pair(a=zero, b=recorded()), ["optimizer"])
    assert (found.verdict, found.error) == (DIFFERENT, 1.0)


def test_nothing_is_equal_where_nothing_was_compared():
    own = recorded()
    empty = replace(
        own,
        arrays={"order": np.arange(0), "evaluated": np.arange(0), "schedule/lr": np.empty((0, 1))},
        facts={**own.facts, "trained": [], "options": [], "quality": None},
        losses=(),
    )
    found = compare.run_checks(Pair(a=empty, b=empty))
    assert {rung.verdict for rung in found} == {NOT_COMPARED}
    assert compare.verdict(found) == CANNOT_TELL


def test_the_first_module_that_differs_is_named_with_what_it_does():
    own = recorded()
    changed = {
        f"forward__0.0__{name}": own.arrays[f"forward/0.0/{name}"] + 1 for name in ("second", "(model)")
    }
    assert rungs(recorded(**changed))["forward"].where == "second (Linear, Addmm), step 0, batch 0"


def test_of_gradients_the_last_one_is_named_which_is_the_first_to_be_made():
    own = recorded()
    changed = {name: own.arrays[name] + 1 for name in own.names("gradients")}
    assert rungs(recorded(**changed))["gradients"].where.startswith("second.weight")


def test_another_shape_and_another_name_are_told():
    small = recorded(**{"parameters__second.weight": np.zeros((2, 3))})
    assert rungs(small)["parameters"].where == "second.weight: 2x4 and 2x3"
    assert (
        "third.weight: none and 2x3"
        in rungs(recorded(**{"parameters__third.weight": np.zeros((2, 3))}))["parameters"].where
    )


def test_a_number_that_is_none_is_a_difference_unless_both_have_it():
    own = recorded().arrays["gradients/0/first.weight"].copy()
    own[0, 0] = np.nan
    assert rungs(recorded(**{"gradients__0__first.weight": own}))["gradients"].verdict == DIFFERENT


def test_a_double_recording_that_has_done_something_else_hides_nothing():
    double = recorded(dtype=np.float64)
    astray = replace(double, arrays={name: values + 1 for name, values in double.arrays.items()})
    off = recorded().arrays["gradients/0/first.weight"] * np.float32(1 + 2e-6)
    one = replace(pair(recorded(**{"gradients__0__first.weight": off})), double=astray)
    (found,) = compare.run_checks(one, ["gradients"])
    assert found.where == "first.weight, step 0"
    assert compare.run_checks(replace(one, b=recorded(noise=U, seed=3)), ["gradients"])[0].verdict == EQUAL


def test_other_samples_make_what_follows_from_batches_untold_and_leave_the_rest():
    own = recorded()
    moved = {name: own.arrays[name] + 1 for name in own.names("gradients")}
    found = rungs(recorded(order=np.arange(40)[::-1], **moved))
    assert found["data order"].where == "sample 0 of training is number 0 and 39"
    assert (found["gradients"].verdict, found["schedule"].verdict) == (CANNOT_TELL, EQUAL)


def test_channels_that_change_places_are_told_and_other_draws_of_the_same_images_are_not():
    drawn = np.random.default_rng(5)
    seen = drawn.uniform(0.4, 0.6, (3, 48))
    a = recorded(samples__0__0=np.zeros((5, 48)), channels__0__0=seen)

    def beside(channels):
        other = {"inputs__0.0__0": np.full((8, 3), 0.6, np.float32)}
        b = recorded(samples__0__0=np.zeros((5, 48)), channels__0__0=channels, **other)
        return compare.run_checks(Pair(a=a, b=b), ["augmentation"])[0]

    turned = beside(seen[::-1])
    assert turned.verdict == DIFFERENT
    assert "order of the means of channels 0 and 2" in turned.where
    assert beside(seen + drawn.normal(0, 0.05, seen.shape)).verdict == CANNOT_TELL
    assert beside(np.ones((3, 48)) * seen[:1]).verdict == CANNOT_TELL  # grey images


def test_a_lost_sample_of_the_evaluation_is_found_and_their_order_does_not_matter():
    assert (
        rungs(recorded(evaluated=np.arange(11)))["data order"].where == "12 and 11 samples of an evaluation"
    )
    assert rungs(recorded(evaluated=np.arange(12)[::-1]))["data order"].verdict == EQUAL


def test_qualities_that_are_no_number_on_either_side_tell_nothing():
    lost = replace(recorded(), facts={**recorded().facts, "quality": {"top1": np.nan}})
    found = {rung.name: rung for rung in compare.run_checks(replace(pair(lost), a=lost))}["evaluation"]
    assert (found.verdict, found.where) == (CANNOT_TELL, "top1: not a number on either side")


def test_losses_that_are_no_number_differ_from_any_and_tell_nothing_of_each_other():
    lost = replace(recorded(), losses=(2.0, np.nan, np.nan))
    found = rungs(lost)["trajectory"]
    assert (found.verdict, found.where) == (DIFFERENT, "step 1: 1.9 and nan")
    found = {rung.name: rung for rung in compare.run_checks(replace(pair(lost), a=lost))}
    assert (found["trajectory"].verdict, found["trajectory"].compared) == (EQUAL, 1)
    lost = replace(lost, losses=(np.nan,))
    found = {rung.name: rung for rung in compare.run_checks(replace(pair(lost), a=lost))}
    for name in ("loss", "trajectory"):
        assert (found[name].verdict, found[name].where) == (
            CANNOT_TELL,
            "step 0: not a number on either side",
        )


def test_what_a_rank_leaves_is_read_where_numbers_are_not_finite(tmp_path):
    """As the quality is on a rank that has not counted it, and the losses of what diverges."""
    notes = Notes()
    notes.facts.update(ranks=1, losses=[1.0, np.inf], shapes={}, operators={}, quality={"AUC": float("nan")})
    record.write(notes, tmp_path, 0)
    read = recording.read(tmp_path)
    assert read.losses[0] == 1.0
    assert np.isnan([read.losses[1], read.facts["quality"]["AUC"]]).all()


def test_what_start_weights_answer_tells_where_training_has_made_answers_a_matter_of_luck():
    """As six steps do that leave a quality of zero."""
    quality = {**recorded().facts, "quality": {"mAP": 0.0}}
    luck = [
        replace(
            recorded(noise=U, seed=seed, **{"evaluation__last__(model)": np.full((4, 4), seed)}),
            facts=quality,
        )
        for seed in (1, 2)
    ]

    def evaluation(**changes):
        changes = {"evaluation__last__(model)": np.full((4, 4), 3.0), **changes}
        one = replace(pair(replace(recorded(**changes), facts=quality)), twins=luck)
        return compare.run_checks(replace(one, a=replace(one.a, facts=quality)), ["evaluation"])[0]

    own = recorded().arrays["evaluation/start/(model)"]
    off = evaluation(**{"evaluation__start__(model)": own * np.float32(1.001)})
    assert (off.verdict, off.where) == (DIFFERENT, "(model), start weights")
    same = evaluation()
    assert (same.verdict, same.note.partition("; ")[2]) == (
        EQUAL,
        "mAP: 0 on both sides, so its computation is not tested",
    )
    assert evaluation(**{"evaluation__start__(model)": np.empty((0, 4))}).verdict == DIFFERENT


def test_a_quality_of_zero_on_both_sides_tells_nothing_where_no_answers_were_compared():
    def of(ranks):
        return replace(recorded(), facts={**recorded().facts, "quality": {"mAP": 0.0}, "ranks": ranks})

    (found,) = compare.run_checks(Pair(a=of(1), b=of(2)), ["evaluation"])
    assert found.verdict == CANNOT_TELL
    assert "mAP: 0 on both sides" in found.note


def test_an_evaluation_that_leaves_samples_out_is_found_whatever_its_quality_is():
    own = recorded()
    found = rungs(replace(own, facts={**own.facts, "answered": 8}))["evaluation"]
    assert (found.verdict, found.where) == (DIFFERENT, "12 and 8 samples are evaluated")


def test_a_rate_that_is_off_by_a_step_is_found_where_it_begins():
    late = np.concatenate([[0.1], np.linspace(0.1, 0.0, 30)[:-1]]).reshape(30, 1)
    found = rungs(recorded(schedule__lr=late))["schedule"]
    assert found.where.startswith("lr of first.weight at step 1")


def test_groups_that_are_cut_otherwise_are_the_same_if_every_parameter_has_the_same_options():
    b = recorded(schedule__lr=np.tile(np.linspace(0.1, 0.0, 30).reshape(30, 1), 2))
    apart = [[name] for name in b.facts["trained"]]
    options = [[{"lr": 0.1, "weight_decay": 0.0}, {"lr": 0.1, "weight_decay": decay}] for decay in (0.0, 0.0)]
    facts = {**b.facts, "groups": apart, "schedule_groups": apart, "options": options}
    found = rungs(replace(b, facts=facts))
    assert (found["groups"].verdict, found["schedule"].verdict) == (EQUAL, EQUAL)
    options = [[{"lr": 0.1, "weight_decay": 0.0}, {"lr": 0.1, "weight_decay": 0.01}]]
    found = rungs(replace(b, facts={**facts, "options": options}))
    assert found["groups"].where == "weight_decay of second.weight at step 0: 0.0 and 0.01"


def test_a_trajectory_is_compared_as_long_as_the_twins_agree():
    wild = replace(recorded(noise=U, seed=1), losses=(2.0, 1.9, 1.8, 1.2, 1.0))
    one = replace(pair(replace(recorded(), losses=(2.0, 1.9, 1.8, 1.6, 1.0))), twins=[wild])
    (found,) = compare.run_checks(one, ["trajectory"])
    assert (found.verdict, found.compared, found.note) == (
        EQUAL,
        3,
        "of 5, where repetitions of A differ by 5 %",
    )


def test_without_twins_and_without_data_nothing_is_claimed():
    own = recorded()
    bare = replace(
        own,
        arrays={name: own.arrays[name] for name in own.names("parameters")},
        losses=(),
        facts={**own.facts, "quality": None},
    )
    found = {rung.name: rung.verdict for rung in compare.run_checks(Pair(a=bare, b=bare))}
    assert found.pop("parameters") == EQUAL
    assert set(found.values()) <= {NOT_COMPARED, EQUAL}
    assert found["trajectory"] == found["gradients"] == found["evaluation"] == NOT_COMPARED


def test_start_weights_of_another_spread_are_found_over_many_seeds_and_other_draws_are_not():
    drawn = np.random.default_rng(7)
    size = {
        f"initial_size__{name}": np.abs(drawn.standard_normal(20)) for name in recorded().facts["trained"]
    }
    other = {f"initial__{name}": drawn.standard_normal((20, 12)) for name in recorded().facts["trained"]}
    assert rungs(recorded(**other, **size))["initial distributions"].verdict == EQUAL
    wide = {"initial__first.weight": 3 * drawn.standard_normal((20, 12))}
    found = rungs(recorded(**(other | wide), **size))["initial distributions"]
    assert found.verdict == DIFFERENT
    assert found.where.startswith("first.weight, its values")


def test_initial_values_of_a_tensor_are_taken_once_each():
    values, notes = initial.Initial(), Notes()
    values.add({"small": torch.arange(50.0), "large": torch.arange(10_000.0)})
    values.note(notes)
    small, large = (notes.arrays[f"initial/{name}"][0] for name in ("small", "large"))
    assert sorted(small) == list(range(50))
    assert len(set(large)) == len(large) == initial.VALUES


def test_tests_of_equal_distributions_reject_as_seldom_as_they_say():
    drawn = np.random.default_rng(3)
    samples = [(drawn.standard_normal((20, 16)), drawn.standard_normal((20, 16))) for _ in range(400)]
    assert sum(distributions.two_samples(*two) < 0.05 for two in samples) == pytest.approx(20, abs=14)
    sizes = [(drawn.standard_normal(20) + 9, drawn.standard_normal(20) + 9) for _ in range(2000)]
    assert sum(distributions.means(*two) < 0.01 for two in sizes) <= 35
