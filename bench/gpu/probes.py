"""Measurements of `bench/gpu_check.py`, one a process. Each prints its figures as lines `numbers {JSON}`, as soon as it
has them, so that a probe that is killed leaves those of before; it ends with 1 if something is wrong.

    python -m bench.gpu.probes NAME --device cuda --folder SCRATCH
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
sys.path.insert(0, str(ROOT))

PROGRAM = (sys.executable, "-m", "train_bench")
SMI = (
    "name",
    "uuid",
    "driver_version",
    "power.limit",
    "clocks.max.sm",
    "clocks.max.mem",
    "ecc.mode.current",
    "mig.mode.current",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "temperature.gpu",
)
GPU_TESTS = (
    "tests/launchers/test_ddp.py",
    "tests/profile/test_operators.py",
    "tests/own_trainer/test_warm_up.py",
    *(
        f"tests/references/test_{name}_task.py"
        for name in ("resnet", "maskrcnn", "unet3d", "dlrm", "rnnt", "ssd")
    ),
)
MINUTES_ON_A_CPU = 0.05
"""Of the clock of a run: enough to see that it trains."""


class Probe:
    """Where a probe measures, and what it says."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device, self.folder = device, folder
        self.cuda = device == "cuda"
        self.wrong: list[str] = []

    def say(self, **numbers: Any) -> None:
        """Figures, at once."""
        print("numbers", json.dumps(numbers), flush=True)

    def fault(self, sentence: str) -> None:
        """What is wrong; the probe goes on."""
        self.wrong.append(sentence)
        print(sentence, file=sys.stderr, flush=True)

    def sync(self) -> None:
        """Wait for the device."""
        if self.cuda:
            import torch

            torch.cuda.synchronize()

    def seconds(self, step: Callable[[], object], *, steps: int) -> float:
        """Median seconds of a step, after two more."""
        taken = []
        for number in range(steps + 2):
            self.sync()
            began = time.perf_counter()
            step()
            self.sync()
            if number >= 2:
                taken.append(time.perf_counter() - began)
        return statistics.median(taken)


def facts(probe: Probe) -> None:
    """The machine and its versions."""
    import torch

    from train_bench.run import system

    usage = shutil.disk_usage("/dev/shm")
    probe.say(
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        processor=system.describe()["processor"],
        cores=system.cores(),
        quota=_quota(),
        memory_bytes=system.describe()["memory_bytes"],
        shm_bytes=usage.total,
        kernel=platform.release(),
        packages=system.describe()["packages"],
    )
    if not probe.cuda:
        return
    properties = torch.cuda.get_device_properties(0)
    probe.say(
        gpu=properties.name,
        gpus=torch.cuda.device_count(),
        capability=list(torch.cuda.get_device_capability(0)),
        multiprocessors=properties.multi_processor_count,
        gpu_memory_bytes=properties.total_memory,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        cudnn=torch.backends.cudnn.version(),
        nccl=list(torch.cuda.nccl.version()),
    )
    answer = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    values = [value.strip() for value in answer.stdout.strip().split(",")]
    if answer.returncode == 0 and len(values) == len(SMI):
        probe.say(nvidia_smi=dict(zip(SMI, values, strict=True)))
    else:
        probe.fault(f"nvidia-smi: {(answer.stderr or answer.stdout).strip()[-300:]}")


def _quota() -> str | None:
    path = Path("/sys/fs/cgroup/cpu.max")
    return path.read_text().strip() if path.is_file() else None


