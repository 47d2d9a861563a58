"""Internals of Hydra that are replaced for speed: each test names what broke where another Hydra has them otherwise."""

import copy

from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore

from train_bench.cli import hydra_app
from train_bench.plan import run_config


def test_hydra_composes_once_because_get_mode_is_replaced(monkeypatch):
    compose, composed = Hydra.compose_config, []

    def counted(self, *arguments, **options):
        composed.append(options.get("config_name"))
        return compose(self, *arguments, **options)

    monkeypatch.setattr(Hydra, "compose_config", counted)
    hydra_app.with_request("plan", ["benchmark=resnet_mini"], lambda _request: 0)
    assert len(composed) == 1, (
        "Hydra.get_mode no longer composes by itself; see _mode_by_words of cli/hydra_app.py"
    )


def test_the_store_of_configurations_is_not_copied_because_it_has_a_deepcopy_of_its_own():
    run_config.register()
    store = ConfigStore.instance()
    assert copy.deepcopy(store) is store, (
        "ConfigStore takes no __deepcopy__; see register of plan/run_config.py"
    )


def test_a_variant_that_is_known_no_more_leaves_the_store(monkeypatch):
    run_config.register()
    run_config._store("benchmark", "waves_gone", {"a": 1})
    kept = ConfigStore.instance().repo["benchmark"]
    assert "waves_gone.yaml" in kept, (
        "ConfigStore.repo has other names; see _forget_variants of plan/run_config.py"
    )
    run_config._forget_variants()
    assert "waves_gone.yaml" not in kept
