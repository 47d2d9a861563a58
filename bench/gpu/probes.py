"""Probes of `train-bench gpu-check` that take a checkout, one a process: tests marked gpu, steps against peers of
`references.py`, waits and rates of `input_pipeline.py`, and what needs the internals of references.

    python -m bench.gpu.probes PROBE --device cuda --folder SCRATCH
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from train_bench.gpu_check import probe as process
from train_bench.gpu_check.probe import PROGRAM, ROOT, Probe, run
from train_bench.gpu_check.probes import captured, train

GPU_TESTS = (
    "tests/launchers/test_ddp.py",
    "tests/profile/test_operators.py",
    "tests/own_trainer/test_warm_up.py",
    "tests/references/test_triton_kernels.py",
    *(
        f"tests/references/test_{name}_task.py"
        for name in ("resnet", "maskrcnn", "unet3d", "dlrm", "rnnt", "ssd")
    ),
)


def gpu_tests(probe: Probe) -> None:
    """Tests marked gpu."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-W", "default"]
    answer = run([*command, "--tb=short", *GPU_TESTS])
    counts = {
        word: int(n)
        for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)s?\b", answer.stdout[-600:])
    }
    probe.say(**{word: counts.get(word, 0) for word in ("passed", "failed", "skipped", "error")})
    probe.say(failures=re.findall(r"^(?:FAILED|ERROR) .*", answer.stdout, re.MULTILINE))
    if answer.returncode:
        probe.fault(f"pytest ended with {answer.returncode}.", answer.stdout)
    elif not counts.get("passed"):
        probe.fault("No test marked gpu has passed.")


FIRST = ("bert", "resnet", "retinanet", "ssd")
OTHERS = (
    *("llama31_8b", "maskrcnn", "unet3d", "rnnt"),
    *("gpt_oss_20b", "minigo", "dlrm", "flux1", "llama2_70b_lora"),
)


def _compared(probe: Probe, name: str, *words: str) -> None:
    """Steps of a reference against its peers in bf16, in a process of its own; of few samples on a CPU."""
    to = probe.folder / f"reference_{name}.jsonl"
    to.unlink(missing_ok=True)
    few = ("--seconds", "3", *words) if probe.cuda else ("--seconds", "1", "--batch", "4")
    command = [sys.executable, ROOT / "bench/references.py", name, "--device", probe.device]
    answer = run([*command, "--precision", "bf16", "--threads", "1", *few, "--to", to])
    if answer.returncode:
        probe.fault(f"{name}: bench/references.py ended with {answer.returncode}.", answer.stderr)
    elif to.is_file():
        probe.say(references=[json.loads(line) for line in to.read_text().splitlines()])


def references(probe: Probe) -> None:
    """Steps of the references that had been below their peers, or compared unfairly."""
    for name in FIRST if probe.cuda else ("minigo",):
        _compared(probe, name)


def other_references(probe: Probe) -> None:
    """Steps of the other references."""
    for name in OTHERS if probe.cuda else ("dlrm",):
        _compared(probe, name)


def sparse(probe: Probe) -> None:
    """Sparse optimizers of large tables."""
    _compared(probe, "dlrm_dcnv2", "--batch", "32768", "--set", "benchmark.model.max_table_rows=1000000")


def waits(probe: Probe) -> None:
    """Share of the window of minis that waits for data."""
    names = ("resnet_mini", "ssd_mini", "rnnt_mini", "flux1_mini") if probe.cuda else ("ssd_mini",)
    for name in names:
        command = [sys.executable, ROOT / "bench/input_pipeline.py", name, f"device={probe.device}"]
        answer = run([*command, "precision=bf16"])
        match = re.search(r"waits ([\d.]+) of ([\d.]+) s", answer.stdout)
        if match is None:
            probe.fault(f"{name}: bench/input_pipeline.py ended with {answer.returncode}.", answer.stderr)
        else:
            waited, window = map(float, match.groups())
            probe.say(**{name: {"wait_share": waited / window, "window_seconds": window}})


def loader(probe: Probe) -> None:
    """Images per second of ResNet's loader on JPEGs of ImageNet's size, by loader processes."""
    from bench.gpu.images import rate
    from train_bench.run import system

    many = max(1, system.cores() - 1)
    for workers in dict.fromkeys((1, many)):
        probe.say(**{f"workers_{workers}": rate(probe.device, workers, batches=2 + 3 * workers)})
    probe.say(workers=many)


