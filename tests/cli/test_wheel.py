"""The installed package stands alone: built, installed into an environment of its own, used without the checkout."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.test_architecture import HEAVY
from tests.judge.campaigns import campaign
from tests.own_trainer.test_benchmark import VALUES

ROOT = Path(__file__).parents[2]
DIGEST = "from train_bench.core import software; print(software.digest_of_sources())"


pytestmark = pytest.mark.full  # a wheel is built and installed


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


class Environment:
    """A virtual environment with the wheel, and a folder to work in."""

    def __init__(self, wheel, folder):
        venv.create(folder / "venv", symlinks=True)
        (self.packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        python = folder / "venv" / "bin" / "python"
        self.environ = {
            name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        install = ["--python", python, "install", "--quiet", "--no-deps", wheel]
        subprocess.run([sys.executable, "-m", "pip", *install], env=self.environ, check=True)
        self.work = folder / "work"
        self.work.mkdir()
        self.environ |= {
            "XDG_DATA_HOME": str(folder / "data"),
            "PATH": f"{python.parent}:{os.environ['PATH']}",
        }

    def run(self, *arguments, **environ):
        return subprocess.run(
            arguments, cwd=self.work, env=self.environ | environ, capture_output=True, text=True
        )


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """What runs a command in an environment that has the wheel, and of the tests' own environment what it needs."""
    environment = Environment(wheel, tmp_path_factory.mktemp("environment"))
    # A path alone: the files *.pth of that folder, which lead to this checkout, are not read.
    (environment.packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    before = set(environment.packages.rglob("*"))
    yield environment.run
    written = {path for path in environment.packages.rglob("*") if "__pycache__" not in str(path)} - before
    assert not written, "an installed package is not written to"


@pytest.fixture(scope="module")
def light(wheel, tmp_path_factory):
    """What runs a command in an environment that has the wheel and what `pip install train-bench` brings with it: the
    requirements of the wheel, of these and so on, as links to those of the tests' own environment."""
    environment = Environment(wheel, tmp_path_factory.mktemp("light"))
    (ours,) = importlib.metadata.distributions(path=[str(environment.packages)])
    todo, found = list(ours.requires), {}
    while todo:
        wanted = Requirement(todo.pop())
        name = canonicalize_name(wanted.name)
        if name not in found and (wanted.marker is None or wanted.marker.evaluate({"extra": ""})):
            found[name] = importlib.metadata.distribution(name)
            todo += found[name].requires or []
    for distribution in found.values():
        for name in {path.parts[0] for path in distribution.files} - {"..", "__pycache__"}:
            (environment.packages / name).symlink_to(distribution.locate_file(name))
    for name, seconds in (("slow", 60), ("fast", 30)):
        (environment.work / name).mkdir()
        campaign(environment.work / name, ["good"] * 5, seconds=[seconds + run for run in range(5)])
    return environment.run


def test_the_wheel_has_one_package_with_every_file_of_the_checkout_that_belongs_to_it(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    belong = set()
    places = {folder: f"train_bench/{folder}" for folder in ("references", "launchers", "conf", "rcp")}
    places |= {"train_bench": "train_bench", "examples/two_moons": "train_bench/trainer_template"}
    for folder, place in places.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                belong.add(f"{place}/{path.relative_to(ROOT / folder)}")
    assert names == belong


def test_the_description_has_no_link_or_picture_that_an_index_does_not_have(wheel):
    with zipfile.ZipFile(wheel) as made:
        (metadata,) = (name for name in made.namelist() if name.endswith(".dist-info/METADATA"))
        said = made.read(metadata).decode()
    assert "Description-Content-Type: text/markdown" in said
    assert "## Three tasks" in said and "docs/comparing.md" in said
    assert "](" not in said.replace("](http", "")


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
    source = "from train_bench.plan import discover; print(discover.rcp_folder_of('resnet'))"
    assert installed("python", "-c", source).stdout.rstrip().endswith("/data/train_bench/rcp")


def test_a_light_install_has_nothing_that_the_references_bring(light):
    source = "import importlib.util, sys; print(*filter(importlib.util.find_spec, sys.argv[1:]))"
    assert light("python", "-c", source, "yaml", *HEAVY).stdout == "yaml\n"


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        ("list", 0, "resnet_mini"),
        ("profile --help", 0, "train-bench profile demo"),
        ("profile slow --ruleset mini-1.0", 0, "resnet_mini mini-1.0:"),
        ("rules benchmark=resnet ruleset=1.1.0", 0, "target"),
        ("plan benchmark=resnet_mini launcher=torchrun", 2, "Here, run would refuse this: "),
        ("run --help", 0, "seed"),
        ("-sc query=bash", 0, "benchmark=resnet_mini"),
        ("judge slow --ruleset mini-1.0", 1, "RCP fail: mean of 3.00 epochs"),
        ("score slow --ruleset mini-1.0 --markdown", 1, "resnet_mini"),
        ("compare slow fast --ruleset mini-1.0", 0, "is faster than"),
    ],
)
def test_a_light_install_lists_plans_judges_scores_and_compares(light, arguments, code, printed):
    answer = light("train-bench", *arguments.split(), COMP_LINE="train-bench plan benchmark=resnet_m")
    # Tables for other programs say nothing of the verdict.
    said = "train-bench: exit code 1: 1 of 1 result(s) are not valid.\n" if "--markdown" in arguments else ""
    assert (answer.returncode, answer.stderr) == (code, said)
    assert printed in answer.stdout


