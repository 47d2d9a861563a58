"""The opinion of the official submission checker is that of its own code, and its numbers are those of its tables."""

import shutil
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests import needs
from tests.references.published_code import export, importing
from tests.serving.recorded_tests import in_detail
from train_bench.serving import loadgen_log, official, rounds

INFERENCE = "b66003e10e2db4b8c36a448b0545ec90fcc6e9e9"
"""mlcommons/inference of 2026-08-20."""

pytestmark = needs.clones("inference")


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    """Its module of performance checks, its configuration and its constants."""
    folder = export(
        "inference", INFERENCE, "tools/submission/submission_checker", tmp_path_factory.mktemp("official")
    )
    with importing(folder.parent) as load:
        yield modules_of(load)


def modules_of(load):
    """Modules of the checker, which `load` imports by name."""
    places = {
        "constants": "constants",
        "configuration": "configuration.configuration",
        "performance": "checks.performance_check",
    }
    return SimpleNamespace(**{name: load(f"submission_checker.{place}") for name, place in places.items()})


def test_every_number_of_a_round_is_that_of_its_tables(checker):
    official_rounds = {f"inference-{name[1:]}" for name in checker.constants.MODEL_CONFIG}
    assert official_rounds == {*rounds.rounds()} - {rounds.MINI_ROUND}
    for name, table in checker.constants.MODEL_CONFIG.items():
        ours = rounds.load(f"inference-{name[1:]}")
        assert ours.min_duration_ms == checker.constants.TEST_DURATION_MS
        assert ours.seeds == table["seeds"]
        assert {*ours.models} == {*table["models"]}
        for model, limits in ours.models.items():
            accuracy = table.get("accuracy-sample-count", {}).get(model, limits.samples)
            assert limits.samples == table["dataset-size"][model]
            assert limits.loaded_samples == table["performance-sample-count"][model]
            assert (limits.accuracy_samples or limits.samples) == (
                accuracy["Offline"] if isinstance(accuracy, dict) else accuracy
            )
            assert limits.offline_samples == checker.constants.OFFLINE_MIN_SPQ_SINCE_V4.get(model)
            assert limits.server_latency_ns == table["latency-constraint"].get(model, {}).get("Server")
            assert limits.compliance == tuple(
                test for test in ("TEST01", "TEST04") if model in table[f"models_{test}"]
            )


class Values(dict):
    """The log of a test, as the checker asks for it."""

    def __getitem__(self, key):
        return self.get(key)

    def get_keys(self):
        return self.keys()

    def has_error(self):
        return True

    def get_errors(self):
        return [{"value": "Multiple conf files are used"}]

    def num_errors(self):
        return 1


def accepted(checker, test, version, model):
    logs = SimpleNamespace(
        performance_log=Values(test.values),
        system_json={"system_type": "datacenter"},
        loader_data={
            "benchmark": model,
            "scenario": test.scenario,
            "division": "closed",
            "check_scenarios": True,
        },
    )
    config = checker.configuration.Config(version, {})
    return checker.performance.PerformanceCheck(MagicMock(), "a/path", config, logs)()


AS_REQUIRED = {
    "effective_min_duration_ms": 600_000,
    "effective_performance_sample_count": 1024,
    "effective_samples_per_query": 24_576,
    "effective_target_latency_ns": 15_000_000,
    "effective_qsl_rng_seed": 2085463073848966840,
}

ONE_WRONG = {
    "effective_min_duration_ms": 599_999,
    "effective_performance_sample_count": 1023,
    "effective_samples_per_query": 24_575,
    "effective_target_latency_ns": 15_000_001,
    "effective_qsl_rng_seed": 7,
}


RUNS = (
    "SingleStream/performance/run_1",
    "MultiStream/performance/run_1",
    "Server/performance/run_1",
    "Offline/TEST04",
)


@pytest.mark.parametrize("wrong", [None, *ONE_WRONG])
@pytest.mark.parametrize("name", [*RUNS, "too_few", "too_slow", "too_short"])
def test_it_accepts_what_we_say_that_it_accepts(checker, copied, name, wrong):
    folder = copied / "resnet" / name
    shutil.copytree(copied / name, folder)
    for key, value in AS_REQUIRED.items():
        in_detail(key, ONE_WRONG[key] if key == wrong else value)(folder)
    test = loadgen_log.read(folder)
    reasons = tuple(official.performance_check(test, rounds.load("inference-6.1"), "resnet"))
    assert accepted(checker, test, "v6.1", "resnet") is (not reasons), reasons
