"""Expected ranges of figures, verdicts, and the page."""

from __future__ import annotations

import pytest

from train_bench.gpu_check.page import page, verdicts
from train_bench.gpu_check.parts import NAMES, Expected, expectations, expected, out_of_range
from train_bench.gpu_check.probe import numbers_of


@pytest.mark.parametrize(
    ("figure", "numbers", "outside"),
    [
        (
            "*.ratio",
            {"one": {"ratio": 1.0}, "other": {"ratio": 0.5}},
            ["memory: other.ratio is 0.5, expected 0.9 to 1.1: off."],
        ),
        ("*.ratio", {"one": {"ratio": 1.05}, "note": "none"}, []),
        (
            "*.ratio",
            {"one": {"ratio": float("nan")}},
            ["memory: one.ratio is nan, expected 0.9 to 1.1: off."],
        ),
        ("*_ratio", {"DDP_ratio": 2.0, "ratio": 3.0}, ["memory: DDP_ratio is 2, expected 0.9 to 1.1: off."]),
        ("*.ratio", {}, []),
    ],
)
def test_a_figure_outside_its_range_is_said(figure, numbers, outside):
    range_ = Expected(part="memory", figure=figure, low=0.9, high=1.1, means="off")
    assert [*out_of_range(range_, numbers)] == outside


def test_ranges_are_of_parts_that_exist_and_are_not_empty():
    for range_ in expected():
        assert range_.part in NAMES
        assert range_.low <= range_.high


def test_a_cpu_is_held_to_no_range_and_a_gpu_to_those_of_its_name():
    assert [*expectations(None)] == []
    words = {range_.accelerator for range_ in expectations("NVIDIA H100 80GB HBM3")}
    assert words == {None, "H100"}


def content(*parts: dict, gpu: str | None = "NVIDIA H100 80GB HBM3") -> dict:
    made = {"train_bench": "1", "revision": "abc", "date": "today", "references": [], "verdicts": []}
    full = [{"status": "ok", "tried": True, "seconds": 1.0, "error": None, **part} for part in parts]
    return made | {"parts": full, "machine": {"accelerator": gpu, "processor": "Toy"}}


def test_a_slow_gpu_is_a_verdict_and_a_slow_cpu_is_none():
    slow = {"name": "peaks", "numbers": {"bf16_tflops": 300.0, "triad_tb_s": 3.0}}
    (sentence,) = verdicts(content(slow))
    assert sentence.startswith("peaks: bf16_tflops is 300, expected 600 to 990")
    assert verdicts(content(slow, gpu=None)) == []


def test_a_reference_below_its_peer_is_a_verdict_and_first_in_the_table():
    row = {
        "precision": "bf16",
        "batch": 8,
        "ours": 1.0,
        "peer": 1.0,
        "rival": "a loop",
        "low": 0.8,
        "high": 1.3,
    }
    row |= {"mfu": 0.41, "share_of_data_sheet": None, "memory_over_dry": 0.97}
    rows = [{**row, "name": "quick", "ratio": 1.2}, {**row, "name": "slow", "ratio": 0.9}]
    given = content({"name": "references", "numbers": {"references": rows}})
    given |= {"references": rows, "verdicts": verdicts(given)}
    assert given["verdicts"] == [
        "references: slow against a loop.ratio is 0.9, expected 1 to 100: the reference is slower than its peer."
    ]
    text = page(given)
    assert text.index("- references: slow") < text.index("| slow, bf16") < text.index("| quick, bf16")
    assert "| 8 | 8000 | 1.0 | 41 % | - | a loop 1.0 | 0.900 (0.800 to 1.300) | - | 0.97 | - | - |" in text


def test_the_page_names_what_was_not_tried_with_the_reason():
    skipped = {"name": "nccl", "tried": False, "status": "skipped", "error": "needs a GPU", "numbers": {}}
    text = page(content({"name": "peaks", "numbers": {"bf16_tflops": 0.5}}, skipped, gpu=None))
    assert text.startswith("# gpu-check: Toy\n")
    assert "No part that was tried failed" in text
    assert "- bf16_tflops 0.5" in text
    assert "Not tried: nccl (needs a GPU), facts, " in text


def test_figures_are_by_group_and_what_is_null_or_long_is_in_the_file_alone():
    numbers = {
        "step_ms": 76.7312,
        "mfu": None,
        "losses": [1.0] * 99,
        "said": "x" * 200,
        "shares": {"input": 0.5},
    }
    lines = page(content({"name": "profile_bert", "numbers": numbers})).splitlines()
    figures = [line for line in lines if line.startswith("- ")]
    assert figures == ["- shares: input 0.5", f"- step_ms 76.73, said {'x' * 160!r}"]
    empty = page(content({"name": "profile_bert", "status": "failed", "numbers": {}}))
    assert "\n\n\n" not in empty


def test_lines_of_a_probe_are_put_together():
    lines = ('numbers {"a": 1, "references": [1]}', "else", 'numbers {"a": 2, "references": [2]}')
    assert numbers_of("\n".join(lines)) == {"a": 2, "references": [1, 2]}
