"""What makes another task of a benchmark: the composed configuration against the definition, not the words."""

import json
from dataclasses import asdict

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tests.command_line import typed
from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.plan import definition, discover
from train_bench.plan.run_config import register

MINI = "resnet_mini"
NAMES = sorted({discover.describe_variant(name)["benchmark"] for name in discover.variants()})


def composed(*overrides):
    """The configuration of a benchmark as Hydra composes it."""
    register()
    with initialize_config_dir(str(discover.CONF), version_base="1.3"):
        return OmegaConf.to_object(compose("config", overrides=list(overrides))).benchmark


def changes(*overrides, ranks=1):
    config = composed(*overrides)
    return definition.changes(config.benchmark, asdict(config.for_ranks(ranks)), ranks)


@pytest.mark.parametrize(
    "variant",
    others_in_full(discover.variants(), [f"{name}_mini" for name in discover.references()]),
)
def test_a_shipped_variant_differs_from_its_benchmark_in_what_may_be_tuned_alone(variant):
    assert changes(f"benchmark={variant}", ranks=2) == ()


@pytest.mark.parametrize("name", others_in_full(NAMES, discover.references()))
def test_the_definition_is_what_hydra_composes(name):
    assert definition._definition(name) == composed(f"benchmark={name}")


@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("benchmark.model.widths=[8,8,8]", "benchmark.model.widths=[8,8,8]"),
        ("benchmark.label_smoothing=0", "benchmark.label_smoothing=0.0"),
        ("benchmark.reference=unet3d", "benchmark.reference=unet3d"),
        ("benchmark.data.sha256=null", "benchmark.data.sha256=null"),
        ("++benchmark.data.permute_labels=true", "benchmark.data.permute_labels=true"),
        ("benchmark.data.origin=${oc.env:ORIGIN,cifar10}", "benchmark.data.origin=cifar10"),
    ],
)
def test_a_change_is_spelled_as_the_option_that_makes_it(override, change):
    assert changes(override) == (change,)


def test_an_option_that_says_what_the_definition_says_is_no_change():
    assert changes("benchmark.model.widths=[24,48,96]", "benchmark.label_smoothing=0.1") == ()


def test_what_follows_from_tuned_values_and_ranks_is_no_change():
    assert changes("benchmark=unet3d_mini", "benchmark.hyperparameters.global_batch_size=16", ranks=2) == ()


def test_values_that_the_rules_fix_are_changes_among_hyperparameters_too():
    option = "benchmark.hyperparameters.min_selfplay_games_per_generation=7"
    assert changes("benchmark=minigo_mini", option) == (option,)


def test_an_entry_that_was_added_or_taken_away_is_a_change():
    config = asdict(composed("benchmark=bert"))
    name = next(iter(config["data"]["md5"]))
    config["data"]["md5"]["another.txt"] = config["data"]["md5"].pop(name)
    added, removed = definition.changes("bert", config, 1)
    assert added.startswith("benchmark.data.md5.another.txt=")
    assert removed == f"~benchmark.data.md5.{name}"


def test_a_configuration_read_back_from_json_is_the_same():
    config = json.loads(json.dumps(asdict(composed("benchmark.model.blocks=[1,1,2]").for_ranks(1))))
    assert definition.changes(MINI, config, 1) == ("benchmark.model.blocks=[1,1,2]",)


@pytest.mark.parametrize("content", [{"model": 3}, {"model": {"widths": "wide"}, "data": [1]}])
def test_a_configuration_of_another_shape_is_refused(content):
    config = asdict(composed()) | content
    with pytest.raises(RequestError, match="not a configuration of resnet_mini"):
        definition.changes(MINI, config, 1)


def test_a_benchmark_that_nothing_defines_is_refused():
    with pytest.raises(
        RequestError, match=r"Nothing defines the benchmark resnet_mini_bs32: no conf/benchmark/"
    ):
        definition.changes("resnet_mini_bs32", asdict(composed()), 1)


@pytest.fixture
def own(tmp_path):
    """A folder of configurations of one's own: `mine`, and one that has the name of the shipped one."""
    folder = tmp_path / "own" / "benchmark"
    folder.mkdir(parents=True)
    text = "defaults: [resnet_mini, _self_]\nlabel_smoothing: 0.0\nmodel: {widths: [16, 32, 64]}\n"
    (folder / "mine.yaml").write_text(text)
    (folder / "resnet_mini.yaml").write_text(
        text.replace("resnet_mini", "resnet") + "benchmark: resnet_mini\n"
    )
    return folder.parent


@pytest.mark.parametrize("way", ["--config-dir={}", "hydra.searchpath=[file://{}]"])
def test_a_configuration_of_ones_own_is_compared_with_the_shipped_definition(own, way):
    answer = typed("plan", way.format(own), "benchmark=mine", "runs=1", "--json")
    (plan,) = json.loads(answer.stdout)["plans"]
    assert (plan["benchmark"], plan["variant"]) == (MINI, "mine")
    assert plan["changes"] == ["benchmark.model.widths=[16,32,64]", "benchmark.label_smoothing=0.0"]


def test_a_configuration_of_ones_own_does_not_take_the_name_of_a_shipped_one(own):
    answer = typed("plan", f"--config-dir={own}", f"benchmark={MINI}", "runs=1", "--json")
    (plan,) = json.loads(answer.stdout)["plans"]
    assert plan["changes"] == []
    assert plan["shared"]["config"]["model"]["widths"] == composed().model.widths


def test_the_other_side_of_a_pair_is_compared_as_well(own):
    answer = typed("plan", f"--config-dir={own}", "runs=1", "against='benchmark=mine'", "--json")
    plans = json.loads(answer.stdout)["plans"]
    assert plans[0]["changes"] == [] and "benchmark.label_smoothing=0.0" in plans[1]["changes"]