def test_a_light_install_writes_a_page_of_several_results(light):
    answer = light("train-bench", "report", "slow", "fast", "--ruleset", "mini-1.0", "--to", "page.html")
    assert (answer.returncode, answer.stderr) == (
        1,
        "train-bench: exit code 1: 2 of 2 result(s) are not valid.\n",
    )
    assert "plotly" in light("cat", "page.html").stdout


PROGRAM = f"""
import numpy
from train_bench import Benchmark
benchmark = Benchmark("resnet_mini", "mini-1.0", folder="own", until=4, samples_per_epoch=1000, seed=7)
benchmark.announce(submission_org="me", **{VALUES})
benchmark.init_start()
benchmark.weights_initialized("weight")
benchmark.init_stop()
benchmark.run_start(train_samples=1000, eval_samples=100)
for mark, quality in zip(benchmark.blocks(), numpy.array([0.5, 0.9])):
    benchmark.eval_start()
    benchmark.report(float(quality))
"""


def test_a_program_of_ones_own_logs_in_a_light_install(light):
    ran = light("python", "-c", PROGRAM)
    assert (ran.returncode, ran.stderr) == (0, "")
    judged = light("train-bench", "judge", "own", "--ruleset", "mini-1.0")
    assert "result_0.txt: success, converged, follows the rules" in judged.stdout


@pytest.mark.parametrize("verb", ["run", "rcp", "check", "prepare"])
def test_what_trains_a_reference_says_in_one_sentence_what_a_light_install_lacks(light, verb):
    own = ["replace_point=true"] if verb == "rcp" else []
    answer = light("train-bench", verb, "benchmark=resnet_mini", "output=campaign", "data_dir=data", *own)
    assert (answer.returncode, answer.stdout) == (2, "")
    needs = r"train-bench: resnet needs packages that are not installed \(torch, PIL, sklearn\): pip install "
    assert re.fullmatch(
        needs + r"'(train-bench|/.*\.whl)\[references\]'\. Nothing was started\.\n", answer.stderr
    )
    assert light("sh", "-c", "ls -d campaign data").stdout == ""


def test_a_light_install_lays_out_a_benchmark_of_ones_own_and_says_what_its_training_needs(light):
    assert light("train-bench", "new", "benchmark", "waves").returncode == 0
    for verb, code, printed in (("plan", 2, "waves"), ("check", 2, "(torch): install them.")):
        answer = light("train-bench", verb, "benchmark=waves", TRAIN_BENCH_PATH="waves")
        assert answer.returncode == code
        assert printed in answer.stdout + answer.stderr
