"""Configurations that Hydra knows without a file are those of the benchmarks that are found now."""

import copy

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore

from tests.fake_campaigns import laid_out
from train_bench.cli import program
from train_bench.core import plugins
from train_bench.plan import discover
from train_bench.plan.run_config import register


def known():
    return {name.removesuffix(".yaml") for name in ConfigStore.instance().repo["benchmark"]}


def test_a_benchmark_without_code_is_forgotten_where_one_with_code_takes_its_name(tmp_path, monkeypatch):
    assert (
        program.command("new")(["benchmark", "waves", "--without-code", "--to", str(tmp_path / "stated")])
        == 0
    )
    with monkeypatch.context() as patch:
        patch.setenv(plugins.VARIABLE, str(tmp_path / "stated" / "waves"))
        register()
        assert "waves" in known()
    with laid_out(tmp_path / "code"):
        register()
        assert "waves" not in known()
        assert "waves_schema" in known()
    register()
    assert "resnet_mini_bs32" in known()


def test_composing_copies_no_schema_and_changes_none():
    register()
    store = ConfigStore.instance()
    assert copy.deepcopy(store) is store
    with initialize_config_dir(str(discover.CONF), version_base="1.3"):
        first, second = (compose("config", overrides=["benchmark=ssd_mini"]) for _ in range(2))
        first.benchmark.hyperparameters.global_batch_size = first.max_minutes = 7
        third = compose("config", overrides=["benchmark=ssd_mini"])
    assert second == third != first
