"""docs/options.md: every option of the verbs that compose a configuration, made from where each is defined.

python tools/options_table.py           # write it
python tools/options_table.py --check   # exit code 1 if the page is another one
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from train_bench.plan import discover, option_table

PAGE = discover.ROOT / "docs" / "options.md"

INTRODUCTION = """\
# Options

Options of the verbs that compose a configuration: `run`, `plan`, `prepare`, `rcp`, `forecast`, `profile`, `accept`
and `check`. Type them as `name=value` or `--name value`. "Verbs" says which of them take an option, if not all.
"Resume": it may be given again with `resume=`; everything else follows from the campaign's plan. `train-bench VERB
--help` prints the same. `python tools/options_table.py` makes this page from the fields of
`train_bench/plan/run_config.py`, `train_bench/task.py` and the launchers' configurations.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_lines()])


def _lines() -> Iterator[str]:
    for heading, listed in option_table.parts().items():
        yield from (
            f"## {heading}",
            "",
            "| Option | Default | Verbs | Resume | Meaning |",
            "|---|---|---|---|---|",
        )
        for one in listed:
            default = f"`{one.default}`" if one.default else ""
            yield (
                f"| `{one.name}` | {default} | {', '.join(one.verbs)} | {'yes' if one.on_resume else ''} | "
                f"{one.about.replace('|', chr(92) + '|')} |"
            )
        yield ""


def main() -> int:
    """Write or check."""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    print("docs/options.md is not what python tools/options_table.py makes.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
