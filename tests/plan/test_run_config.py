"""Configurations that Hydra knows without a file are those of the benchmarks that are found now."""

from hydra.core.config_store import ConfigStore

from tests.fake_campaigns import laid_out
from train_bench.cli import program
from train_bench.core import plugins
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
