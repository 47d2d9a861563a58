"""Benchmarks and launchers outside the checkout: found by the variable, by entry points, and by name."""

import importlib
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import train_bench.launchers
import train_bench.references
from train_bench.core import plugins
from train_bench.errors import RequestError
from train_bench.plan import discover

CONFIG = """\
from dataclasses import dataclass
from train_bench.task import BenchmarkConfig
@dataclass(slots=True, kw_only=True)
class Config(BenchmarkConfig):
    width: int = 3
"""


def lay_out(folder: Path, variant: str) -> Path:
    (folder / "conf" / "benchmark").mkdir(parents=True)
    (folder / "config.py").write_text(CONFIG)
    (folder / "task.py").write_text("class Task: ...\n")
    lines = [
        "# A network that learns nothing. It is small.",
        f"benchmark: {variant}",
        f"reference: {folder.name}",
    ]
    (folder / "conf" / "benchmark" / f"{variant}.yaml").write_text("\n".join(lines) + "\nruleset: mini-1.0\n")
    return folder


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The folder of a benchmark `tiny` beside one of a launcher `by_hand`, on the path."""
    folder = lay_out(tmp_path / "tiny", "tiny_mini")
    (tmp_path / "by_hand").mkdir()
    for name in ("config", "start", "batch"):
        (tmp_path / "by_hand" / f"{name}.py").write_text("")
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path))
    for package in (train_bench.references, train_bench.launchers):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    yield folder
    for name in [name for name in sys.modules if ".references.tiny" in name]:
        del sys.modules[name]


def test_a_folder_of_the_variable_may_be_a_benchmark_or_hold_benchmarks_and_launchers(outside, monkeypatch):
    assert {"tiny", "resnet"} <= set(discover.references())
    assert {"by_hand", "torchrun"} <= set(discover.launchers())
    monkeypatch.setenv(plugins.VARIABLE, str(outside))
    assert "tiny" in discover.references()
    assert "by_hand" not in discover.launchers()


def test_what_lies_outside_is_described_and_imported_as_what_came_with_train_bench(outside):
    assert discover.describe_variant("tiny_mini") == {
        "benchmark": "tiny_mini",
        "reference": "tiny",
        "ruleset": "mini-1.0",
        "about": "A network that learns nothing.",
    }
    assert discover.reference_config("tiny").__module__ == "train_bench.references.tiny.config"
    assert discover.refuse_reference("tiny") is None


def test_another_process_is_told_the_folder_and_finds_the_same(outside, monkeypatch):
    folder = discover.folder_of("references", "tiny")
    assert (folder, discover.folder_of("references", "resnet")) == (str(outside), None)
    monkeypatch.delenv(plugins.VARIABLE)
    package = plugins.module_of("references", "tiny", folder)
    assert importlib.import_module(f"{package}.task").Task
    assert plugins.parents() == [str(outside.parent)], "processes that it starts find it, too"


@pytest.mark.parametrize("name", ["resnet", "twice"])
def test_two_of_one_name_are_an_error_that_names_both_places(name, tmp_path, monkeypatch):
    folders = [lay_out(tmp_path / side / name, f"{name}_{side}") for side in ("a", "b")]
    monkeypatch.setenv(plugins.VARIABLE, f"{folders[0]}:{folders[1]}")
    first = plugins.PACKAGE.parent / "references" / name if name == "resnet" else folders[0]
    with pytest.raises(RequestError) as refused:
        discover.references()
    other = folders[0] if name == "resnet" else folders[1]
    assert f"Two benchmarks are called {name}: {first} and {other}." in str(refused.value)


def test_two_configurations_of_one_name_are_an_error_that_names_both_files(tmp_path, monkeypatch):
    folder = lay_out(tmp_path / "tiny", "resnet_mini")
    monkeypatch.setenv(plugins.VARIABLE, str(folder))
    with pytest.raises(RequestError, match=rf"benchmark=resnet_mini is two files: .* and {folder}/conf/"):
        discover.variants()


@pytest.mark.parametrize(("word", "reason"), [("absent", "is not a folder"), ("empty", "no config.py there")])
def test_a_folder_of_the_variable_that_holds_nothing_is_refused(word, reason, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv(plugins.VARIABLE, str(tmp_path / word))
    with pytest.raises(RequestError, match=reason):
        discover.references()


@pytest.fixture
def announce(tmp_path, monkeypatch):
    """Has a package under `tmp_path` announced as an entry point."""

    def announce(value: str) -> None:
        monkeypatch.setenv(plugins.VARIABLE, "")
        monkeypatch.syspath_prepend(tmp_path)
        point = EntryPoint(name="any", group="train_bench.benchmarks", value=value)
        points = {"train_bench.benchmarks": [point]}
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points.get(group, []))
        plugins._plugins.cache_clear()

    yield announce
    plugins._plugins.cache_clear()


def test_an_installed_package_announces_a_benchmark_by_an_entry_point(tmp_path, announce):
    folder = lay_out(tmp_path / "somebodys" / "tiny", "tiny_mini")
    for package in (folder, folder.parent):
        (package / "__init__.py").write_text("")
    announce("somebodys.tiny")
    assert discover.reference_config("tiny").__module__ == "somebodys.tiny.config"
    assert discover.folder_of("references", "tiny") is None
    assert plugins.module_of("references", "tiny", None) == "somebodys.tiny"
    assert discover.source_of("tiny") == folder


@pytest.mark.parametrize("value", ["nobodys", "nobodys.tiny", "json.decoder"])
def test_an_entry_point_that_names_no_package_is_refused_with_its_name(value, announce):
    announce(value)
    with pytest.raises(RequestError, match=r"The entry point any of train_bench\.benchmarks"):
        discover.references()


def test_new_points_are_written_beside_the_benchmark_and_never_into_an_installed_package(
    outside, tmp_path, monkeypatch
):
    assert discover.rcp_folder_of("tiny") == outside / "rcp"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(plugins, "is_installed", lambda folder: True)
    for name in ("tiny", "resnet"):
        assert discover.rcp_folder_of(name) == tmp_path / "data" / "train_bench" / "rcp"
    assert discover.rcp_folders()[0] == tmp_path / "data" / "train_bench" / "rcp"


def test_nothing_may_be_called_parts_which_is_what_all_share(tmp_path, monkeypatch):
    folder = lay_out(tmp_path / "parts", "tiny_mini")
    monkeypatch.setenv(plugins.VARIABLE, str(folder))
    with pytest.raises(
        RequestError, match=f"{folder} cannot be called parts: train_bench.references.parts is what"
    ):
        discover.references()
