"""The table of FLOP that the judge reads has what a dry run counts."""

import json

import pytest
import yaml

from tests.command_line import typed
from train_bench.judge.published.hardware import FLOP
from train_bench.plan import discover

ROWS = yaml.safe_load(FLOP.read_text("utf-8"))


def test_every_benchmark_has_a_row():
    benchmarks = {str(discover.values(one)["benchmark"]) for one in discover.variants()}
    assert benchmarks <= {row["benchmark"] for row in ROWS}


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet_mini", "dlrm_mini", "resnet"])
def test_a_row_is_what_a_dry_run_counts(name):
    (found,) = json.loads(typed("plan", "--dry", "--json", f"benchmark={name}").stdout)["dry"]
    (row,) = (row for row in ROWS if row["benchmark"] == name)
    assert float(row["flop"]) == pytest.approx(found["flop_per_sample"], rel=1e-3)
