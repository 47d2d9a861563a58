"""The training steps in READMEs of references, which are those of the code, abridged."""

import ast
import re
from pathlib import Path

import pytest

from train_bench.plan import discover

ROOT = Path(__file__).parents[2]
LONGEST = 10


def skeleton(name):
    """The step in the README of a reference."""
    text = (ROOT / "references" / name / "README.md").read_text()
    (code,) = re.findall(r"## A training step\n.*?```python\n(.*?)```", text, re.DOTALL)
    (step,) = ast.parse(code).body
    return step


def file_of(module):
    return (ROOT / module.removeprefix("train_bench.").replace(".", "/")).with_suffix(".py")


def train_step(path):
    """The step in a file, or in that of the class which the task there derives from."""
    tree = ast.parse(path.read_text())
    (task,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("Task"))
    for node in task.body:
        if isinstance(node, ast.FunctionDef) and node.name == "train_step":
            return node
    (base,) = (ast.unparse(one).split("[")[0] for one in task.bases)
    (module,) = (
        node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and base in {alias.name for alias in node.names}
    )
    return train_step(file_of(module))


def calls(step):
    """Functions that a step calls, as they are written there."""
    return {ast.unparse(node.func) for node in ast.walk(step) if isinstance(node, ast.Call)}


def own_names(step):
    """Names after `self.`."""
    return {
        node.attr
        for node in ast.walk(step)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }


@pytest.mark.parametrize("name", discover.references())
def test_the_step_in_a_readme_is_that_of_the_task(name):
    written, step = skeleton(name), train_step(ROOT / "references" / name / "task.py")
    assert written.name == step.name
    assert calls(written) <= calls(step)
    assert own_names(written) <= own_names(step)
    assert len(ast.unparse(written).splitlines()) <= LONGEST


@pytest.mark.parametrize("name", discover.references())
def test_the_step_in_a_readme_leaves_out_no_part_of_the_loop(name):
    written, step = skeleton(name), train_step(ROOT / "references" / name / "task.py")
    parts = {"micro_batches", "forward", "backward", "step", "optimizer_steps", "derived_seed", "rate"}
    assert own_names(written) & parts == own_names(step) & parts


def test_the_way_of_a_step_names_files_and_methods_that_exist():
    text = (ROOT / "references" / "README.md").read_text()
    for name in re.findall(r"`((?:train_bench|parts|tests)/[\w/]+\.py)`", text):
        assert (ROOT / "references" / name).is_file() or (ROOT / name).is_file(), name
    training = (ROOT / "references" / "parts" / "training.py").read_text()
    for name in re.findall(r"`self\.(\w+)", text):
        assert re.search(rf"def {name}\b|self\.{name}\b", training), name
    for path in (ROOT / "references" / "parts").rglob("*.py"):
        if path.stem != "__init__":
            assert path.name in text, path
