"""The architecture as tests: who may import whom, and what siblings share."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests import cases
from train_bench.plan import discover
from train_bench.rules import ruleset

ROOT = Path(__file__).parents[2]
CONTRACTS = {"task", "launcher", "parallel", "progress", "quality", "errors", "seeds", "warm_up"}
"""The modules at the top: what benchmarks, launchers and trainers of others build on."""

DOOR = {"__main__", "api", "cli"}

BASE = {"core", "errors", "progress", "quality", "seeds"}
TASKS = {"task", "launcher", "parallel"}

MAY_SEE = {
    "core": {"errors", "progress", "quality"},
    "rules": BASE,
    "energy": BASE,
    "plan": BASE | TASKS | {"energy", "rules"},
    "run": BASE | TASKS,
    "own_trainer": BASE | {"run", "rules", "Benchmark"},
    "check": BASE | TASKS | {"run"},
    "dry_run": BASE | TASKS | {"check"},
    "logs": BASE | {"rules"},
    "judge": BASE | {"logs", "rules"},
    "compare": BASE | {"judge", "logs", "rules"},
    "serving": BASE | TASKS | {"campaign", "energy", "judge", "logs", "plan", "rules", "run", "startup"},
    "startup": BASE | TASKS | {"campaign", "check", "judge", "plan", "run"},
    "profile": BASE | TASKS | {"run", "dry_run", "judge", "logs", "rules"},
    "gpu_check": BASE | TASKS | {"judge", "plan", "run"},
    "equivalence": BASE | TASKS | {"campaign", "check", "compare", "judge", "plan", "run"},
    "forecast": BASE | {"judge", "logs", "rules"},
    "referee": BASE | {"compare", "judge", "logs"},
    "store": BASE | {"compare", "judge", "logs", "rules"},
    "report": BASE | {"compare", "forecast", "judge", "logs", "rules"},
    "fleet": BASE
    | TASKS
    | {"campaign", "forecast", "gpu_check", "judge", "logs", "plan", "report", "rules", "run"},
    "observers": BASE | {"launcher", "forecast", "judge", "logs", "plan", "report", "rules"},
    "campaign": BASE
    | {
        "compare",
        "dry_run",
        "energy",
        "forecast",
        "judge",
        "launcher",
        "task",
        "logs",
        "observers",
        "own_trainer",
        "plan",
        "report",
        "rules",
    }
    | {"store"},
    "web": BASE | {"campaign", "judge", "logs", "plan", "report", "rules", "store"},
    "submission": BASE | {"judge", "plan", "rules"},
    "exchange": BASE | TASKS | {"campaign", "compare", "judge", "logs", "plan", "rules", "run", "submission"},
}

ONLY_IN = {
    "hydra": {
        "train_bench/cli/hydra_app.py",
        "train_bench/cli/override_errors.py",
        "train_bench/plan/run_config.py",
    },
    "omegaconf": {"train_bench/cli/hydra_app.py", "train_bench/plan/run_config.py"},
    "mlperf_logging": {"train_bench/run/events.py", "train_bench/judge/official/installed_checkers.py"},
    "mlperf_loadgen": {"train_bench/serving/loadgen.py"},
    "sqlite3": {f"train_bench/store/{name}.py" for name in ("schema", "feed", "history")},
    "jinja2": {"train_bench/report/page/write.py"},
    "subprocess": {
        "train_bench/core/git.py",
        "train_bench/plan/process.py",
        "train_bench/energy/counters.py",
        "train_bench/energy/meter.py",
        "train_bench/fleet/link.py",
        "train_bench/gpu_check/probe.py",
        "train_bench/gpu_check/probes.py",
        "train_bench/own_trainer/command.py",
        "train_bench/own_trainer/evaluator.py",
        "train_bench/startup/started.py",
        "launchers/horovod/build.py",
        "launchers/slurm/hostlist.py",
    },
}

PROGRAMS = {"launchers/horovod/build.py"}
"""Siblings' files that are started by hand and imported by nobody: they may see the packages, and torch."""