def peaks(probe: Probe) -> None:
    """Products by precision and size, bytes of the device's memory and of its link."""
    import torch

    from train_bench.core.job import Precision
    from train_bench.launchers.parts import ddp
    from train_bench.profile import peak

    device = torch.device(probe.device)
    precisions = [each for each in Precision if probe.cuda or each is not Precision.tf32]
    for precision in precisions:
        ddp._set_matmul_precision(precision, device)
        dtype = peak.DTYPES.get(precision, torch.float32)
        for side in (8192, 16384) if probe.cuda else (512,):
            one, other = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
            into = torch.empty_like(one)
            rate = peak.per_second(lambda a=one, b=other, c=into: torch.mm(a, b, out=c), device)
            probe.say(**{f"{precision.value}_{side}_tflops": 2 * side**3 * rate / 1e12})
            del one, other, into
    probe.say(measured_by_profile=peak.measure(device, Precision.bf16, None).flop_per_second / 1e12)
    size = 2**30 if probe.cuda else 2**24
    one, other, into = (torch.rand(size // 4, device=device) for _ in range(3))
    triad = peak.per_second(lambda: torch.add(one, other, alpha=3.0, out=into), device)
    copy = peak.per_second(lambda: into.copy_(one), device)
    few = [each[: 2**20] for each in (one, other, into)]
    cached = peak.per_second(lambda: torch.add(few[0], few[1], alpha=3.0, out=few[2]), device)
    probe.say(
        triad_tb_s=3 * size * triad / 1e12,
        copy_tb_s=2 * size * copy / 1e12,
        cached_triad_tb_s=3 * 2**22 * cached / 1e12,
    )
    if probe.cuda:
        for name, host in (("pinned", torch.rand(2**26).pin_memory()), ("pageable", torch.rand(2**26))):
            there = torch.empty(2**26, device=device)
            to = peak.per_second(lambda a=there, b=host: a.copy_(b, non_blocking=True), device)
            back = peak.per_second(lambda a=there, b=host: b.copy_(a, non_blocking=True), device)
            probe.say(**{f"h2d_{name}_gb_s": 2**28 * to / 1e9, f"d2h_{name}_gb_s": 2**28 * back / 1e9})


def gpu_tests(probe: Probe) -> None:
    """Tests marked gpu."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", "-W", "default"]
    answer = _run([*command, "--tb=short", *GPU_TESTS])
    counts = {
        word: int(n)
        for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)s?\b", answer.stdout[-600:])
    }
    probe.say(**{word: counts.get(word, 0) for word in ("passed", "failed", "skipped", "error")})
    probe.say(failures=re.findall(r"^(?:FAILED|ERROR) .*", answer.stdout, re.MULTILINE))
    if answer.returncode:
        print(answer.stdout[-3000:], file=sys.stderr)
        probe.fault(f"pytest ended with {answer.returncode}.")
    elif not counts.get("passed"):
        probe.fault("No test marked gpu has passed.")


def _run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """In the checkout, in this process group, so that it is killed with the probe."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )


def _train(probe: Probe, variant: str, *words: str, name: str | None = None) -> dict[str, Any]:
    """One run of a campaign: figures of its entry."""
    label = name or variant
    output, to = probe.folder / label, probe.folder / f"{label}.json"
    shutil.rmtree(output, ignore_errors=True)
    if not probe.cuda:
        variant, words = variant.replace("_midi", "_mini"), (*words, f"max_minutes={MINUTES_ON_A_CPU}")
    fixed = (f"device={probe.device}", "runs=1", "seed=1", f"output={output}")
    began = time.perf_counter()
    answer = _run([*PROGRAM, "run", f"benchmark={variant}", *fixed, *words, "--to", str(to)])
    numbers: dict[str, Any] = {"wall_seconds": time.perf_counter() - began, "exit_code": answer.returncode}
    if not to.is_file():
        print((answer.stdout + answer.stderr)[-3000:], file=sys.stderr)
        probe.fault(f"{label}: train-bench run ended with {answer.returncode} and without a score.")
        return numbers
    (entry,) = json.loads(to.read_text())["entries"]
    (run,) = entry["runs"]
    numbers |= {key: run[key] for key in ("status", "minutes", "quality", "samples", "samples_per_second")}
    numbers |= {"target": entry["target"], "energy": entry["energy"], "energy_reason": entry["energy_reason"]}
    numbers["reasons"] = entry["reasons"]
    if probe.cuda and run["status"] != "success":
        print((answer.stdout + answer.stderr)[-3000:], file=sys.stderr)
        probe.fault(f"{label}: the run ended as {run['status']} at quality {run['quality']}.")
    return numbers


def bert_midi(probe: Probe) -> None:
    """A run to the target in bf16, with energy."""
    probe.say(**_train(probe, "bert_midi", "precision=bf16", "energy=auto"))


def llama_midi(probe: Probe) -> None:
    """A run of a decoder to the target in bf16, with energy."""
    probe.say(**_train(probe, "llama31_8b_midi", "precision=bf16", "energy=auto"))


def compile_midi(probe: Probe) -> None:
    """A run of the compiled model."""
    if probe.cuda:
        probe.say(**_train(probe, "bert_midi", "precision=bf16", "benchmark.compile=true", name="compiled"))
    else:
        probe.say(**_train(probe, "bert_midi", "benchmark.compile=true", name="compiled"))


def precisions(probe: Probe) -> None:
    """Runs of ResNet from one seed in each precision."""
    for precision in ("bf16", "fp16", "tf32", "fp32") if probe.cuda else ("bf16", "fp32"):
        found = _train(probe, "resnet_midi", f"precision={precision}", name=f"resnet_{precision}")
        probe.say(**{precision: found})


def _profiled(variant: str) -> Callable[[Probe], None]:
    """Profile of a variant in bf16."""

    def profile(probe: Probe) -> None:
        from bench.step_facts import named

        chosen = variant if probe.cuda else variant.replace("_midi", "_mini")
        output = probe.folder / f"profile_{chosen}"
        shutil.rmtree(output, ignore_errors=True)
        few = ("--steps", "10" if probe.cuda else "2", "--rounds", "2")
        words = (f"benchmark={chosen}", f"device={probe.device}", "precision=bf16", "seed=1")
        answer = _run([*PROGRAM, "profile", *words, *few, f"output={output}"])
        path = output / "profile.json"
        if not path.is_file():
            print((answer.stdout + answer.stderr)[-3000:], file=sys.stderr)
            probe.fault(f"train-bench profile ended with {answer.returncode}.")
            return
        content = json.loads(path.read_text())
        window = content["window"]["training_seconds"]
        waits = sum(row["seconds"] for row in content["waterfall"] if row["kind"] == "input")
        kernels = {row["name"]: row.get("seconds", 0.0) for row in content["kernels"]}
        probe.say(
            batch=content["global_batch_size"],
            workers=content["workers"],
            threads=content["threads_per_rank"],
            step_ms=1000 * content["step"]["seconds"],
            samples_per_second=content["step"]["samples_per_second"],
            share_of_peak=content["compute"]["share_of_peak"],
            mfu=content["compute"]["mfu"],
            tflop_of_step=content["compute"]["flop_of_step"] / 1e12,
            peak_tflops=content["peak"]["flop_per_second"] / 1e12,
            wait_share=waits / window,
            evaluation_seconds=content["window"]["evaluation_seconds"],
            memory={key: value for key, value in content["memory"].items() if value is not None},
            shares={
                row["name"]: round(row["share"], 4) for row in content["waterfall"] if row["share"] > 0.01
            },
            sentence=content["answer"]["sentence"],
            notes=content["notes"],
            **named(kernels),
        )

    return profile


FIRST = ("bert", "resnet", "retinanet", "ssd")
OTHERS = (
    *("llama31_8b", "dlrm_dcnv2", "maskrcnn", "unet3d", "rnnt"),
    *("gpt_oss_20b", "minigo", "dlrm", "flux1", "llama2_70b_lora"),
)


def _references(names: Sequence[str]) -> Callable[[Probe], None]:
    """Steps against peers in bf16 at batches of a GPU, each in a process of its own."""

    def references(probe: Probe) -> None:
        for name in names if probe.cuda else ("minigo", "dlrm"):
            to = probe.folder / f"reference_{name}.jsonl"
            to.unlink(missing_ok=True)
            few = ("--seconds", "3") if probe.cuda else ("--seconds", "1", "--batch", "4")
            command = [sys.executable, ROOT / "bench/references.py", name, "--device", probe.device]
            answer = _run([*command, "--precision", "bf16", "--threads", "1", *few, "--to", to])
            if answer.returncode:
                print(answer.stderr[-1500:], file=sys.stderr)
                probe.fault(f"{name}: bench/references.py ended with {answer.returncode}.")
            elif to.is_file():
                probe.say(references=[json.loads(line) for line in to.read_text().splitlines()])

    return references


def waits(probe: Probe) -> None:
    """Share of the window of minis that waits for data."""
    names = ("resnet_mini", "ssd_mini", "rnnt_mini", "flux1_mini") if probe.cuda else ("ssd_mini",)
    for name in names:
        command = [sys.executable, ROOT / "bench/input_pipeline.py", name, f"device={probe.device}"]
        answer = _run([*command, "precision=bf16"])
        match = re.search(r"waits ([\d.]+) of ([\d.]+) s", answer.stdout)
        if match is None:
            print(answer.stderr[-1500:], file=sys.stderr)
            probe.fault(f"{name}: bench/input_pipeline.py ended with {answer.returncode}.")
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
    answer = _run(command, CUBLAS_WORKSPACE_CONFIG=":4096:8")
    if answer.returncode:
        print(answer.stderr[-1500:], file=sys.stderr)
        probe.fault(f"{variant}: bench/gpu/steps.py ended with {answer.returncode}.")
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
        found.append(_train(probe, "resnet_mini", *words, name=name)["quality"])
        kept = sorted((probe.folder / name).rglob("*.safetensors"))
        found[-1] = [found[-1], *(hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in kept)]
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
    return _run([*PROGRAM, "plan", "--dry", "--json", *words])


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
            with ProcessPoolExecutor(1, get_context("spawn")) as process:
                rate = process.submit(_images_per_second, probe, layout, benchmark).result()
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
        step = _resnet_step(
            probe, batch, 224, torch.channels_last
        )  # no tensor of the default stream is captured
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        graphed = probe.seconds(captured.replay, steps=20)
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
        answer = _run([sys.executable, *agent, ROOT / "bench/gpu/two_ranks.py", way, probe.device, str(to)])
        if not to.is_file():
            lines = [
                line for line in answer.stderr.splitlines() if re.match(r"(\[rank\d\]: ?)?\w*Error", line)
            ]
            print(answer.stderr[-1500:], file=sys.stderr)
            probe.fault(f"{way}: two ranks ended with {answer.returncode}: {' '.join(lines[-1:])[:300]}")
            continue
        losses[way] = json.loads(to.read_text())
        probe.say(**{way.replace(" ", "_"): losses[way]})
    for way, found in losses.items():
        apart = max(abs(a - b) / abs(b) for a, b in zip(found, losses.get("one rank", found), strict=True))
        probe.say(**{f"{way.replace(' ', '_')}_largest_difference": apart})
        if apart > 1e-3:
            probe.fault(f"{way}: losses differ from those of one rank by {apart:.1e} of them.")


def nccl(probe: Probe) -> None:
    """A process group of one rank over NCCL with a device of its own, and its first exchanges."""
    import torch
    from torch import distributed

    from train_bench.core import rank_messages

    began = time.perf_counter()
    distributed.init_process_group(
        "nccl",
        init_method=f"file://{probe.folder}/meet",
        rank=0,
        world_size=1,
        device_id=torch.device("cuda:0"),
    )
    opened = time.perf_counter()
    value = torch.ones(2**20, device="cuda")
    distributed.all_reduce(value)
    distributed.barrier()
    torch.cuda.synchronize()
    probe.say(init_seconds=opened - began, first_exchange_seconds=time.perf_counter() - opened)
    given = {"message": [1, 2.5, "three"]}
    received = rank_messages.gather(given, 1, 0, torch.device("cuda:0"), None)
    probe.say(message_returned=received == [given], reduced=float(value.sum()) == 2**20)
    distributed.destroy_process_group()


def messages(probe: Probe) -> None:
    """What is said when the device's memory runs out, and when a rank stops."""
    if probe.cuda:
        large = ("benchmark.hyperparameters.global_batch_size=65536", "device=cuda", "precision=bf16")
        output = probe.folder / "too_large"
        shutil.rmtree(output, ignore_errors=True)
        answer = _run([*PROGRAM, "run", "benchmark=bert_midi", *large, "runs=1", f"output={output}"])
        probe.say(
            out_of_memory={"exit_code": answer.returncode, "said": (answer.stdout + answer.stderr)[-1200:]}
        )
        if answer.returncode == 0:
            probe.fault("A global batch of 65,536 was trained, so nothing ran out of memory.")
    found = _stopped_rank(probe)
    probe.say(stopped_rank=found)
    if not found["stopped"] or "heartbeat" not in found["said"]:
        probe.fault(f"A rank was stopped and the run did not say so: {found['said'][-300:]}")


def _stopped_rank(probe: Probe) -> dict[str, Any]:
    """A rank is stopped on the clock."""
    output = probe.folder / "stopped"
    shutil.rmtree(output, ignore_errors=True)
    words = (f"device={probe.device}", "runs=1", "seed=1", f"output={output}", "stall_limit_seconds=8")
    began = time.perf_counter()
    running = subprocess.Popen(
        [*PROGRAM, "run", "benchmark=bert_mini", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while running.poll() is None and not _is_on_the_clock(output):
        time.sleep(0.2)
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    stopped = [pid for pid in pids if _is_rank(pid, output)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    at = time.perf_counter()
    said, _ = running.communicate()
    after = time.perf_counter() - at
    return {"stopped": len(stopped), "started_s": at - began, "noticed_s": after, "said": said[-800:]}


def _is_on_the_clock(output: Path) -> bool:
    """True once a run has begun and its rank has sent a heartbeat."""
    logs = output.glob("result_0.txt*")
    begun = any("run_start" in path.read_text(errors="replace") for path in logs)
    return begun and (output / "ranks/run_0/heartbeat").exists()


def _is_rank(pid: int, output: Path) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    return "train_bench.run.rank" in words and any(str(output) in word for word in words)


PROBES: dict[str, Callable[[Probe], None]] = {
    "facts": facts,
    "peaks": peaks,
    "gpu_tests": gpu_tests,
    "bert_midi": bert_midi,
    "llama_midi": llama_midi,
    "profile_llama": _profiled("llama31_8b_midi"),
    "profile_bert": _profiled("bert_midi"),
    "profile_resnet": _profiled("resnet_midi"),
    "references": _references(FIRST),
    "repeatable": repeatable,
    "clock": clock,
    "memory": memory,
    "convolutions": convolutions,
    "graph": graph,
    "nccl": nccl,
    "waits": waits,
    "loader": loader,
    "two_ranks": two_ranks,
    "other_references": _references(OTHERS),
    "compile": compile_midi,
    "precisions": precisions,
    "messages": messages,
}


def main() -> None:
    """One probe."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=PROBES)
    parser.add_argument("--device", choices=["cpu", "cuda"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    probe = Probe(given.device, given.folder.resolve())
    PROBES[given.name](probe)
    sys.exit(bool(probe.wrong))


if __name__ == "__main__":
    main()
