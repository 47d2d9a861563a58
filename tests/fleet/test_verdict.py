"""What is said of a fleet by what was seen of it."""

import pytest

from train_bench.fleet.observations import Node, Together, Trained
from train_bench.fleet.outliers import upper_limit
from train_bench.fleet.verdict import Known, judge_node_groups, judge_nodes

NOISE = 0.04
VERSIONS = {"torch": "2", "kernel": "6"}


def trained(pace=1.0, *, waited=0.0, weights="w"):
    return Trained(
        seconds=4 * pace,
        pace=pace,
        waited=waited,
        evaluations=(0.5,),
        order="o",
        weights=weights,
        threads=1,
    )


def node(name, *trainings, versions=VERSIONS, kind="a machine", ahead=0.0):
    return Node(
        name=name,
        address=name,
        type=kind,
        versions=versions,
        ahead=ahead,
        trained=[*(trainings or (trained(),))],
    )


def known(**changes):
    values = {"pace": 1.0, "noise": NOISE, "versions": VERSIONS, "outcome": ("o", (0.5,), "w")}
    return {"a machine": Known(**values | changes)}


def ring(names, slow=(), **weights):
    """Pairs of neighbours, of which some are slow or end with other weights."""
    pairs = [(name, names[(at + 1) % len(names)]) for at, name in enumerate(names)]
    return [
        Together(
            nodes=pair,
            trained=trained(2.0 if "".join(pair) in slow else 1.0, weights=weights.get("".join(pair), "w")),
            trouble=None,
        )
        for pair in pairs
    ]


def told(names, together):
    nodes = [node(name) for name in names]
    verdict = judge_nodes(nodes, {}, NOISE)
    judge_node_groups(verdict, nodes, together, NOISE)
    return [(finding.nodes, finding.kind) for finding in verdict.findings]


def test_a_slow_link_is_named_by_its_two_nodes():
    assert told("abcd", ring("abcd", slow=["bc"])) == [(("b", "c"), "link")]


@pytest.mark.parametrize("names", ["abc", "abcd", "abcdefgh"])
def test_a_node_all_of_whose_pairs_are_slow_is_named_alone(names):
    assert told(names, ring(names, slow=["ab", "bc"])) == [(("b",), "link")]


def test_a_link_that_corrupts_what_it_carries_is_named():
    assert told("abcd", ring("abcd", cd="x")) == [(("c", "d"), "together")]


def test_the_time_of_one_pair_is_compared_with_nothing_and_that_is_said():
    nodes = [node("a"), node("b")]
    verdict = judge_nodes(nodes, {}, NOISE)
    judge_node_groups(verdict, nodes, ring("ab")[:1], NOISE)
    assert verdict.state == "good"
    assert "no other pair to compare" in verdict.notes[0]


def test_nodes_that_do_not_train_together_are_named():
    failed = Together(nodes=("a", "b", "c"), trained=None, trouble="2 ranks were requested, but 1 answered.")
    assert told("abc", [failed]) == [(("a", "b", "c"), "together")]


def test_a_fleet_that_got_slower_since_the_baseline_is_slow_in_every_node():
    verdict = judge_nodes([node("a", trained(1.5)), node("b", trained(1.5))], known(), NOISE)
    assert [(finding.nodes, finding.kind) for finding in verdict.findings] == [
        (("a",), "slow"),
        (("b",), "slow"),
    ]
    assert "50 % longer than the baseline" in verdict.findings[0].sentence


def test_weights_are_not_held_against_a_baseline_with_other_versions_which_are_told():
    newer = VERSIONS | {"torch": "3"}
    nodes = [node(name, trained(weights="x"), versions=newer) for name in "ab"]
    verdict = judge_nodes(nodes, known(), NOISE)
    assert verdict.findings == []
    assert "torch is 3, but 2 in the baseline" in verdict.notes[0]


