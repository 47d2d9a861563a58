"""The codemod of the new structure: moves files and rewrites imports, names of modules and paths in texts."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERBS = (
    "check accept replay report verify history compare review rcp settle score web package export rules plan run judge "
    "index new prepare join profile list forecast equivalent"
).split()
MOVES = {
    "commands.conclusion": "campaign.finish",
    "commands.rest": "campaign.status",
    "campaign": "campaign.runner",
    "attempts": "campaign.attempts",
    "failures": "campaign.failures",
    "restarts": "campaign.restarts",
    "hosts": "campaign.hosts",
    "join": "campaign.join",
    "submit": "campaign.batch_queue",
    "trust": "campaign.command_trust",
    "lock": "campaign.lock",
    "ab_campaign": "campaign.ab",
    "machine": "campaign.preflight",
    "unscored": "campaign.rank_job",
    "reference_point": "campaign.reference_point",
    "cli": "cli.program",
    "compose": "cli.hydra_app",
    "sweep": "cli.sweep",
    "exit_codes": "cli.exit_codes",
    "shell_completion": "cli.completion",
    "serve": "cli.serve",
    "commands.campaigns": "cli.campaign_request",
    "commands.reading": "cli.judge_options",
    "commands.naming": "cli.benchmark_options",
    "commands.dry": "cli.plan_dry",
    **{f"commands.{verb}": f"cli.commands.{verb}" for verb in VERBS},
    "judge.comparison": "compare.comparison",
    "judge.gate": "compare.gate",
    "judge.equal_convergence": "compare.equal_convergence",
    "judge.spending": "compare.alpha_spending",
    "job": "core.job",
    "event": "core.event",
    "files": "core.files",
    "plain_text": "core.escape",
    "progress_bar": "core.progress_bar",
    "software": "core.software",
    "search_path": "core.plugins",
    "sharded_tensors": "core.sharded_tensors",
    "crate": "exchange.crate",
    "export": "exchange.export",
    "replay": "exchange.replay",
    "package": "exchange.package",
    "description": "exchange.description",
    "judge.review": "judge.checks.review",
    "judge.ranks": "judge.checks.ranks",
    "judge.rates": "judge.checks.rates",
    "judge.samples": "judge.checks.samples",
    "judge.unknown": "judge.checks.unverifiable",
    "judge.against_plan": "judge.checks.against_plan",
    "judge.campaign_checks": "judge.checks.campaign_checks",
    "judge.convergence": "judge.checks.convergence",
    "judge.submission": "judge.checks.submission",
    "judge.verified": "judge.checks.verified",
    "judge.installed_checkers": "judge.official.installed_checkers",
    "judge.cross_check": "judge.official.cross_check",
    "judge.official_verdict": "judge.official.official_verdict",
    "judge.published": "judge.published.published_entries",
    "judge.derive": "judge.published.derive",
    "judge.peers": "judge.published.peers",
    "judge.round_review": "judge.published.round_review",
    "judge.log": "logs.log",
    "judge.record": "logs.record",
    "judge.timeline": "logs.timeline",
    "judge.restarts": "logs.restarts",
    "plan.launch": "plan.process",
    "fleet.seen": "fleet.observations",
}
OTHER_FILES = {
    "judge/published_entries.csv": "judge/published/published_entries.csv",
    "judge/published_entries.md": "judge/published/published_entries.md",
    "judge/samples_per_unit.yaml": "judge/published/samples_per_unit.yaml",
}
GIT = {"SOURCE", "revision", "revision_of_folder", "differing", "_git"}
PACKAGES = ("campaign", "cli", "cli/commands", "compare", "core", "exchange", "judge/checks", "judge/official",
            "judge/published", "logs")
KEYS = sorted(MOVES, key=len, reverse=True)
DOTTED = re.compile(r"train_bench\.(" + "|".join(map(re.escape, KEYS)) + r")(?![\w])")
SLASHED = re.compile(
    r"train_bench/(" + "|".join(re.escape(key.replace(".", "/")) for key in KEYS) + r")\.py(?!\w)"
)
DATA = re.compile(r"train_bench/(" + "|".join(map(re.escape, OTHER_FILES)) + r")")


def new_text(text: str) -> str:
    text = DOTTED.sub(lambda m: f"train_bench.{MOVES[m[1]]}", text)
    text = SLASHED.sub(lambda m: f"train_bench/{MOVES[m[1].replace('/', '.')].replace('.', '/')}.py", text)
    return DATA.sub(lambda m: f"train_bench/{OTHER_FILES[m[1]]}", text)


def rewrite(path: Path) -> list[str]:
    """Rewrite one Python file; returns what a person has to look at."""
    before = path.read_text()
    notes = [f"{path}: string {m[0]}" for m in DOTTED.finditer(before) if "import" not in line_of(before, m.start())]
    text = before
    tree = ast.parse(text)
    renames: dict[str, str] = {}
    edits: list[tuple[int, int, str]] = []
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    raw = text.encode()
    at = lambda line, column: starts[line - 1] + column  # noqa: E731
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "train_bench":
            package = node.module.removeprefix("train_bench").removeprefix(".")
            grouped: dict[str, list[str]] = {}
            changed = False
            for alias in node.names:
                old = f"{package}.{alias.name}".lstrip(".")
                module, name = node.module, alias.name
                if old in MOVES:
                    parent, _, name = MOVES[old].rpartition(".")
                    module = f"train_bench.{parent}"
                    changed = True
                    if name != alias.name and alias.asname is None:
                        renames[alias.name] = name
                elif old.startswith("plan.launch.") and alias.name in GIT:
                    module, changed = "train_bench.core.git", True
                elif package in MOVES:
                    module, changed = f"train_bench.{MOVES[package]}", True
                grouped.setdefault(module, []).append(name + (f" as {alias.asname}" if alias.asname else ""))
            if changed:
                indent = " " * node.col_offset
                lines = [f"from {module} import {', '.join(names)}" for module, names in grouped.items()]
                edits.append((at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset), f"\n{indent}".join(lines)))
        elif isinstance(node, ast.Import) and any(alias.name.removeprefix("train_bench.") in MOVES for alias in node.names):
            notes.append(f"{path}:{node.lineno} import {[a.name for a in node.names]}")
    git_used = False
    imported_launch = any(
        isinstance(node, ast.ImportFrom) and node.module == "train_bench.plan" and any(a.name == "launch" for a in node.names)
        for node in ast.walk(tree)
    )
    taken = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} | {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for old, new in renames.items():
        if old in taken | defined:
            notes.append(f"{path}: {old} is also a local name")
        if new in taken | defined:
            notes.append(f"{path}: {new} (was module {old}) is taken")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if imported_launch and node.value.id == "launch" and node.attr in GIT:
                begin = at(node.value.lineno, node.value.col_offset)
                edits.append((begin, begin + len("launch"), "git"))
                git_used = True
                continue
        if isinstance(node, ast.Name) and node.id in renames:
            begin = at(node.lineno, node.col_offset)
            edits.append((begin, begin + len(node.id), renames[node.id]))
    done = set()
    # a Name inside a git edit was added twice: the first edit at a place counts
    for begin, end, new in sorted(edits, key=lambda e: (-e[0], e[2] != "git")):
        if begin in done:
            continue
        done.add(begin)
        raw = raw[:begin] + new.encode() + raw[end:]
    text = raw.decode()
    if git_used:
        text = text.replace("from train_bench.plan import", "from train_bench.core import git\nfrom train_bench.plan import", 1)
    # what is left: strings, comments, and `from train_bench.x import y` were rewritten already
    kept = {}
    def hide(m):
        kept[f"@@{len(kept)}@@"] = m[0]
        return f"@@{len(kept) - 1}@@"
    text = re.sub(r"from train_bench[\w.]* import", hide, text)
    text = new_text(text)
    for mark, was in kept.items():
        text = text.replace(mark, was)
    if text != before:
        path.write_text(text)
    return notes


def line_of(text: str, place: int) -> str:
    return text[text.rfind("\n", 0, place) + 1 : text.find("\n", place)]


def main() -> None:
    base = ROOT / "train_bench"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    notes = []
    for name in tracked:
        path = ROOT / name
        if not path.is_file() or path.is_symlink() or name.startswith(("docs/decisions/", "tools/", "CHANGELOG")):
            continue
        if path.suffix == ".py":
            notes += rewrite(path)
        elif path.suffix in (".md", ".yaml", ".toml", ".yml", ".sh", ".html", ".js", ".txt", "") and path.stat().st_size < 2_000_000:
            text = path.read_text()
            if new_text(text) != text:
                path.write_text(new_text(text))
                notes.append(f"{path}: text changed")
    temporary = {}
    for old, new in MOVES.items():
        source = base / (old.replace(".", "/") + ".py")
        held = base / f"moving_{old.replace('.', '_')}.py"
        subprocess.run(["git", "mv", str(source), str(held)], check=True)
        temporary[held] = base / (new.replace(".", "/") + ".py")
    for package in PACKAGES:
        (base / package).mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        (base / package / '__init__.py').touch()
    for held, target in temporary.items():
        subprocess.run(["git", "mv", str(held), str(target)], check=True)
    for old, new in OTHER_FILES.items():
        subprocess.run(["git", "mv", str(base / old), str(base / new)], check=True)
    print("\n".join(notes))


main()