def _digest(probe: Probe, variant: str) -> str:
    """Digest of a model after some steps in a process of its own."""
    command = [sys.executable, "-m", "bench.gpu.steps", variant, "--device", probe.device]
    answer = run(command, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    if answer.returncode:
        probe.fault(f"{variant}: bench/gpu/steps.py ended with {answer.returncode}.", answer.stderr)
        return f"failed with {answer.returncode}"
    return answer.stdout.split()[-1]


def repeatable(probe: Probe) -> None:
    """Two equal runs, bit by bit: some steps, and on a GPU a whole run."""
    for variant in ("bert_mini", "resnet_mini"):
        digests = [_digest(probe, variant) for _ in range(2)]
        probe.say(**{f"{variant}_steps": digests, f"{variant}_steps_equal": len({*digests}) == 1})
        if len({*digests}) > 1:
            probe.fault(f"{variant}: two runs of the same steps differ.")
    if not probe.cuda:
        return
    found = []
    for number in range(2):
        name = f"repeated_{number}"
        words = ("precision=bf16", "deterministic=true", "keep_weights=true")
        quality = train(probe, "resnet_mini", *words, name=name).get("quality")
        kept = sorted((probe.folder / name).rglob("*.safetensors"))
        found.append([quality, *(hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in kept)])
    probe.say(resnet_mini_runs=found, resnet_mini_runs_equal=found[0] == found[1])
    if found[0] != found[1] or len(found[0]) == 1:
        probe.fault(f"resnet_mini: two deterministic runs differ, or kept no weights: {found}.")


def clock(probe: Probe) -> None:
    """`Parallel.barrier()` before `init_stop` and `run_start` waits for the device."""
    import torch

    from bench.references import _config, _job
    from train_bench.core.job import Device, Precision
    from train_bench.launchers.inline import parallel as inline

    config = _config("minigo", 4)
    parallel = inline.join(_job(config, Device.cuda, Precision.bf16))
    torch.cuda._sleep(1000)
    parallel.barrier()
    ended = torch.cuda.Event(enable_timing=True)
    began = time.perf_counter()
    torch.cuda._sleep(1_000_000_000)  # about half a second
    ended.record()
    queued, before = time.perf_counter() - began, ended.query()
    parallel.barrier()
    waited, after = time.perf_counter() - began, ended.query()
    probe.say(queued_seconds=queued, barrier_seconds=waited, done_before=before, done_after=after)
    if before or not after:
        probe.fault(
            "Parallel.barrier() returned before the device was done, or the kernel was too short to tell."
        )


MEASURED_MEMORY: dict[str, tuple[int, tuple[str, ...]]] = {
    "bert": (48, ()),
    "resnet": (256, ()),
    "llama31_8b": (
        2,
        (
            *("benchmark.model.layers=2", "benchmark.model.vocabulary=32768"),
            "benchmark.hyperparameters.max_sequence_length=4096",
        ),
    ),
}


def _dry(name: str, size: tuple[int, tuple[str, ...]]) -> subprocess.CompletedProcess[str]:
    """Answer of `plan --dry` for one rank."""
    batch, overrides = size
    sizes = (f"benchmark.hyperparameters.global_batch_size={batch}", *overrides)
    words = (f"benchmark={name}", "--ranks", "1", "device=cuda", "precision=bf16", *sizes)
    return run([*PROGRAM, "plan", "--dry", "--json", *words])


def memory(probe: Probe) -> None:
    """Peak memory of a step at full width beside `plan --dry`."""
    import gc

    import torch

    from bench.references import CASES, Case, _config, _ours
    from bench.step_facts import gpu_facts
    from tests.references.tasks import synthetic

    measured = MEASURED_MEMORY if probe.cuda else {"resnet": MEASURED_MEMORY["resnet"]}
    with ThreadPoolExecutor() as pool:
        dry_plans = dict(zip(measured, pool.map(lambda item: _dry(*item), measured.items()), strict=True))
    for name, (batch, overrides) in measured.items():
        try:
            dry = sum(json.loads(dry_plans[name].stdout)["dry"][0]["peak"].values())
        except (ValueError, LookupError):
            probe.fault(f"{name}: train-bench plan --dry: {dry_plans[name].stderr[-300:]}")
            continue
        if not probe.cuda:
            probe.say(**{name: {"batch": batch, "dry_bytes": dry}})
            return
        CASES[name] = Case(batch=batch, gpu_batch=batch, rivals=(), overrides=overrides)
        config = _config(name, batch)
        given = argparse.Namespace(device=probe.device, precision="bf16")
        try:
            found = gpu_facts(_ours(name, config, synthetic(name)(config, batch), given))
        except torch.OutOfMemoryError as error:
            probe.fault(f"{name}: {error}")
            continue
        peak_bytes = found["peak_bytes"]
        ratio = peak_bytes / dry
        probe.say(
            **{name: {"batch": batch, "dry_bytes": dry, "peak_bytes": peak_bytes, "ratio": ratio, **found}}
        )
        gc.collect()
        torch.cuda.empty_cache()


def convolutions(probe: Probe) -> None:
    """A step of ResNet-50 in bf16, with and without cudnn.benchmark and channels_last."""
    for layout in ("contiguous_format", "channels_last"):
        for benchmark in (False, True):
            # A process keeps the plan of a shape, however it was chosen.
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                rate = pool.submit(_images_per_second, probe, layout, benchmark).result()
            probe.say(**{f"{layout}_benchmark_{'on' if benchmark else 'off'}_images_s": rate})


def _images_per_second(probe: Probe, layout: str, benchmark: bool) -> float:
    import torch

    batch, side = (256, 224) if probe.cuda else (2, 64)
    torch.backends.cudnn.benchmark = benchmark
    step = _resnet_step(probe, batch, side, getattr(torch, layout))
    return batch / probe.seconds(step, steps=8 if probe.cuda else 1)


def _resnet_step(probe: Probe, batch: int, side: int, layout: Any) -> Callable[[], object]:
    """Training step of the reference's ResNet-50 with SGD under bf16 autocast, without a cache of casts, so that it
    can be captured."""
    import torch
    from torch.nn import functional

    from bench.references import _config
    from train_bench.references.resnet.model import ResNet

    torch.manual_seed(1)
    model = ResNet(_config("resnet", batch).model).to(probe.device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.rand(batch, 3, side, side, device=probe.device).to(memory_format=layout)
    labels = torch.randint(1000, (batch,), device=probe.device)

    def step() -> object:
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(probe.device, dtype=torch.bfloat16, cache_enabled=False):
            loss = functional.cross_entropy(model(images).float(), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


def graph(probe: Probe) -> None:
    """A whole step as a CUDA graph, against eager."""
    import torch

    for batch in (16, 64):
        step = _resnet_step(probe, batch, 224, torch.channels_last)
        eager = probe.seconds(step, steps=20)
        replay = captured(_resnet_step(probe, batch, 224, torch.channels_last))
        graphed = probe.seconds(replay, steps=20)
        probe.say(
            **{
                f"batch_{batch}": {
                    "eager_ms": 1000 * eager,
                    "graph_ms": 1000 * graphed,
                    "ratio": eager / graphed,
                }
            }
        )


def two_ranks(probe: Probe) -> None:
    """Losses of two ranks over Gloo on one device: DDP, FSDP2, tensor parallelism, against one rank. Tensor parallelism
    on CPUs alone: its collectives over Gloo end with SIGSEGV on a GPU (torch 2.11)."""
    losses: dict[str, list[float]] = {}
    for way in ("one rank", "DDP", "FSDP2") if probe.cuda else ("one rank", "DDP", "FSDP2", "TP"):
        to = probe.folder / "losses.json"
        to.unlink(missing_ok=True)
        ranks = 1 if way == "one rank" else 2
        agent = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
        answer = run([sys.executable, *agent, ROOT / "bench/gpu/two_ranks.py", way, probe.device, str(to)])
        if not to.is_file():
            lines = [
                line for line in answer.stderr.splitlines() if re.match(r"(\[rank\d\]: ?)?\w*Error", line)
            ]
            said = " ".join(lines[-1:])[:300]
            probe.fault(f"{way}: two ranks ended with {answer.returncode}: {said}", answer.stderr)
            continue
        losses[way] = json.loads(to.read_text())
        probe.say(**{way.replace(" ", "_"): losses[way]})
    for way, found in losses.items():
        apart = max(abs(a - b) / abs(b) for a, b in zip(found, losses.get("one rank", found), strict=True))
        probe.say(**{f"{way.replace(' ', '_')}_largest_difference": apart})


PROBES: dict[str, Callable[[Probe], None]] = {
    "gpu_tests": gpu_tests,
    "references": references,
    "waits": waits,
    "loader": loader,
    "repeatable": repeatable,
    "memory": memory,
    "convolutions": convolutions,
    "graph": graph,
    "two_ranks": two_ranks,
    "sparse": sparse,
    "clock": clock,
    "other_references": other_references,
}


if __name__ == "__main__":
    process.main(PROBES)