def test_where_no_version_is_that_of_most_the_baseline_says_which_is_right():
    nodes = [node("a"), node("b", versions=VERSIONS | {"torch": "3"})]
    assert judge_nodes(nodes, {}, NOISE).undecided[0].kind == "version"
    (finding,) = judge_nodes(nodes, known(), NOISE).findings
    assert (finding.nodes, finding.kind) == (("b",), "version")


def test_weights_of_other_versions_are_no_wrong_result():
    other = node("d", trained(weights="x"), versions=VERSIONS | {"torch": "3"})
    verdict = judge_nodes([node("a"), node("b"), node("c"), other], {}, NOISE)
    assert [finding.kind for finding in verdict.findings] == ["version"]


def test_where_most_nodes_do_not_repeat_themselves_weights_tell_nothing():
    nodes = [node(name, trained(weights=name), trained(weights=f"{name}2")) for name in "abc"]
    verdict = judge_nodes(nodes, {}, NOISE)
    assert (verdict.state, verdict.undecided[0].kind) == ("cannot tell", "wrong")


def test_times_that_vary_too_much_tell_nothing():
    nodes = [node(name, trained(1.0), trained(1.6)) for name in "abcd"]
    verdict = judge_nodes(nodes, {}, NOISE)
    assert (verdict.state, verdict.undecided[0].kind) == ("cannot tell", "slow")
    assert "would be detected" in verdict.undecided[0].sentence


def test_machines_that_others_use_are_told_of():
    verdict = judge_nodes([node(name, trained(waited=0.1)) for name in "abc"], {}, NOISE)
    assert verdict.state == "good"
    assert "disturbed machines" in verdict.notes[0]


def test_on_machines_that_others_use_a_node_is_not_blamed_for_what_they_may_have_done():
    slower = [node("a", trained(1.4, waited=0.6)), *(node(name, trained(waited=0.5)) for name in "bcd")]
    verdict = judge_nodes(slower, {}, NOISE)
    assert (verdict.findings, verdict.state) == ([], "cannot tell")
    quiet = [node("a", trained(1.4, waited=0.6)), *map(node, "bcd")]
    assert [finding.nodes for finding in judge_nodes(quiet, {}, NOISE).findings] == [("a",)]


def test_the_clock_of_two_nodes_is_held_against_ours_and_of_three_against_each_other():
    two = judge_nodes([node("a", ahead=5.0), node("b")], {}, NOISE)
    assert [finding.nodes for finding in two.findings] == [("a",)]
    three = judge_nodes([node(name, ahead=-5.0) for name in "abc"], {}, NOISE)
    assert three.findings == []
    assert "ahead of those of the fleet" in three.notes[0]


def test_fewer_trainings_give_no_more_certainty():
    """Two nodes whose trainings vary by a tenth: two of each may be alike by chance, and are no proof."""
    times = [1.0, 1.12, 1.05], [1.1, 1.25, 1.17]
    states = []
    for count in (2, 3):
        nodes = [
            node(name, *(trained(pace) for pace in paces[:count]))
            for name, paces in zip("ab", times, strict=True)
        ]
        states.append(judge_nodes(nodes, {}, NOISE).state)
    assert states == ["cannot tell", "good"]
    assert upper_limit(2) > upper_limit(4) > upper_limit(40) > 1


def test_a_node_that_only_the_noise_excuses_is_not_good():
    paces = {name: 1.0 + at / 200 for at, name in enumerate("acdef")} | {"b": 1.27}
    nodes = [node(name, trained(pace), trained(1.09 * pace)) for name, pace in paces.items()]
    verdict = judge_nodes(nodes, {}, NOISE)
    assert verdict.state == "cannot tell"
    [doubt] = verdict.undecided
    assert doubt.nodes == ("b",)
    assert "b is slow: it takes 26 % longer than others of its type. Nodes vary by 15 %" in doubt.sentence
    assert "2 trainings of each node" in doubt.sentence
    quiet = [node(name, trained(1.0 + at / 50), trained(1.01 + at / 50)) for at, name in enumerate("abcd")]
    assert judge_nodes(quiet, {}, NOISE).state == "good"
