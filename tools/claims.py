"""Claims about MLPerf in the first comments of `conf/benchmark/`, made from tables of verification in the READMEs.

python tools/claims.py           # write them; then python tools/benchmarks_table.py, which writes docs/benchmarks.md
python tools/claims.py --check   # exit code 1 if a comment has another one
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_bench.plan import discover

ASPECTS = ("architecture", "initialisation", "loss", "optimizer", "schedule", "data", "evaluation")
VERIFIED = re.compile(r"the reference's own code at [0-9a-f]{7,40}|published log \S.*|rules text, \S.*")
NOT_VERIFIED = ("library only", "not verified")
DIFFERS = "differs"
TABLE = re.compile(
    r"^\| Aspect of `(\w+)` \| Verified by \| Held by \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", re.M
)
CLAIM = re.compile(
    r"\b(?:as MLPerf Training v[\d.]+ defines it|after MLPerf Training v[\d.]+ \([^)]*\))(?=[;.])"
)


def tables(text: str) -> dict[str, dict[str, str]]:
    """The tables of verification in the README of a reference: by benchmark, what verified each aspect."""
    return {name: _aspects(name, rows) for name, rows in TABLE.findall(text)}


def _aspects(name: str, rows: str) -> dict[str, str]:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()]
    if tuple(aspect for aspect, *_ in cells) != ASPECTS:
        raise ValueError(f"The table of {name} has {[row[0] for row in cells]}; its aspects are {ASPECTS}.")
    for aspect, by, *_ in cells:
        if not (VERIFIED.fullmatch(by) or by in (*NOT_VERIFIED, DIFFERS)):
            raise ValueError(
                f"{name}, {aspect}: {by!r}; allowed are {VERIFIED.pattern}, {NOT_VERIFIED}, {DIFFERS}."
            )
    return {aspect: by for aspect, by, *_ in cells}


def claim(version: str, verified_by: Mapping[str, str]) -> str:
    """The claim that a table supports: `as MLPerf Training vX defines it` only if every aspect is verified."""
    differ = [aspect for aspect, by in verified_by.items() if by == DIFFERS]
    unverified = [aspect for aspect, by in verified_by.items() if by in NOT_VERIFIED]
    parts = [f"{_list(differ)} differ{'s' * (len(differ) == 1)}"] if differ else []
    parts += [f"{_list(unverified)} not verified"] if unverified else []
    round_ = f"MLPerf Training v{version}"
    return f"after {round_} ({', '.join(parts)})" if parts else f"as {round_} defines it"


def _list(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def claims() -> dict[str, str]:
    """The claim of each benchmark that has a table."""
    paths = (discover.folder(reference) / "README.md" for reference in discover.references())
    shipped = [path for path in paths if path.is_relative_to(discover.ROOT)]
    found = {name: by for path in shipped for name, by in tables(path.read_text(encoding="utf-8")).items()}
    return {name: claim(_version(name), by) for name, by in found.items()}


def _version(benchmark: str) -> str:
    """Of `training-6.1.0`: 6.1."""
    ruleset = discover.describe_variant(benchmark)["ruleset"]
    return ruleset.removeprefix("training-").removesuffix(".0")


def main() -> int:
    """Write or check."""
    differing = {path: text for path, text in _rewritten() if text != path.read_text(encoding="utf-8")}
    if "--check" not in sys.argv[1:]:
        for path, text in differing.items():
            path.write_text(text, encoding="utf-8")
        return 0
    for path in differing:
        print(
            f"The claim in {path} is not what python tools/claims.py makes of the table in the reference's README."
        )
    return 1 if differing else 0


def _rewritten() -> list[tuple[Path, str]]:
    paths = {name: discover.ROOT / "conf" / "benchmark" / f"{name}.yaml" for name in claims()}
    made = claims()
    return [(path, CLAIM.sub(made[name], path.read_text(encoding="utf-8"))) for name, path in paths.items()]


if __name__ == "__main__":
    sys.exit(main())
