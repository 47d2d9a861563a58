"""`train-bench new`: what it lays out is the example, and runs at once."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import train_bench.references
from tests.command_line import typed
from tests.sandbox import ROOT
from train_bench.core import begun_plans, plugins
from train_bench.plan import discover

EXAMPLE = ROOT / "examples" / "two_moons"


def campaign(folder, name, *overrides, env=()):
    """Run the trainer that was laid out as NAME in a folder."""
    command = [sys.executable, "-m", "train_bench", "run", f"benchmark=./{name}", *overrides, "output=mine"]
    command += ["--", sys.executable, f"{name}/train.py"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **dict(env)}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder with a trainer `moons` and its campaign `mine`, as typed in a shell without `TRAIN_BENCH_PATH`."""
    folder = tmp_path_factory.mktemp("new")
    assert typed("new", "trainer", "moons", "--plain", f"to={folder}").returncode == 0
    answer = campaign(folder, "moons", "runs=2", "seed=1", env={"XDG_STATE_HOME": str(folder / "state")})
    assert "quality" in answer.stdout and not answer.stderr, answer
    return folder


@pytest.fixture
def found_nowhere(monkeypatch):
    """As where no benchmark outside of train_bench was named; what a test finds is forgotten."""
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(train_bench.references, "__path__", [*train_bench.references.__path__])


@pytest.fixture
def begun_here(ran, found_nowhere, monkeypatch):
    """As for the user who has begun the campaign."""
    monkeypatch.setenv("XDG_STATE_HOME", str(ran / "state"))


@pytest.mark.parametrize("trainer", ["plain", "lightning", "transformers"])
def test_a_new_trainer_is_the_example_by_its_own_name(tmp_path, trainer):
    answer = typed("new", "trainer", "moons", f"--{trainer}", f"to={tmp_path}")
    assert f"run benchmark={tmp_path / 'moons'} -- python {tmp_path / 'moons' / 'train.py'}" in answer.stdout
    parts = {"train.py": f"{trainer}_loop.py", "rules.yaml": "rules.yaml"}
    parts |= {"conf/benchmark/moons.yaml": "conf/benchmark/two_moons.yaml"}
    parts |= {"evaluation/evaluate.py": "evaluation/evaluate.py"}
    files = {str(path.relative_to(tmp_path / "moons")) for path in (tmp_path / "moons").rglob("*.*")}
    assert files == parts.keys()
    for place, example in parts.items():
        text = (EXAMPLE / example).read_text().replace("two_moons", "moons")
        assert (tmp_path / "moons" / place).read_text() == text
        assert "tests" not in text


def test_a_new_benchmark_without_code_has_two_files(tmp_path):
    assert typed("new", "benchmark", "moons", "--without-code", f"to={tmp_path}").returncode == 0
    files = {path.name for path in (tmp_path / "moons").rglob("*.*")}
    assert files == {"rules.yaml", "moons.yaml"}
    values = (tmp_path / "moons" / "conf" / "benchmark" / "moons.yaml").read_text()
    assert "defaults" not in values and "reference" not in values


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trainer", "moons"], "--plain, --lightning, --transformers"),
        (["benchmark", "moons", "--plain"], "train-bench new trainer moons --plain"),
        (["trainer", "moons", "--plain", "--without-code"], "leave --without-code out"),
        (["trainer", "Moons", "--plain"], "'Moons' is not a name for a benchmark"),
    ],
)
def test_words_that_contradict_each_other_are_refused(tmp_path, words, sentence):
    answer = typed("new", *words, f"to={tmp_path}")
    assert answer.returncode == 2 and sentence in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", ["tutorials/my-trainer.md", "a-benchmark-of-your-own.md"])
def test_the_documentation_shows_both_files_as_they_are(page):
    text = (ROOT / "docs" / page).read_text()
    for part in ("rules.yaml", "conf/benchmark/two_moons.yaml"):
        assert f"```yaml\n{(EXAMPLE / part).read_text().replace('two_moons', 'moons')}```" in text
    if "my-trainer" in page:
        assert f"```python\n{(EXAMPLE / 'plain_loop.py').read_text()}```" in text


def test_a_new_trainer_runs_at_once_and_is_judged_and_continued_by_the_folder_in_its_plan(ran, begun_here):
    judged = typed("judge", str(ran / "mine"), "--json")
    assert "Incomplete: 2 of 5 runs." in judged.stdout
    [entry] = json.loads(judged.stdout)["entries"]
    assert entry["benchmark"] == "moons"
    assert all(run["converged"] and run["compliant"] for run in entry["runs"])


