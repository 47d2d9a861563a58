"""The picture in docs/architecture.md: packages of train_bench and their imports, transitively reduced.

python tools/architecture_picture.py           # write it
python tools/architecture_picture.py --check   # exit code 1 if the page has another one
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import networkx

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "```mermaid\n", "```\n"
LEFT_OUT = {"template", "references", "launchers", "__main__", "__init__"}
BASE = {"core", "errors", "progress", "quality", "seeds", "warm_up"}
"""Modules that nearly every package imports: one box without arrows."""

CONTRACTS = {"task", "launcher", "parallel"}


def package_of(path: Path) -> str:
    """The package of a file, or the module at the top; contracts are one box."""
    parts = path.relative_to(ROOT / "train_bench").parts
    name = parts[0] if len(parts) > 1 else path.stem
    return "contracts" if name in CONTRACTS else name


def graph() -> networkx.DiGraph:
    """An edge from each package to each that it imports."""
    found = networkx.DiGraph()
    for path in (ROOT / "train_bench").rglob("*.py"):
        package = package_of(path)
        if package in LEFT_OUT | BASE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("train_bench"):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                for other in {name.split(".")[1] for name in whole}:
                    other = "contracts" if other in CONTRACTS else other
                    if other not in {package, *LEFT_OUT, *BASE, "__version__", "Benchmark"}:
                        found.add_edge(package, other)
    return found


def picture() -> str:
    """The graph in Mermaid's language."""
    reduced = networkx.transitive_reduction(graph())
    edges = sorted(f"    {one} --> {other}\n" for one, other in reduced.edges)
    return f"{BEGIN}graph TD\n{''.join(edges)}{END}"


def main() -> None:
    """Write the picture, or check it."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    made = before + picture() + after
    if "--check" in sys.argv:
        if made != text:
            sys.exit(
                "The picture in docs/architecture.md is out of date; run python tools/architecture_picture.py."
            )
        return
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