MAY_IMPORT_TORCH = (
    "references/",
    "train_bench/run/",
    "train_bench/check/",
    "train_bench/dry_run/",
    "train_bench/profile/",
    "train_bench/gpu_check/load.py",
    "train_bench/gpu_check/probe.py",
    "train_bench/gpu_check/probes.py",
    "train_bench/serving/quantisation.py",
    "train_bench/equivalence/foreign.py",
    "train_bench/equivalence/initial.py",
    "train_bench/equivalence/observe.py",
    "train_bench/equivalence/record.py",
    "train_bench/startup/mapping.py",
    "train_bench/startup/models.py",
    "train_bench/template/",
    "train_bench/core/sharded_tensors.py",
    "train_bench/warm_up.py",
    "launchers/parts/ddp.py",
    "launchers/parts/meeting.py",
    "launchers/parts/dividing.py",
    "launchers/parts/filling.py",
    "launchers/parts/fsdp.py",
    "launchers/parts/fsdp_tensor_parallel.py",
    "launchers/parts/light_ddp.py",
    "launchers/parts/tensor_parallel.py",
)


IN_A_TYPE_CHECK = "if TYPE_CHECKING:\n    from a.b import One"

IMPORTED_AS = {"google-crc32c": "google_crc32c", "pillow": "PIL", "scikit-learn": "sklearn"}


