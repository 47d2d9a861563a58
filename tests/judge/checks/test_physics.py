"""Runs that do more FLOP a second than their system can are asked for; no published entry is."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import needs
from tests.judge.campaigns import campaign, plan
from train_bench.judge.checks.physics import SLACK, _speed
from train_bench.judge.checks.submission import accelerators_of
from train_bench.judge.published import hardware, published_entries
from train_bench.judge.tree import judge_tree
from train_bench.rules import ruleset

MACHINE = {"accelerators": [], "cores": 2, "processor": "a processor"}


def asked(folder, *, ruleset_name="mini-1.0"):
    (entry,) = judge_tree(folder, ruleset_name=ruleset_name, rcp_folders=[]).entries
    return [one for one in entry.findings if one.check == "physics"]


def faster(folder, factor):
    """Divide the time since run_start of each line of the logs."""
    for file in folder.glob("result_*.txt"):
        lines = [json.loads(line.partition(":::MLLOG ")[2]) for line in file.read_text().splitlines()]
        began = next(line["time_ms"] for line in lines if line["key"] == "run_start")
        for line in lines:
            line["time_ms"] = began + round((line["time_ms"] - began) / factor)
        file.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in lines))


def ours(folder, *, device="cpu", precision="fp32", machine=MACHINE, nodes=1, world_size=1, **facts):
    """A campaign of ours of `resnet_mini` on a machine."""
    job = {"nodes": nodes, "device": device, "precision": precision}
    plan(
        folder,
        jobs=[{"index": at, "seed": 1000 + at, **job} for at in range(5)],
        world_size=world_size,
        **facts,
    )
    (folder / "system.json").write_text(json.dumps(machine))
    for log in campaign(folder, ["good"] * 5).glob("result_*.txt"):
        many = re.sub(r'("train_samples", "value": \d+)', r"\g<1>000", log.read_text())
        log.write_text(many)
    return folder


def rate(folder):
    (entry,) = judge_tree(folder, ruleset_name=None, rcp_folders=[]).entries
    return max(record.samples_per_second for record in entry.records)


def times_the_peak(folder, peak, factor):
    """Make a campaign so fast that its FLOP a second are `factor` times the peak."""
    flop, _ = hardware.flop_per_sample(ruleset.load("mini-1.0").benchmark("resnet_mini"))
    speed = rate(folder)
    faster(folder, factor * peak / (speed * flop))


CPU = 2 * hardware.core_peak("fp32")
T4 = {**MACHINE, "accelerators": ["Tesla T4"]}


@pytest.mark.parametrize(
    ("peak", "options", "name"),
    [
        (CPU, {}, "2 cores of any processor"),
        (2 * CPU, {"nodes": 2, "world_size": 2}, "4 cores of any processor"),
        (65e12, {"device": "cuda", "machine": T4, "precision": "fp16"}, "1 x Tesla T4"),
        (CPU, {"device": "cpu", "machine": T4}, "2 cores of any processor"),
    ],
)
def test_a_campaign_twice_as_fast_as_its_machine_is_asked_and_one_at_its_peak_is_not(
    tmp_path, peak, options, name
):
    fast, possible = tmp_path / "fast", tmp_path / "possible"
    for folder, factor in ((fast, 2.0), (possible, 1.0)):
        folder.mkdir()
        times_the_peak(ours(folder, **options), peak, factor)
    (question,) = asked(fast)
    assert question.grade == "review" and name in question.message
    assert question.value == pytest.approx(2, rel=0.1)
    assert not asked(possible)


def test_a_run_that_took_no_time_is_asked(tmp_path):
    faster(ours(tmp_path), 1e9)
    (question,) = asked(tmp_path)
    assert question.value > 1000


@pytest.mark.parametrize(
    "options",
    [
        {"changes": ["benchmark.model.widths=[8]"]},
        {"machine": {**MACHINE, "accelerators": ["Some Chip 9"]}, "device": "cuda"},
        {"machine": {**MACHINE, "accelerators": ["NVIDIA H100", "NVIDIA T4"]}, "device": "cuda"},
        {"machine": {**MACHINE, "cores": "many"}},
        {"machine": {"accelerators": "NVIDIA H100"}},
        {"machine": ["NVIDIA H100"]},
        {"nodes": 0},
    ],
    ids=str,
)
def test_nothing_is_asked_where_network_or_machine_are_unknown(tmp_path, options):
    folder = ours(tmp_path, **options)
    times_the_peak(folder, 1e15, 100)
    assert not asked(folder)


def test_of_the_published_entries_none_is_near_the_bound():
    highest, compared = 0.0, 0
    for entry in published_entries.shipped():
        rules = ruleset.load(f"training-{entry.round[1:]}.0").benchmark(entry.benchmark)
        known = hardware.flop_per_sample(rules)
        if known is None or not entry.samples_per_second or not entry.accelerators or not entry.accelerator:
            continue
        flop, format_ = known
        peak = hardware.accelerator_peak(entry.accelerator, format_)
        if peak is not None:
            compared += 1
            highest = max(highest, entry.samples_per_second * flop / entry.accelerators / peak)
    assert compared > 500
    assert highest < 0.6 < SLACK / 2


@pytest.mark.parametrize(
    ("name", "format_", "tflops"),
    [
        ("NVIDIA A100-SXM4-80GB (400W)", "fp8", 312),
        ("NVIDIA H200-SXM5-141GB", "fp8", 1979),
        ("NVIDIA H200-SXM5-141GB", "bf16", 989.5),
        ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "bf16", 2250),
        ("NVIDIA Blackwell Ultra GPU (GB300)", "fp8", 5000),
        ("Habana Gaudi2", "bf16", 432),
        ("Intel(R) Gaudi(R) 2 AI Accelerator", "bf16", 432),
        ("Graphcore Bow IPU", "bf16", 350),
        ("TPU-v5p", "bf16", 459),
        ("NVIDIA L40S", "fp8", 733),
        ("AMD Instinct MI325X 256GB HBM3E", "bf16", 1307.4),
    ],
)
def test_an_accelerator_is_known_by_the_words_of_its_name(name, format_, tflops):
    assert hardware.accelerator_peak(name, format_) == tflops * 1e12


def test_a_peak_has_a_source_and_is_the_product_of_units_and_clock_where_these_are_named():
    products = 0
    for row in hardware._rows(hardware.PEAKS):
        assert row["source"] and row["checked"], row
        if found := re.search(r"(\d+) (?:SM|CU) x (\d+) x ([\d.]+) GHz", row["checked"]):
            units, flop, gigahertz = map(float, found.groups())
            assert units * flop * gigahertz / 1000 == pytest.approx(row["bf16"], rel=1e-3), row
            products += 1
    assert products > 10


@pytest.mark.parametrize("name", ["TPU", "Habana Gaudi", "Ascend 310", "", "H1000", "MI300A"])
def test_another_accelerator_has_no_peak(name):
    assert hardware.accelerator_peak(name, "bf16") is None


def test_a_name_that_later_rounds_give_to_another_network_has_its_flop():
    ssd, retinanet = (
        hardware.flop_per_sample(ruleset.load(name).benchmark("ssd"))
        for name in ("training-1.1.0", "training-4.1.0")
    )
    assert ssd[0] < retinanet[0] / 3
    assert retinanet == hardware.flop_per_sample(ruleset.load("training-5.1.0").benchmark("retinanet"))


@needs.corpus
@pytest.mark.parametrize(
    "entry",
    [
        "v1.1/NVIDIA/results/dgxa100_ngc21.09_mxnet/ssd",
        "v1.1/Graphcore/results/ipu-pod16-TF1/resnet",
        "v5.1/Quanta_Cloud_Technology/results/D74H-7U/retinanet",
    ],
)
def test_a_published_entry_twice_as_fast_as_its_system_is_asked(tmp_path, entry):
    folder = tmp_path / entry
    shutil.copytree(needs.CORPUS / entry, folder)
    described = f"{Path(entry).parents[2]}/systems/{folder.parent.name}.json"
    (tmp_path / described).parent.mkdir()
    shutil.copy(needs.CORPUS / described, tmp_path / described)
    assert not asked(folder, ruleset_name=None)
    (judged,) = judge_tree(folder, ruleset_name=None, rcp_folders=[]).entries
    rules = ruleset.load(judged.location.ruleset).benchmark(judged.score.benchmark)
    flop, format_ = hardware.flop_per_sample(rules)
    count, name = accelerators_of(judged.location)
    speed = max(_speed(record, rules) or 0 for record in judged.records)
    faster(folder, 2 * count * hardware.accelerator_peak(name, format_) / (speed * flop))
    (question,) = asked(folder, ruleset_name=None)
    assert question.value == pytest.approx(2, rel=0.01)
    assert f"{count} x {name}" in question.message
