"""Points of a benchmark: the hyperparameters of its reference convergence points, by their global batch size."""

import json

import pytest

from train_bench.cli.overrides import resolve
from train_bench.cli.program import command
from train_bench.errors import RequestError
from train_bench.plan import discover


@pytest.mark.parametrize(
    ("words", "resolved"),
    [
        (["benchmark=resnet", "point=8192", "runs=1"], ["runs=1", "benchmark=resnet_bs8192"]),
        (["point=32"], ["benchmark=resnet_mini_bs32"]),
        (["point=64", "benchmark=resnet_mini"], ["benchmark=resnet_mini"]),
        (["benchmark=resnet_bs4096", "point=8192"], ["benchmark=resnet_bs8192"]),
        (["point=32,128"], ["benchmark=resnet_mini_bs32,resnet_mini_bs128"]),
        (["benchmark=resnet_bs4096"], ["benchmark=resnet_bs4096"]),
    ],
)
def test_a_point_is_a_variant_of_its_benchmark(words, resolved):
    assert resolve(words) == resolved


def test_a_size_without_a_point_is_refused_with_those_that_have_one():
    with pytest.raises(RequestError, match=r"resnet_mini has no .* at 7; give point= one of 32, 64, 128\."):
        resolve(["point=7"])
    with pytest.raises(RequestError, match=r"no benchmark 'resnets'\. Did you mean 'resnet'"):
        resolve(["benchmark=resnets", "point=7"])


def test_a_point_differs_from_its_benchmark_by_its_batch_size_and_the_values_of_its_file():
    base, point = discover.values("resnet_mini"), discover.values("resnet_mini_bs32")
    assert point["hyperparameters"]["global_batch_size"] == 32
    assert point["hyperparameters"] != base["hyperparameters"]
    assert {name: value for name, value in point.items() if base[name] != value}.keys() == {
        "evaluation",
        "hyperparameters",
    }


def test_both_spellings_give_the_same_plan(capsys):
    plans = []
    for words in (("point=32",), ("benchmark=resnet_mini_bs32",)):
        assert command("plan")([*words, "seed=1", "output=/nowhere", "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)["plans"][0]
        plan["request"]["overrides"].sort()  # as typed
        plans.append({name: value for name, value in plan.items() if name != "created"})
    assert plans[0] == plans[1]


def test_a_list_has_a_row_for_each_benchmark_with_its_points_behind_it(capsys):
    assert command("list")([]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert "32,64,128" in rows["resnet_mini"]
    assert not [name for name in rows if "_bs" in name]
