"""Page of a check: Markdown from its file, what is out of range or failed first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from train_bench.gpu_check.parts import PARTS, expectations, out_of_range

Raw = Mapping[str, Any]

TABLED = ("facts", "references", "sparse", "other_references")
"""Parts that the head and the tables of the page have."""

IN_THE_FILE_ALONE = ("kernels", "packages", "notes", "references")

LONGEST = 160
"""Characters of a text on the page."""


def verdicts(content: Raw) -> list[str]:
    """Sentences: what failed, then what is out of its range."""
    parts = {part["name"]: part for part in content["parts"]}
    found = [
        f"{name}: {part['status']}: {part['error']}"
        for name, part in parts.items()
        if part["status"] in {"failed", "timeout"}
    ]
    for range_ in expectations(content["machine"].get("accelerator")):
        if range_.part in parts:
            numbers = parts[range_.part]["numbers"]
            if (rows := numbers.get("references")) is not None:
                numbers = {f"{row['name']} against {row['rival']}": row for row in rows}
            found += out_of_range(range_, numbers)
    return found


def page(content: Raw) -> str:
    """Verdicts first, then figures, then what was not tried."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: Raw) -> Iterator[str]:
    machine, parts = content["machine"], {part["name"]: part for part in content["parts"]}
    yield f"# gpu-check: {machine.get('accelerator') or machine.get('processor') or 'unknown machine'}"
    yield ""
    versions = {
        "torch": machine.get("torch"),
        "CUDA": machine.get("cuda"),
        "HIP": machine.get("hip"),
        "cuDNN": machine.get("cudnn"),
        "NCCL": ".".join(map(str, machine.get("nccl") or ())),
        "driver": (machine.get("nvidia_smi") or {}).get("driver_version"),
        "Python": machine.get("python"),
    }
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    yield (
        f"train_bench {content['train_bench']} ({content['revision'] or content['sources']}), {content['date']}; "
        f"{named}, {machine.get('cores')} cores."
    )
    yield ""
    if content["verdicts"]:
        yield "**Out of range or failed**"
        yield ""
        yield from (f"- {sentence}" for sentence in content["verdicts"])
    else:
        yield "No part that was tried failed or has a figure out of its range."
    yield from _references(content["references"])
    for part in PARTS:
        found = parts.get(part.name)
        if found is not None and found["tried"] and part.name not in TABLED:
            yield ""
            yield f"**{part.name}** ({part.shows}): {found['status']}, {found['seconds']:.0f} s"
            if lines := list(_flat(found["numbers"])):
                yield from ("", *(f"- {line}" for line in lines))
    missing = [part.name for part in PARTS if part.name not in parts]
    skipped = [f"{part['name']} ({part['error']})" for part in parts.values() if not part["tried"]]
    if missing or skipped:
        yield ""
        yield f"Not tried: {', '.join([*skipped, *missing])}."


def _references(rows: Iterable[Raw]) -> Iterator[str]:
    rows = list(rows)
    if not rows:
        return
    yield ""
    yield (
        "| Reference | batch | step ms | samples/s | MFU | of data sheet | peer | ratio | peak GB | memory/dry "
        "| syncs, launches a step | attention kernel |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: row["ratio"]):
        counts = (
            f"{row['syncs_per_step']:.0f}, {row['launches_per_step']:.0f}" if "syncs_per_step" in row else "-"
        )
        peak = f"{row['peak_bytes'] / 1e9:.1f}" if "peak_bytes" in row else "-"
        memory = f"{row['memory_over_dry']:.2f}" if row["memory_over_dry"] else "-"
        yield (
            f"| {row['name']}, {row['precision']} | {row['batch']} | {1000 * row['batch'] / row['ours']:.4g} "
            f"| {row['ours']:.1f} | {_percent(row['mfu'])} | {_percent(row['share_of_data_sheet'])} "
            f"| {row['rival']} {row['peer']:.1f} | {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f}) "
            f"| {peak} | {memory} | {counts} | {(row.get('attention_kernel') or '-')[:50]} |"
        )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _flat(numbers: Raw, above: str = "") -> Iterator[str]:
    """A line for each group of figures. What is null, and long lists and texts, are in the file alone."""
    plain = {}
    for key, value in numbers.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}: ")
        elif isinstance(value, float):
            plain[key] = f"{value:.4g}"
        elif isinstance(value, str) and len(value) > LONGEST:
            plain[key] = repr(value[-LONGEST:])
        elif value is not None and key not in IN_THE_FILE_ALONE and len(str(value)) <= LONGEST:
            plain[key] = str(value)
    if plain:
        yield above + ", ".join(f"{key} {value}" for key, value in plain.items())
