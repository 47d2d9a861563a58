"""Tables of the dry plan of every reference on 8 H100s and on 64 hosts of 8, and of how many ranks are of use at each
point.

    python bench/studies/machines.py FOLDER [ROW ...]

plans the rows (all of them, or those named) that FOLDER does not hold, a JSON file each, then prints the tables of all
rows that it holds. A row takes 10 to 60 seconds of a processor, llama31_405b_512 some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
TFLOPS, HBM, NVLINK, NETWORK = 989, 3350, 450, 50
"""Of an H100: bf16 without sparsity, GB/s to its memory, to GPUs of its host, and to other hosts (400 Gbit/s)."""

MACHINE = ("--memory-gb", "85", "--peak-tflops", str(TFLOPS), "--memory-gb-s", str(HBM))
COMMON = ("device=cuda", "precision=bf16", "launcher=torchrun", "launcher.nproc_per_node=8")
AGAIN = "benchmark.activation_checkpointing=true"
START = "benchmark.start_weights=/fast/llama31-405b"
FSDP, HSDP = "launcher.shard=fsdp", "launcher.shard=hsdp"


def parts(count: int) -> str:
    """Override for so many micro-batches."""
    return f"benchmark.hyperparameters.gradient_accumulation_steps={count}"


ONE_HOST: Mapping[str, tuple[str, ...]] = {
    "bert": ("point=448",),
    "dlrm": ("point=55296",),
    "dlrm_dcnv2": ("point=55296",),
    "flux1": (FSDP, AGAIN),
    "gpt_oss_20b": (FSDP, AGAIN),
    "llama2_70b_lora": (FSDP, AGAIN),
    "llama31_405b": (START, FSDP, AGAIN, parts(144)),
    "llama31_8b": (FSDP, AGAIN, parts(2)),
    "maskrcnn": ("point=96",),
    "minigo": (),
    "resnet": ("point=4096",),
    "retinanet": (),
    "rnnt": (),
    "ssd": (),
    "unet3d": ("point=56",),
}
HOSTS: Mapping[str, tuple[str, ...]] = {
    "bert": ("point=3072",),
    "dlrm": ("point=55296",),
    "dlrm_dcnv2": ("point=65536",),
    "flux1": ("point=4096", HSDP, AGAIN),
    "gpt_oss_20b": ("point=64", HSDP, AGAIN),
    "llama2_70b_lora": (FSDP, AGAIN),
    "llama31_405b": (START, FSDP, "launcher.tensor_parallel=8", AGAIN, parts(18)),
    "llama31_8b": ("point=128", HSDP, "launcher.tensor_parallel=4", AGAIN),
    "maskrcnn": ("point=96",),
    "minigo": (),
    "resnet": ("point=32768",),
    "retinanet": ("point=1024",),
    "rnnt": ("point=2048",),
    "ssd": ("point=1024",),
    "unet3d": ("point=56",),
}
GROUPS = {"llama31_8b": 8, "llama31_405b": 8}
"""Ranks of the largest tensor-parallel group within a host, where a reference has a plan for it."""


def rows() -> Iterator[tuple[str, list[str]]]:
    """Names of rows, and the words of their dry plans."""
    for name, words in ONE_HOST.items():
        yield f"{name}_8", [*COMMON, f"benchmark={name}", *words, *MACHINE, "--network-gb-s", str(NVLINK)]
    for name, words in HOSTS.items():
        hosts = ("launcher.nodes=64", *COMMON)
        yield f"{name}_512", [*hosts, f"benchmark={name}", *words, *MACHINE, "--network-gb-s", str(NETWORK)]


def planned(words: list[str]) -> dict[str, Any]:
    """Object of the dry plan, or the refusal of what cannot fit by its parameters alone."""
    command = [sys.executable, "-m", "train_bench", "plan", "--json"]
    bound = [*words[: words.index("--memory-gb")], "memory_gb=85", "drop_caches=true"]
    answer = subprocess.run([*command, *bound], capture_output=True, text=True, cwd=ROOT)
    refused = json.loads(answer.stdout)["refused"] if answer.stdout.startswith("{") else []
    for sentence in refused:
        if "needs at least" in sentence:
            return {"refused": sentence}
    answer = subprocess.run([*command, "--dry", *words], capture_output=True, text=True, cwd=ROOT)
    if answer.returncode:
        return {"refused": answer.stderr.strip().splitlines()[0].removeprefix("train-bench: ")}
    found: dict[str, Any] = json.loads(answer.stdout)["dry"][0]
    return found


def words_of(row: str) -> str:
    """What a reader would type beside the benchmark and the machine."""
    name, _, ranks = row.rpartition("_")
    return " ".join((ONE_HOST if ranks == "8" else HOSTS)[name]) or "as it is"


def gb(size: float) -> str:
    """In GB of 10^9 bytes."""
    return f"{size / 1e9:.1f}"


def machine_table(held: Mapping[str, dict[str, Any]], ranks: int) -> Iterator[str]:
    """Lines of Markdown."""
    heads = ("benchmark", "overrides", "samples of a rank", "peak GB", "in", "whole weights GB")
    heads += ("gathered, reduced, exchanged GB a step", "step at least", "fits")
    yield f"| {' | '.join(heads)} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row, step in held.items():
        name, _, of = row.rpartition("_")
        if int(of) != ranks:
            continue
        if "refused" in step:
            yield f"| `{name}` | `{words_of(row)}` | refused: {step['refused']} | | | | | | no |"
            continue
        bound = step["bound"]
        traffic = ", ".join(gb(step[kind]) for kind in ("gathers", "reduced", "exchanged"))
        yield (
            f"| `{name}` | `{words_of(row)}` | {step['samples']} x {step['micro_batches']} "
            f"| {gb(sum(step['peak'].values()))} | {step['peak_phase']} | {gb(step['undivided'])} | {traffic} "
            f"| {1e3 * bound['step_seconds']:.3g} ms, {bound['term']} | {'yes' if bound['fits'] else 'no'} |"
        )


def points(name: str, own: int) -> list[int]:
    """Batch sizes with a reference convergence point, and that of the configuration."""
    file = ROOT / "conf" / "points" / f"{name}.yaml"
    known = yaml.safe_load(file.read_text()) if file.exists() else {}
    return sorted({own, *(int(size) for size in known)})


def rank_table(held: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Lines of Markdown: at each point the ranks that have a sample each, and those whose work takes longer than the
    averages of gradients between hosts, which then hide behind it."""
    yield "| benchmark | samples of a step: most ranks, of use |"
    yield "|---|---|"
    for row, step in held.items():
        name, _, of = row.rpartition("_")
        if of != "8" or "refused" in step:
            continue
        reduced = step["reduced"] / (step["micro_batches"] if step["sharing"] > 1 else 1) / step["sharing"]
        averaged = 2 * reduced / (NETWORK * 1e9)
        work = max(step["bound"]["seconds"][kind] for kind in ("compute", "memory")) * step["ranks"]
        each = []
        for size in points(name, step["global_batch_size"]):
            most = size * GROUPS.get(name, 1)
            useful = min(most, max(8, int(work * size / step["global_batch_size"] / averaged)))
            each.append(f"{size}: {most}, {useful}")
        yield f"| `{name}` | {'; '.join(each)} |"


def main(folder: str, *wanted: str) -> None:
    """Plan what is missing, then print."""
    into = Path(folder)
    into.mkdir(exist_ok=True)
    held = {}
    for row, words in rows():
        file = into / f"{row}.json"
        if not file.exists() and (not wanted or row in wanted):
            file.write_text(json.dumps(planned(words)))
        if file.exists():
            held[row] = json.loads(file.read_text())
    print("\n".join(["On 8 GPUs:", "", *machine_table(held, 8), "", "On 64 hosts of 8 GPUs:", ""]))
    print("\n".join([*machine_table(held, 512), "", *rank_table(held)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
