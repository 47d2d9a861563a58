"""The page of a check: one page of Markdown from its JSON. A module of `gpu_check.py`; it has no command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bench.gpu.table import PARTS, expectations, out_of_range

Raw = Mapping[str, Any]


def verdicts(content: Raw) -> list[str]:
    """Sentences: what failed, then what is out of its range."""
    parts = {part["name"]: part for part in content["parts"]}
    found = []
    for name, part in parts.items():
        if part["status"] in {"failed", "timeout"}:
            found.append(f"{name}: {part['status']}: {part['error']}")
    for expected in expectations(content["machine"].get("gpu")):
        if expected.part in parts:
            numbers = parts[expected.part]["numbers"]
            rows = numbers.get("references")
            if rows is not None:
                numbers = {f"{row['name']} against {row['rival']}": row for row in rows}
            found += out_of_range(expected, numbers)
    return found


def page(content: Raw) -> str:
    """Verdicts first, then figures, then what was not tried."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: Raw) -> Iterator[str]:
    machine, parts = content["machine"], {part["name"]: part for part in content["parts"]}
    yield f"# gpu-check: {machine.get('gpu') or machine.get('processor') or 'a machine without facts'}"
    yield ""
    yield (
        f"train_bench {content['version']} ({content['revision'] or content['sources']}), {content['date']}; "
        f"torch {machine.get('torch')}, "
        f"CUDA {machine.get('cuda')}, cuDNN {machine.get('cudnn')}, NCCL {machine.get('nccl')}, "
        f"Python {machine.get('python')}, {machine.get('cores')} cores."
    )
    yield ""
    if content["verdicts"]:
        yield "**Out of range or failed**"
        yield ""
        yield from (f"- {sentence}" for sentence in content["verdicts"])
    else:
        yield "Nothing that was tried failed or was out of its range."
    yield from _references(content["references"])
    for part in PARTS:
        found = parts.get(part.name)
        if (
            found is not None
            and found["tried"]
            and part.name not in {"facts", "references", "other_references"}
        ):
            yield ""
            yield f"**{part.name}** ({part.shows}): {found['status']}, {found['seconds']:.0f} s"
            yield ""
            yield from (f"- {line}" for line in _flat(found["numbers"]))
    missing = [part.name for part in PARTS if not parts.get(part.name, {}).get("tried")]
    if missing:
        yield ""
        yield f"Not tried: {', '.join(missing)}."


def _references(rows: Iterable[Raw]) -> Iterator[str]:
    rows = list(rows)
    if not rows:
        return
    yield ""
    yield "| Reference | batch | samples/s | peer | ratio | peak GB | syncs, launches a step | attention kernel |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: row["ratio"]):
        peak = f"{row['peak_bytes'] / 1e9:.1f}" if "peak_bytes" in row else "-"
        counts = (
            f"{row['syncs_per_step']:.0f}, {row['launches_per_step']:.0f}" if "peak_bytes" in row else "-"
        )
        yield (
            f"| {row['name']}, {row['precision']} | {row['batch']} | {row['ours']:.1f} | {row['rival']} "
            f"{row['peer']:.1f} | {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) | {peak} | {counts} "
            f"| {(row.get('attention_kernel') or '-')[:50]} |"
        )


def _flat(numbers: Raw, above: str = "") -> Iterator[str]:
    """A line a group of figures; long lists and texts are in the JSON alone."""
    plain = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping) and key not in {"memory", "shares"}:
            yield from _flat(value, f"{above}{key}: ")
        elif isinstance(value, float):
            plain[key] = f"{value:.4g}"
        elif isinstance(value, str) and len(value) > 160:
            plain[key] = repr(value[-160:])
        elif key not in {"kernels", "packages", "notes"}:
            plain[key] = str(value)
    if plain:
        yield above + ", ".join(f"{key} {value}" for key, value in plain.items())
