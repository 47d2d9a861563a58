"""What is said of each accelerator of a fleet by its rates under load."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.fleet.test_verdict import NOISE, VERSIONS, node, trained
from train_bench.fleet import accelerators
from train_bench.fleet.observations import Gpu, Load, Pair, load_of
from train_bench.fleet.verdict import Known, judge_nodes

RATES = {"product": 650e12, "memory": 3e12, "to_device": 5e10, "from_device": 5e10}


def loaded(name, *, gpus=4, changed=None, slow_pairs=(), errors=0, broken=None, kind="a machine"):
    """A node whose accelerator 2 has other rates, memory errors, or ended."""
    found = node(name, kind=kind)
    found.load = Load(
        gpus=tuple(
            Gpu(
                index=number,
                name="H",
                uuid=f"{name}{number}",
                rates={key: rate * (1 + number / 1000) for key, rate in RATES.items()}
                | ({} if number != 2 else changed or {}),
                facts={"ecc.errors.uncorrected.volatile.total": str(errors if number == 2 else 0)},
                error=broken if number == 2 else None,
            )
            for number in range(gpus)
        ),
        pairs=tuple(
            Pair(gpus=(at, (at + 1) % gpus), rate=1e11 if at in slow_pairs else 2e11) for at in range(gpus)
        ),
    )
    return found


def judged(*nodes, baseline=None):
    verdict = judge_nodes(nodes, baseline or {}, NOISE)
    accelerators.judge(verdict, nodes, baseline or {}, 0.01)
    return verdict


FAULTS = {
    "throttled": (
        {"changed": {"product": 500e12}},
        (2,),
        "500 TFLOP/s of matrix products, 23 % below the 650.7",
    ),
    "slow memory": ({"changed": {"memory": 2e12}}, (2,), "2 TB/s of memory, 33 % below the 3.003"),
    "narrow link to the host": ({"changed": {"to_device": 2e10}}, (2,), "20 GB/s from the host, 60 % below"),
    "narrow link from it": ({"changed": {"from_device": 2e10}}, (2,), "20 GB/s to the host, 60 % below"),
    "slow pair": (
        {"slow_pairs": (1,)},
        (1, 2),
        "100 GB/s of an all-reduce, 50 % below the 200 of the others",
    ),
    "slow in all of its pairs": ({"slow_pairs": (1, 2)}, (2,), "in all of its pairs."),
    "memory errors": ({"errors": 3}, (2,), "with 3 uncorrected memory errors since the last reset."),
    "failed": (
        {"broken": "AcceleratorError: an illegal address"},
        (2,),
        "fails under load: AcceleratorError",
    ),
}


@pytest.mark.parametrize(("fault", "gpus", "sentence"), FAULTS.values(), ids=FAULTS)
def test_the_accelerator_that_is_ill_is_named_and_all_others_are_good(fault, gpus, sentence):
    ill = loaded("b", **fault)
    verdict = judged(loaded("a"), ill, loaded("c"))
    (finding,) = verdict.findings
    assert (finding.nodes, finding.kind, finding.gpus) == (("b",), "gpu", gpus)
    assert finding.sentence.startswith(f"b has GPU {gpus[0]} (H, b{gpus[0]})")
    assert sentence in finding.sentence
    verdicts = [row["verdict"] for row in accelerators.as_json(verdict, ill)["gpus"]]
    assert [at for at, one in enumerate(verdicts) if one != "good"] == [*gpus]
    assert verdict.sick() == {"b"}


def test_512_accelerators_that_differ_as_chips_do_are_good():
    rng = np.random.default_rng(1)
    nodes = []
    for number in range(64):
        one = loaded(f"n{number}", gpus=8)
        noisy = [
            replace(gpu, rates={key: rate * np.exp(rng.normal(0, 0.02)) for key, rate in gpu.rates.items()})
            for gpu in one.load.gpus
        ]
        one.load = replace(one.load, gpus=tuple(noisy))
        nodes.append(one)
    verdict = judged(*nodes)
    assert (verdict.findings, verdict.undecided) == ([], [])
    (note,) = verdict.notes
    assert re.match(
        r"512 x H under load, usually: 65\d\.\d TFLOP/s of matrix products, 3\.0\d+ TB/s of memory", note
    )


@pytest.mark.parametrize(("share", "sick"), [(0.93, set()), (0.87, {"b"})])
def test_of_two_chips_one_may_be_slower_by_some_percent(share, sick):
    slower = loaded("b", gpus=1)
    rates = {name: share * rate for name, rate in slower.load.gpus[0].rates.items()}
    slower.load = Load(gpus=(replace(slower.load.gpus[0], rates=rates),), pairs=())
    assert judged(loaded("a", gpus=1), slower).sick() == sick


def test_machines_of_other_types_are_not_compared():
    slower = loaded("b", changed={name: rate / 2 for name, rate in RATES.items()}, kind="another")
    assert judged(loaded("a"), slower).sick() == {"b"}, "its others are as fast as those of a"
    halved = [
        replace(gpu, rates={name: rate / 2 for name, rate in gpu.rates.items()})
        for gpu in loaded("b").load.gpus
    ]
    slower.load = Load(gpus=tuple(halved), pairs=())
    assert judged(loaded("a"), slower).sick() == set()


@pytest.mark.parametrize(("rate", "state"), [(640e12, "good"), (500e12, "sick")])
def test_one_accelerator_is_compared_with_the_baseline_alone(rate, state):
    one = loaded("a", gpus=1)
    one.load = Load(gpus=(replace(one.load.gpus[0], rates={"product": rate}),), pairs=())
    assert [doubt.gpus for doubt in judged(one).undecided if doubt.kind == "gpu"] == [(0,)]
    before = Known(
        pace=1.0, noise=NOISE, versions=VERSIONS, outcome=("o", (0.5,), "w"), rates={"H": {"product": 650e12}}
    )
    assert judged(one, baseline={"a machine": before}).state == state


def test_rates_that_vary_too_much_decide_nothing():
    nodes = [loaded(name, gpus=1) for name in "abcd"]
    for number, one in enumerate(nodes):
        one.load = Load(gpus=(replace(one.load.gpus[0], rates={"memory": 1e12 * 1.4**number}),), pairs=())
    verdict = judged(*nodes)
    assert verdict.findings == []
    assert "TB/s of memory vary so much" in verdict.undecided[0].sentence


@pytest.mark.parametrize(
    ("ranks", "speed", "share"), [(1, 1e5, 0.1538), (4, 4e5, 0.1536), (4, None, None), (8, 4e5, 0.1536)]
)
def test_mfu_is_a_share_of_the_measured_peaks_of_the_accelerators_that_train(ranks, speed, share):
    one = loaded("a")
    one.trained = [replace(trained(), samples_per_second=given) for given in (speed, speed and speed / 2)]
    assert accelerators.mfu(one, ranks, 1e9) == (share and pytest.approx(share, abs=1e-4))
    one.load = None
    assert accelerators.mfu(one, ranks, 1e9) is None


def test_what_a_hostile_node_says_of_its_accelerators_is_text_and_no_rate():
    rows = [{"name": {}, "rates": {"product": -1, "memory": "x"}, "facts": 3, "uuid": "\x1b[2J"}, 7]
    found = load_of({"gpus": rows, "pairs": [{"gpus": [0, 9], "rate": 1}, {"gpus": "ab", "rate": 1}, None]})
    assert [(gpu.name, gpu.rates, gpu.uuid) for gpu in found.gpus] == [("none", {}, r"\x1b[2J")]
    assert found.pairs == ()
    for empty in (None, {}, {"gpus": []}, {"gpus": 1}):
        with pytest.raises(ValueError, match="no accelerators"):
            load_of(empty)
