"""Where this train_bench came from, and the command that installs an extra of it from there."""

import json
import os
import shlex
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.sandbox import ROOT
from train_bench.core import software
from train_bench.core.software import install_command


class Installed:
    """A distribution with what pip records of its origin."""

    def __init__(self, url):
        self._recorded = None if url is None else json.dumps({"url": url})

    def read_text(self, _name):
        return self._recorded


def installed_from(url, monkeypatch, tmp_path):
    """The command where train_bench is a package in a site folder and was installed from this URL."""
    monkeypatch.setattr(software, "PACKAGE", tmp_path / "site-packages" / "train_bench")
    monkeypatch.setattr(software.importlib.metadata, "distribution", lambda _name: Installed(url))
    return install_command("references")


def test_in_a_checkout_it_is_the_checkout_and_in_its_root_a_dot(monkeypatch, tmp_path):
    checkout = software.PACKAGE.parent
    monkeypatch.chdir(tmp_path)
    assert install_command("wandb") == f"pip install '{checkout}[wandb]'"
    monkeypatch.chdir(checkout)
    assert install_command("wandb") == "pip install '.[wandb]'"


def test_elsewhere_it_is_the_wheel_that_pip_installed(monkeypatch, tmp_path):
    wheel = tmp_path / "it's a wheel" / "train_bench-0.2.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    command = installed_from(wheel.as_uri(), monkeypatch, tmp_path)
    assert shlex.split(command) == ["pip", "install", f"{wheel}[references]"]


@pytest.mark.parametrize("url", [None, "https://example.org/a.whl", Path("/nowhere/a.whl").as_uri()])
def test_from_an_index_it_is_the_name(url, monkeypatch, tmp_path):
    assert installed_from(url, monkeypatch, tmp_path) == "pip install 'train-bench[references]'"


@pytest.mark.parametrize(
    ("extra", "name", "refused", "allowed"),
    [
        (None, "mlperf-logging", "4.2.0", "4.1.70"),
        (None, "hydra-core", "1.4.0", "1.3.3"),
        ("references", "torch", "2.9.1", "2.10.0"),
        ("deepspeed", "deepspeed", "0.19.3", "0.19.4"),
        ("deepspeed", "torch", "2.9.1", "2.10.0"),
        ("horovod", "torch", "2.9.1", "2.10.0"),
    ],
)
def test_versions_without_what_the_code_needs_are_not_installed(extra, name, refused, allowed):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    (specifier,) = [one.specifier for one in map(Requirement, lines) if one.name == name]
    assert not specifier.contains(refused)
    assert specifier.contains(allowed)


def test_the_digest_of_a_benchmark_follows_no_link_to_a_folder(tmp_path):
    folder = tmp_path / "wavy"
    (folder / "parts").mkdir(parents=True)
    (folder / "task.py").write_text("one = 1\n")
    (folder / "parts" / "model.py").write_text("two = 2\n")
    before = software.digest_of_reference(folder)
    for name, target in {"one": ".", "two": ".", "data": "/", "above": ".."}.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "pipe.py.part")
    assert software.digest_of_reference(folder) == before
    (folder / "parts" / "model.py").write_text("two = 3\n")
    assert software.digest_of_reference(folder) != before


def test_the_digest_of_a_benchmark_reads_no_pipe_and_no_endless_file(tmp_path):
    (tmp_path / "task.py").write_text("one = 1\n")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    (tmp_path / "gone.py").symlink_to("nowhere")
    with (tmp_path / "large.py").open("wb") as large:
        large.truncate(2**40)
    assert len(software.digest_of_reference(tmp_path)) == 12
