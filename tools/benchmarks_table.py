"""The table of benchmarks in docs/benchmarks.md, made from `conf/benchmark/` and the rules.

python tools/benchmarks_table.py           # write it
python tools/benchmarks_table.py --check   # exit code 1 if docs/benchmarks.md has another one
"""

from __future__ import annotations

import re
import sys

from train_bench.core import plugins
from train_bench.plan import discover
from train_bench.rules import ruleset

PAGE = discover.ROOT / "docs" / "benchmarks.md"
HEADING = "| | Task | Target | Unit | Runs |\n|---|---|---|---|---|\n"
TABLE = re.compile(r"(?:\| \| Task .*\n)(?:\|.*\n)+")


def table() -> str:
    """A row for each name that logs of shipped benchmarks have."""
    shipped = {name for name, plugin in plugins.references().items() if plugin.shipped}
    every = {variant: discover.describe_variant(variant) for variant in discover.variants()}
    described = {name: one for name, one in every.items() if one["reference"] in shipped}
    own = [name for name, one in described.items() if one["benchmark"] == name]
    own.sort(key=lambda name: (described[name]["reference"], described[name]["ruleset"] == "mini-1.0"))
    return HEADING + "".join(_row(name, described[name]) for name in own)


def _row(name: str, described: dict[str, str]) -> str:
    rules = ruleset.load(described["ruleset"]).benchmark(name)
    task = described["about"].partition(";")[0].removesuffix(".")
    return f"| `{name}` | {task} | {rules.target} | {rules.unit.value} | {rules.runs} |\n"


def main() -> int:
    """Write or check."""
    text = PAGE.read_text(encoding="utf-8")
    made = TABLE.sub(lambda _: table(), text)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if made == text and len(TABLE.findall(text)) == 1:
        return 0
    print(
        "The table of benchmarks in docs/benchmarks.md is not what python tools/benchmarks_table.py makes of them."
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
