"""The installed package stands alone: built, installed into an environment of its own, used without the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIGEST = "from train_bench import software; print(software.digest_of_sources())"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built of the files that git knows, in a copy: a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("wheel")
    known = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(known, check=True, capture_output=True, text=True).stdout.splitlines():
        copy = folder / "source" / name
        if os.path.lexists(ROOT / name) and not name.startswith(("tests/", "docs/")):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, copy, follow_symlinks=False)
    build = ["wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder / "source"]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """What runs a command in an environment that has the wheel, and of the tests' own environment what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    python = folder / "venv" / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    install = ["--python", python, "install", "--quiet", "--no-deps", wheel]
    subprocess.run([sys.executable, "-m", "pip", *install], env=environ, check=True)
    # A path alone: the files *.pth of that folder, which lead to this checkout, are not read.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    (folder / "work").mkdir()
    environ |= {"XDG_DATA_HOME": str(folder / "data"), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    before = set(packages.rglob("*"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder / "work", env=environ, capture_output=True, text=True)

    yield run
    written = {path for path in packages.rglob("*") if "__pycache__" not in str(path)} - before
    assert not written, "an installed package is not written to"


def test_the_wheel_has_one_package_with_every_file_of_the_checkout_that_belongs_to_it(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    belong = set()
    for folder in ("train_bench", "references", "launchers", "conf", "rcp"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                belong.add(f"{'' if folder == 'train_bench' else 'train_bench/'}{path.relative_to(ROOT)}")
    assert names == belong


def test_an_installed_package_knows_its_version_and_the_digest_of_its_source(installed):
    assert (
        "environment" in installed("python", "-c", "import train_bench; print(train_bench.__file__)").stdout
    )
    assert installed("train-bench", "--version").stdout.startswith("train-bench 0.")
    here = subprocess.run([sys.executable, "-c", DIGEST], cwd=ROOT, capture_output=True, text=True)
    assert installed("python", "-c", DIGEST).stdout == here.stdout != ""


def test_an_installed_package_lists_trains_and_judges(installed):
    listed = installed("train-bench", "list").stdout
    little = ("search.readouts=4", "search.fast_readouts=2", "match.readouts=4", "match.games=8")
    for name, *changes in (
        ("resnet_mini", "evaluation.until=1"),
        ("minigo_mini", "evaluation.until=2", *little),
    ):
        assert name in listed
        overrides = (f"benchmark={name}", *(f"benchmark.{change}" for change in changes), "runs=1")
        ran = installed("train-bench", "run", *overrides, f"output={name}")
        assert ran.returncode == 1, ran.stdout + ran.stderr  # one run that is too short is no score
        judged = installed("train-bench", "judge", name)
        assert (judged.returncode, judged.stderr) == (1, "")
        assert "result_0.txt" in judged.stdout


def test_points_of_an_installed_package_are_the_users_own(installed):
    asked = "from train_bench.plan import discover; print(discover.rcp_folder_of('resnet'))"
    assert installed("python", "-c", asked).stdout.rstrip().endswith("/data/train_bench/rcp")
