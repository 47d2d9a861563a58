"""The page of served weights as a person meets it, in headless Chromium."""

import pytest

from tests.report import pages
from train_bench.report.page import write

pytestmark = pytest.mark.full


def row(scenario, **more):
    return {
        "scenario": scenario,
        "values": {"0": 2e6, "1": 3e6},
        "mean": 2.5e6,
        "low": 1e6,
        "high": 4e6,
        "rate": None,
        "tried": None,
        "quality": {},
        "latencies": {"edges_ms": [1.0, 1.26, 1.58], "counts": [30, 10]},
        "joules": {"0": 3e6},
        "joules_per_million": 3e6,
    } | more


def content(name):
    tried = [{"rate": 90.0 + step, "run": 0, "valid": step < 9, "p99_ms": 5.0 + step} for step in range(12)]
    run = {"weights": {}, "log": "", "quality": {name: 0.75}, "minutes": 2.0, "joules": 120.0}
    return {
        "benchmark": name,
        "campaign": name,
        "round": "mini-serving-1.0",
        "quantisation": "none",
        "valid": True,
        "tests": [],
        "unjudged": [],
        "findings": [{"message": name, "grade": "review", "check": "disturbed"}],
        "training": [run | {"index": index} for index in range(2)],
        "scenarios": [
            row("Offline", values={"0": 100.0, "1": 100.0}, mean=100.0, low=99.0, high=101.0),
            row("Server", rate=98.0, tried=tried),
            row("SingleStream"),
            row("MultiStream", latencies=None),
        ],
    }


@pytest.mark.parametrize("name", ["resnet_mini", *pages.HOSTILE])
def test_the_answer_comes_first_and_every_plot_is_drawn(tmp_path, visit, name):
    path = tmp_path / "serving.html"
    path.write_text(write.serving_page(content(name)))
    seen = visit(path)
    assert seen.draw("serving") == 2
    lines = seen.page.locator("main .verdict strong").all_inner_texts()
    assert len(lines) == 4
    assert lines[0].startswith("Offline: 100 samples/s")
    text = seen.page.locator("main").inner_text()
    assert "after 12,000 answers, serving has taken longer than training" in text
    assert "after 40 answers, serving has cost more energy than training" in text
    assert seen.page.evaluate("window.hacked") is None
    assert seen.overflow() <= 0