def not_in_the_light_install():
    """What the packages of `train-bench[references]` are imported as."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in extras["references"]}
    return {IMPORTED_AS.get(name, name) for name in names}


HEAVY = not_in_the_light_install()


def python_files():
    for folder in ("train_bench", "references", "launchers"):
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def imports(path, *, with_type_checking=True):
    """Modules that a file imports, functions included. Many tests ask of every file."""
    return tuple(imported(path, with_type_checking))


def imported(path, with_type_checking):
    tree = ast.parse(path.read_text())
    if not with_type_checking:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = [ast.Pass()]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path):
    """Packages, shared modules and contracts of train_bench that a file imports."""
    names = {name.split(".")[1] for name in imports(path) if name.startswith("train_bench.")}
    return names - {"__version__", "references", "launchers"}


def rooms():
    """Folders of train_bench, the siblings and the templates left out, and the modules at its top."""
    folders = {path.name for path in (ROOT / "train_bench").iterdir() if list(path.glob("*.py"))}
    modules = {path.stem for path in (ROOT / "train_bench").glob("*.py")} - {"__init__"}
    return folders - {"references", "launchers", "template", "trainer_template"}, modules


RESOLVING = re.compile(
    r"\bruleset\.load\(|\bdiscover\.(batch|launcher|launcher_config|reference_config|prepare|folder_of|source_of|has_queue)\("
)


def test_names_of_a_plan_are_resolved_in_one_place_of_a_campaign():
    resolving = {
        path.name
        for path in (ROOT / "train_bench" / "campaign").glob("*.py")
        if RESOLVING.search(path.read_text())
    }
    assert resolving == {"opened.py"}


@pytest.mark.parametrize("package", MAY_SEE)
def test_a_package_sees_only_the_packages_it_may(package):
    for path in (ROOT / "train_bench" / package).rglob("*.py"):
        assert ours(path) <= MAY_SEE[package] | {package}, path


def test_contracts_see_only_contracts_and_core():
    for name in CONTRACTS:
        assert ours(ROOT / "train_bench" / f"{name}.py") <= CONTRACTS | {"core"}, name


def test_every_room_has_its_rule():
    folders, modules = rooms()
    assert folders == {*MAY_SEE, "cli"}
    assert modules == CONTRACTS | {"__main__", "api"}


def test_nobody_imports_the_program():
    for path in python_files():
        if not path.is_relative_to(ROOT / "train_bench" / "cli") and path.stem not in DOOR:
            assert not {"api", "cli"} & ours(path) or path == ROOT / "train_bench" / "__init__.py", path


def test_no_package_sees_one_that_sees_it():
    """Not even by way of others."""
    seen = {room: may & {*MAY_SEE} for room, may in MAY_SEE.items()}
    order = []
    while seen:
        free = sorted(room for room, others in seen.items() if not others - {*order})
        assert free, f"these import each other: {sorted(seen)}"
        order += free
        seen = {room: others for room, others in seen.items() if room not in order}


def test_any_module_can_be_the_first_that_is_imported():
    """No circle of files, in which one would be imported when it is half there."""
    paths = {
        module_of(path): path for path in (ROOT / "train_bench").rglob("*.py") if "template" not in path.parts
    }
    ran = {name: run_by_import(name, path, paths.keys()) for name, path in paths.items()}
    tuple(graphlib.TopologicalSorter(ran).static_order())


def circles(paths):
    """Pairs of files that name each other in imports, those of functions and of type checks included. A package above
    a file is there before it, and is no circle with it."""
    named = {name: {_as_file(one, paths) for one in _all_named(path)} for name, path in paths.items()}
    return {
        (one, other)
        for one, others in named.items()
        for other in others
        if one < other and one in named.get(other, ()) and not other.startswith(f"{one}.")
    }


def _all_named(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _as_file(name, paths):
    """File of ours that a name of an import is, or is in; siblings are imported as parts of train_bench."""
    name = re.sub(r"^train_bench\.(references|launchers)\b", r"\1", name)
    return name if name in paths else name.rpartition(".")[0]


def test_no_two_files_import_each_other():
    assert circles({module_of(path): path for path in python_files()}) == set()


@pytest.mark.parametrize(
    "text", ["from a.b import One", "import a.b", "def act():\n    from a import b", IN_A_TYPE_CHECK]
)
def test_two_files_that_import_each_other_are_found(text, tmp_path):
    texts = {"a": "from a.c import main", "a.b": "from a import c", "a.c": text}
    for name, content in texts.items():
        (tmp_path / name).write_text(content)
    assert circles({name: tmp_path / name for name in texts}) == {("a.b", "a.c")}


def test_a_circle_by_way_of_a_package_is_found():
    modules = {"a", "a.b", "a.c", "d"}
    tree = ast.parse("import os\nfrom a.b import one\nfrom d import two\nif TYPE_CHECKING:\n    import a.c")
    assert set(run_by("d", tree, modules)) == {"a", "a.b"}
    assert set(run_by("a.c", tree, modules)) == {"a.b", "d"}, "a is there already"


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def run_by_import(name, path, modules):
    return run_by(name, ast.parse(path.read_text()), modules)


def run_by(name, tree, modules):
    """Modules that run when this one is imported, with the packages above them, but for those above itself."""
    above = {name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)}
    wanted = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    named = {one for node in wanted for one in _named(node)}
    found = {".".join(one.split(".")[:depth]) for one in named for depth in range(1, one.count(".") + 2)}
    return (found & set(modules)) - above - {name}


def _named(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]


def test_siblings_see_contracts_and_core_and_nothing_else_of_train_bench():
    for path in python_files():
        if not path.is_relative_to(ROOT / "train_bench") and str(path.relative_to(ROOT)) not in PROGRAMS:
            assert ours(path) <= CONTRACTS | {"core"}, path


def files_of_a_scored_run():
    scored = ("run", "own_trainer", "energy", "check", "dry_run")
    folders = [*(ROOT / "train_bench" / name for name in scored), ROOT / "references", ROOT / "launchers"]
    yield from (path for folder in folders for path in folder.rglob("*.py"))
    yield from (ROOT / "train_bench").glob("*.py")


def test_nothing_that_a_scored_run_loads_imports_the_profiler():
    for path in files_of_a_scored_run():
        assert "profile" not in ours(path), path
        assert not {name for name in imports(path) if name.startswith("torch.profiler")}, path


def test_nothing_that_a_campaign_or_a_scored_run_loads_imports_the_store_of_weights():
    """Weights that are there before the clock starts would be work outside of it."""
    folders = [ROOT / "train_bench" / name for name in ("core", "plan", "campaign", "observers")]
    campaign = [path for folder in folders for path in folder.rglob("*.py")]
    for path in (*files_of_a_scored_run(), *campaign):
        assert "startup" not in ours(path), path


def test_train_bench_imports_no_sibling_by_name():
    for path in (ROOT / "train_bench").rglob("*.py"):
        if path.is_relative_to(ROOT / "train_bench" / "template"):
            continue  # that is a sibling, to be copied
        siblings = ("train_bench.references", "train_bench.launchers")
        assert not [name for name in imports(path) if name.startswith(siblings)], path


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_heavy_or_delicate_package_is_imported_in_its_place_alone(package):
    users = {
        str(path.relative_to(ROOT))
        for path in python_files()
        if any(name.split(".")[0] == package for name in imports(path))
    }
    assert users <= ONLY_IN[package]


def test_what_the_light_install_lacks_is_imported_by_references_alone_and_torch_also_by_ranks():
    for path in python_files():
        relative = str(path.relative_to(ROOT))
        may = set(HEAVY) if relative.startswith("references/") else set()
        if (
            relative.startswith(MAY_IMPORT_TORCH)
            or relative in PROGRAMS
            or re.fullmatch(r"launchers/\w+/(engine|parallel|zero3)\.py", relative)
        ):
            may.add("torch")
        names = {name.split(".")[0] for name in imports(path, with_type_checking=False)}
        assert names & HEAVY <= may, path


@pytest.mark.parametrize("name", discover.references())
def test_a_reference_says_what_it_imports_that_the_light_install_lacks(name):
    seen, todo, needed = set(), [*(ROOT / "references" / name).rglob("*.py")], set()
    while todo:
        path = todo.pop()
        seen.add(path)
        for module in imports(path, with_type_checking=False):
            needed |= {module.split(".")[0]} & HEAVY
            part = (ROOT / module.replace(".", "/").removeprefix("train_bench/")).with_suffix(".py")
            if module.startswith("train_bench.references.") and part.is_file() and part not in seen:
                todo.append(part)
    assert set(discover.reference_config(name).REQUIRES) == needed - {"triton"}, (
        "torch brings it where GPUs are"
    )


def test_configurations_import_neither_hydra_nor_what_the_light_install_lacks():
    for path in (*ROOT.glob("references/*/config.py"), *ROOT.glob("launchers/*/config.py")):
        assert not {name.split(".")[0] for name in imports(path)} & {*HEAVY, "hydra", "omegaconf"}, path


def test_the_picture_of_the_architecture_is_that_of_the_imports():
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "architecture_picture.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stderr


TESTS_OF_NO_PACKAGE = {
    "architecture": "the code as a whole, and the session of tests itself",
    "hosts": "campaigns over several hosts, which are network namespaces and take root",
    "slurm": "campaigns on a real Slurm, started by make slurm-local",
}
"""Folders of tests/ that mirror no folder of train_bench, and what they test."""


def folders_of(tests):
    """Folders of tests/, as paths in it: those at its top, and those below them that have tests."""
    top = {path for path in tests.iterdir() if path.is_dir() and path.name != "__pycache__"}
    below = {path.parent for path in tests.rglob("test_*.py")} - {tests}
    return {str(path.relative_to(tests)) for path in top | below}


def strays(tests):
    """Folders of tests/ that mirror none of train_bench and have no reason of their own."""
    mirrored = {name for name in folders_of(tests) if (ROOT / "train_bench" / name).is_dir()}
    return folders_of(tests) - mirrored - {*TESTS_OF_NO_PACKAGE}


def test_every_folder_of_tests_mirrors_one_of_train_bench_or_says_why_not():
    assert strays(ROOT / "tests") == set()
    assert {*TESTS_OF_NO_PACKAGE, *cases.LONGEST_FIRST} <= folders_of(ROOT / "tests")


@pytest.mark.parametrize("name", ["drawer", "judge/drawer"])
def test_a_folder_of_tests_that_mirrors_nothing_is_a_stray(name, tmp_path):
    for folder in ("judge", "slurm", name):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "test_one.py").touch()
    assert strays(tmp_path) == {name}


def test_hooks_before_a_commit_have_the_versions_that_ci_installs():
    pinned = set((ROOT / "constraints.txt").read_text().split())
    hooks = [
        hook
        for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
        for hook in repository["hooks"]
    ]
    installed = [hook for hook in hooks if hook["language"] == "python"]
    assert {hook["entry"].split()[0] for hook in installed} == {"ruff"}
    for hook in installed:
        assert hook["additional_dependencies"] and {*hook["additional_dependencies"]} <= pinned, hook["id"]


def test_a_program_of_bench_or_tools_says_its_command_line_and_those_of_bench_are_in_a_table():
    table = (ROOT / "bench" / "README.md").read_text()
    for path in [*(ROOT / "bench").rglob("*.py"), *(ROOT / "tools").glob("*.py")]:
        text, name = path.read_text(), str(path.relative_to(ROOT))
        if "__main__" not in text:
            continue
        about = ast.get_docstring(ast.parse(text)) or ""
        assert f"python {name}" in about or f"python -m {name[:-3].replace('/', '.')}" in about, name
        assert name.startswith("tools/") or f"`{name.removeprefix('bench/')}`" in table, name


NO_NAMES = {"told", "asked", "seen", "beside", "rest", "unknown", "look", "wish", "enough"}
NO_OPENING = re.compile(r"(What|How|Whether|Of|Where|Who|Those) ")


def public_names(tree):
    """Functions and classes of a module, and methods of its classes."""
    for node in tree.body:
        inner = node.body if isinstance(node, ast.ClassDef) else []
        for one in (node, *inner):
            if isinstance(one, ast.FunctionDef | ast.ClassDef) and not one.name.startswith("_"):
                yield one.name


def test_public_names_are_nouns_and_verbs_that_need_no_call_site():
    for path in python_files():
        for name in public_names(ast.parse(path.read_text())):
            assert name not in NO_NAMES and not name.startswith(("of_", "beside_")), (path, name)


def test_a_module_says_what_it_is_in_a_noun_phrase_or_an_imperative():
    for path in python_files():
        about = ast.get_docstring(ast.parse(path.read_text())) or ""
        assert not NO_OPENING.match(about), (path, about.splitlines()[0])


def test_only_the_clock_logs_when_a_run_starts_and_stops():
    calls = re.compile(r"log\.(init_start|init_stop|run_start|run_stop)\(")
    speakers = {str(path.relative_to(ROOT)) for path in python_files() if calls.search(path.read_text())}
    assert speakers == {"train_bench/run/clock.py"}


def test_no_file_is_named_for_whatever_one_puts_there():
    for path in python_files():
        assert path.stem not in ("utils", "common", "helpers", "misc", "base", "manager"), path


@pytest.mark.parametrize("name", discover.references())
def test_a_reference_has_the_agreed_files(name):
    folder = ROOT / "references" / name
    for file in ("README.md", "config.py", "model.py", "data.py", "task.py"):
        assert (folder / file).is_file(), file
    assert {name, f"{name}_mini"} <= set(discover.variants())


@pytest.mark.parametrize("name", discover.launchers())
def test_a_launcher_has_the_agreed_files(name):
    for file in ("config.py", "start.py", "parallel.py"):
        assert (ROOT / "launchers" / name / file).is_file(), file
    assert (ROOT / "conf" / "launcher" / f"{name}.yaml").is_file()


def test_all_readmes_of_references_have_the_same_headings():
    headings = {
        tuple(re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE))
        for path in ROOT.glob("references/*/README.md")
    }
    assert len(headings) == 1
    assert len(next(iter(headings))) == 8


def test_no_benchmark_is_named_in_the_code_of_train_bench():
    names = {*discover.references(), *discover.variants()}
    for path in (ROOT / "train_bench").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
        assert not names & texts, path


@pytest.mark.parametrize("variant", discover.variants())
def test_a_benchmark_has_rules_and_its_reference_exists(variant):
    described = discover.describe_variant(variant)
    rules = ruleset.load(described["ruleset"]).benchmark(described["benchmark"])
    assert rules.reference in (
        described["reference"],
        described["benchmark"],
    )  # official points have the latter
    assert described["reference"] in discover.references()
    assert described["about"], "the first line of the yaml says what it is"


def test_reference_convergence_points_belong_to_references():
    for path in (discover.PACKAGE / "rcp").glob("*/*.json"):
        assert path.stem in discover.references()


def test_yaml_holds_values_and_no_arithmetic():
    for path in (ROOT / "conf").rglob("*.yaml"):
        assert "${" not in path.read_text(), path
        yaml.safe_load(path.read_text())


@pytest.mark.parametrize("name", ["macros.html", "page.html"])
def test_a_line_with_logic_of_the_result_page_fits_a_screen(name):
    lines = (ROOT / "train_bench" / "report" / "page" / name).read_text(encoding="utf-8").splitlines()
    long = [f"{number}: {line}" for number, line in enumerate(lines, 1) if len(line) > 120]
    assert not [line for line in long if re.search(r"\{[{%#]", line)]


def test_every_verb_is_a_file_of_its_name():
    from train_bench.cli.verbs import VERBS

    files = {path.stem for path in (ROOT / "train_bench" / "cli" / "commands").glob("*.py")}
    assert files - {"__init__"} == {verb.replace("-", "_") for verb in VERBS}


BENCHMARKS = [name for name in discover.variants() if discover.describe_variant(name)["benchmark"] == name]


@pytest.mark.parametrize("tool", ["benchmarks_table", "options_table"])
def test_a_table_is_what_the_definitions_say(tool):
    checked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / f"{tool}.py"), "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("benchmark", [name for name in BENCHMARKS if name not in discover.references()])
def test_the_readme_of_a_reference_states_the_targets_of_the_rules(benchmark):
    rules = ruleset.load(discover.describe_variant(benchmark)["ruleset"]).benchmark(benchmark)
    reference = discover.describe_variant(benchmark)["reference"]
    text = (ROOT / "references" / reference / "README.md").read_text()
    values = " and ".join(f"{threshold.value:g}" for threshold in rules.target.thresholds)
    assert re.search(rf"^`{benchmark}`: {re.escape(values)}(?!\.?\d)", text, re.MULTILINE)
