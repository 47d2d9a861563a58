"""Whether every function of a revision is still there with the same syntax tree, names of imports resolved:
python tools/house_ast.py REVISION. The moves are read from the codemod in the history (MOVES)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASE = ("train_bench", "launchers", "references")


def moves() -> dict[str, str]:
    text = subprocess.run(
        ["git", "show", "HEAD:tools/house_move.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    namespace: dict[str, object] = {"__file__": __file__}
    source = text[text.index("VERBS = (") : text.index("OTHER_FILES")]
    exec(source, namespace)
    found: dict[str, str] = namespace["MOVES"]  # type: ignore[assignment]
    return found


def trees(text_of: dict[str, str], moved: dict[str, str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in text_of.values():
        tree = ast.parse(text)
        bound: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("train_bench"):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}".removeprefix("train_bench.")
                    for old in sorted(moved, key=len, reverse=True):
                        if whole == old or whole.startswith(f"{old}."):
                            whole = moved[old] + whole[len(old) :]
                            break
                    bound[alias.asname or alias.name] = whole
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[shape(node, bound)] += 1
    return found


def shape(function: ast.AST, bound: dict[str, str]) -> str:
    class Resolve(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Name(id=bound.get(node.id, node.id), ctx=node.ctx)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
            return ast.Pass()

    return ast.dump(Resolve().visit(ast.parse(ast.unparse(function))))


def main() -> None:
    moved = moves()
    revision = sys.argv[1]
    names = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", revision, "--", *BASE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    before = {
        name: subprocess.run(
            ["git", "show", f"{revision}:{name}"], cwd=ROOT, capture_output=True, text=True
        ).stdout
        for name in names
        if name.endswith(".py")
    }
    after = {
        str(path): path.read_text()
        for base in BASE
        for path in (ROOT / base).rglob("*.py")
        if not path.parent.is_symlink()
    }
    after = {
        name: text
        for name, text in after.items()
        if "train_bench/references" not in name and "train_bench/launchers" not in name
    }
    old, new = trees(before, moved), trees(after, {})
    print(f"functions before {sum(old.values())}, after {sum(new.values())}")
    for tree in old - new:
        print("only before:", tree)
    for tree in new - old:
        print("only after: ", tree)


main()