def test_a_campaign_that_came_from_elsewhere_names_the_line_to_type(
    ran, found_nowhere, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for words in (["judge", str(ran / "mine")], ["run", f"resume={ran / 'mine'}"]):
        answer = typed(*words)
        assert answer.returncode != 0
        assert f"type export {plugins.VARIABLE}={ran / 'moons'}" in answer.stderr
    monkeypatch.setenv(plugins.VARIABLE, str(ran / "moons"))
    assert "INCOMPLETE" in typed("judge", str(ran / "mine")).stdout


def packaged(ran, to):
    """The logs of the campaign as `package` lays them out, without their plan."""
    results, source = to / "us/results/box/moons", to / "us/benchmarks/moons/implementations/box"
    results.mkdir(parents=True)
    for log in (ran / "mine").glob("result_*.txt"):
        shutil.copy(log, results)
    copy = source / "train_bench" / "references" / "moons"
    shutil.copytree(ran / "moons", copy)
    plan = json.loads((ran / "mine" / "plan.json").read_text())
    names = ("train_bench", "ruleset", "reference")
    (source / "configuration.json").write_text(json.dumps({name: plan[name] for name in names}))
    return copy


def test_logs_without_their_plan_are_judged_by_the_benchmark_they_were_begun_with(ran, begun_here, tmp_path):
    packaged(ran, tmp_path / "tree")
    answer = typed("judge", str(tmp_path / "tree"))
    assert answer.stderr == "" and "INCOMPLETE" in answer.stdout


def test_a_package_from_elsewhere_names_the_line_to_type(ran, found_nowhere, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    copy = packaged(ran, tmp_path / "tree")
    answer = typed("judge", str(tmp_path / "tree"))
    assert answer.returncode != 0
    assert f"to judge by them, type export {plugins.VARIABLE}={copy} and repeat" in answer.stderr
    monkeypatch.setenv(plugins.VARIABLE, str(copy))
    assert "INCOMPLETE" in typed("judge", str(tmp_path / "tree")).stdout


def test_trust_in_what_a_plan_does_is_no_trust_in_the_folder_of_its_benchmark(
    ran, found_nowhere, tmp_path, monkeypatch
):
    plan = json.loads((ran / "mine" / "plan.json").read_text())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    begun_plans.remember(begun_plans.TRUSTED, begun_plans.plan_digest(plan))
    assert "was not begun here" in typed("judge", str(ran / "mine")).stderr
    begun_plans.remember(begun_plans.BEGUN, begun_plans.plan_digest(plan))
    assert typed("judge", str(ran / "mine")).stderr == ""


def test_points_of_its_own_count_without_the_variable(ran, begun_here):
    point = ran / "moons" / "rcp" / "mini-1.0" / "moons.json"
    point.parent.mkdir(parents=True)
    point.write_text("{broken")
    answer = typed("judge", str(ran / "mine"))
    point.unlink()
    assert str(point) in answer.stderr, answer


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("./nowhere", "is not a benchmark folder (no conf/benchmark/NAME.yaml there)"),
        (str(ROOT), "has the benchmarks bert"),
    ],
)
def test_a_folder_that_is_no_benchmark_is_refused(value, sentence):
    answer = typed("plan", f"benchmark={value}")
    assert answer.returncode == 2 and sentence in answer.stderr


def test_a_folder_of_a_benchmark_with_code_is_found_by_its_path(tmp_path, found_nowhere):
    assert typed("new", "benchmark", "ripples", f"to={tmp_path}").returncode == 0
    answer = typed("plan", f"benchmark={tmp_path / 'ripples'}", "--json")
    assert json.loads(answer.stdout)["plans"][0]["benchmark"] == "ripples", answer.stderr
    assert "ripples" in discover.variants()


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("trainer", ["lightning", "transformers"])
def test_a_trainer_of_a_framework_trains_to_the_target_on_any_number_of_ranks(tmp_path, trainer, ranks):
    pytest.importorskip(trainer)
    assert typed("new", "trainer", "moons", f"--{trainer}", f"to={tmp_path}").returncode == 0
    measured = shlex.join([sys.executable, "moons/evaluation/evaluate.py", "{handed}"])
    started = [f"evaluator={measured}"]
    if ranks > 1:
        started = ["launcher=torchrun", f"launcher.nproc_per_node={ranks}"]
    answer = campaign(tmp_path, "moons", "runs=1", "seed=1", *started)
    assert ("the quality was measured by the evaluator" in answer.stdout) is (ranks == 1), answer
    assert re.search(r"success +\d.* 0\.9[5-9]", answer.stdout), answer
    assert f"{ranks} rank(s)" in answer.stdout
    assert "breaks" not in answer.stdout.lower()


def test_a_new_trainer_names_the_packages_that_are_missing(tmp_path, monkeypatch):
    sentence = "It needs packages that are not installed here: pip install lightning\n"
    find = importlib.util.find_spec
    for name, missing in (("there", False), ("missing", True)):
        monkeypatch.setattr(
            importlib.util,
            "find_spec",
            lambda wanted, missing=missing: (
                None
                if missing and wanted == "lightning"
                else wanted in ("torch", "lightning") or find(wanted)
            ),
        )
        answer = typed("new", "trainer", name, "--lightning", f"to={tmp_path}")
        assert (answer.returncode, sentence in answer.stdout) == (0, missing)


def test_a_trainer_in_numpy_has_some_thirty_lines():
    lines = [line for line in (EXAMPLE / "plain_loop.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 34


@pytest.mark.full
def test_a_trainer_in_numpy_says_on_two_ranks_what_it_lacks(tmp_path):
    assert typed("new", "trainer", "moons", "--plain", f"to={tmp_path}").returncode == 0
    started = ["launcher=torchrun", "launcher.nproc_per_node=2"]
    answer = campaign(tmp_path, "moons", "runs=1", "seed=1", *started)
    assert answer.returncode == 1
    assert "This program runs as 2 ranks" in answer.stderr
    assert "Begin torch.distributed before init_start()" in answer.stderr


@pytest.mark.full
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path):
    cells = json.loads((ROOT / "examples" / "notebook" / "is_it_slower.ipynb").read_text())["cells"]
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    (tmp_path / "two_moons").symlink_to(EXAMPLE)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "times as fast (95 % confidence interval" in ran.stdout
    assert "40 True" in ran.stdout or "40 False" in ran.stdout
    assert train_bench.__file__ not in ran.stderr
