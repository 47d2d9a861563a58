"""Renames public symbols: a module and its names, in the file and wherever they are imported; attributes everywhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def table(path: Path) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    symbols, attributes = {}, {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) != 3 or line.startswith("#"):
            continue
        where, old, new = words
        if where == ".":
            attributes[old] = new
        else:
            symbols[where, old] = new
    return symbols, attributes


def rewrite(path: Path, symbols: dict[tuple[str, str], str], attributes: dict[str, str]) -> list[str]:
    text = path.read_text()
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()
    relative = path.relative_to(ROOT)
    me = ".".join(relative.with_suffix("").parts)
    if me.startswith(("references.", "launchers.")):
        me = f"train_bench.{me}"
    me = me.removeprefix("train_bench.")
    names = {old: new for (module, old), new in symbols.items() if module == me}
    modules: dict[str, str] = {}
    edits: dict[int, tuple[int, str]] = {}

    def edit(line: int, column: int, old: str, new: str) -> None:
        begin = starts[line - 1] + column
        assert raw[begin : begin + len(old)] == old.encode(), (path, line, old, raw[begin : begin + 30])
        edits[begin] = (begin + len(old), new)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("train_bench"):
            package = node.module.removeprefix("train_bench").removeprefix(".")
            for alias in node.names:
                if (package, alias.name) in symbols:
                    new = symbols[package, alias.name]
                    edit(alias.lineno, alias.col_offset, alias.name, new)
                    if alias.asname is None:
                        names[alias.name] = new
                else:
                    modules[alias.asname or alias.name] = f"{package}.{alias.name}".lstrip(".")
    notes = []
    stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | {
        n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)
    }
    for old, new in names.items():
        if old in stored or new in stored:
            notes.append(f"{relative}: {old} -> {new}: local name in the way")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            edit(node.lineno, node.col_offset, node.id, names[node.id])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            new = names.get(node.name) if node in tree.body else attributes.get(node.name)
            if new:
                word = "class " if isinstance(node, ast.ClassDef) else "def "
                edit(node.lineno, node.col_offset + len(word), node.name, new)
        elif isinstance(node, ast.Attribute):
            new = None
            if isinstance(node.value, ast.Name) and node.value.id in modules:
                new = symbols.get((modules[node.value.id], node.attr))
            new = new or attributes.get(node.attr)
            if new:
                end = starts[node.end_lineno - 1] + node.end_col_offset
                begin = end - len(node.attr.encode())
                assert raw[begin:end] == node.attr.encode()
                edits[begin] = (end, new)
        elif (
            isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr" and len(node.args) > 1
        ):
            target, name = node.args[0], node.args[1]
            if isinstance(target, ast.Name) and isinstance(name, ast.Constant):
                new = symbols.get((modules.get(target.id, ""), name.value)) or attributes.get(name.value)
                if new:
                    edit(name.lineno, name.col_offset + 1, name.value, new)
        elif isinstance(node, ast.keyword) and node.arg in attributes and attributes[node.arg]:
            notes.append(f"{relative}:{node.lineno}: keyword {node.arg}")
    for begin in sorted(edits, reverse=True):
        end, new = edits[begin]
        raw = raw[:begin] + new.encode() + raw[end:]
    text = raw.decode()
    for (module, old), new in symbols.items():  # strings that name them whole, and docstrings in backticks
        text = text.replace(f"train_bench.{module}.{old}", f"train_bench.{module}.{new}")
        if module == me or any(found == module for found in modules.values()) or (old in names):
            text = re.sub(rf"`{re.escape(old)}`", f"`{new}`", text)
    if text != path.read_text():
        path.write_text(text)
    return notes


def main() -> None:
    symbols, attributes = table(Path(sys.argv[1]))
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    seen = set()
    for name in listed:
        path = ROOT / name
        if name.startswith("tools/") or path.resolve() in seen or not path.is_file():
            continue
        seen.add(path.resolve())
        for note in rewrite(path, symbols, attributes):
            print(note)
    print("done", len(symbols), len(attributes))


main()
