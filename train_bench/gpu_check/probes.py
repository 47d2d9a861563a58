"""Probes of `train-bench gpu-check` that any installation has, one a process:

python -m train_bench.gpu_check.probes PROBE --device cuda --folder SCRATCH [--benchmark VARIANT]
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from train_bench.core.parent_death import ending_with_parent
from train_bench.gpu_check import probe as process
from train_bench.gpu_check.probe import PROGRAM, Probe, run

SMI = (
    *("uuid", "driver_version", "power.limit", "clocks.max.sm", "clocks.max.mem", "ecc.mode.current"),
    *("mig.mode.current", "pcie.link.gen.max", "pcie.link.width.max", "temperature.gpu"),
)
"""What nvidia-smi is asked for."""

MINUTES_ON_A_CPU = 0.05
"""Minutes of a run on a CPU: enough to see that it trains."""


def identity(probe: Probe) -> None:
    """Kind of machine, which the figures of one file share; `--device auto` takes an accelerator if there is one."""
    import torch

    from train_bench.run import system

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    device = "cpu" if found is None else found.type
    if probe.device not in ("auto", device, "cpu"):
        probe.fault(f"--device is {probe.device}, and torch finds {device} here.")
        return
    device = "cpu" if probe.device == "cpu" else device
    described = system.describe()
    probe.say(
        device=device,
        accelerator=None if device == "cpu" else _name(device),
        accelerators=0 if device == "cpu" else torch.accelerator.device_count(),
        processor=described["processor"],
        cores=system.cores(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda if device == "cuda" else None,
        hip=torch.version.hip if device == "cuda" else None,
    )


def _name(device: str) -> str:
    """Name of the first accelerator; its type where torch knows no name."""
    import torch

    named = getattr(getattr(torch, device, None), "get_device_name", None)
    return str(named(0)) if named is not None else device


def facts(probe: Probe) -> None:
    """The machine and its versions."""
    import torch

    from train_bench.run import system

    described = system.describe()
    with contextlib.suppress(OSError):
        probe.say(shm_bytes=shutil.disk_usage("/dev/shm").total)
    quota = Path("/sys/fs/cgroup/cpu.max")
    probe.say(
        quota=quota.read_text().strip() if quota.is_file() else None,
        memory_bytes=described["memory_bytes"],
        kernel=described["kernel"],
        packages=described["packages"],
    )
    if not probe.cuda:
        return
    properties = torch.cuda.get_device_properties(0)
    probe.say(
        capability=list(torch.cuda.get_device_capability(0)),
        multiprocessors=properties.multi_processor_count,
        gpu_memory_bytes=properties.total_memory,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        cudnn=torch.backends.cudnn.version(),
        nccl=list(torch.cuda.nccl.version()),
    )
    if shutil.which("nvidia-smi") is None:
        return
    answer = run(["nvidia-smi", "--id=0", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader"])
    values = [value.strip() for value in answer.stdout.strip().split(",")]
    if answer.returncode == 0 and len(values) == len(SMI):
        probe.say(nvidia_smi=dict(zip(SMI, values, strict=True)))
    else:
        probe.fault(f"nvidia-smi ended with {answer.returncode}.", answer.stderr or answer.stdout)


def peaks(probe: Probe) -> None:
    """Products by precision and size; rates of the device's memory, its cache and the host link."""
    import torch

    from train_bench.core.job import Precision
    from train_bench.run import microbenchmarks

    device = torch.device(probe.device)
    sides = (4096, 8192, 16384) if probe.gpu else (512,)
    for precision in Precision:
        if precision is Precision.tf32 and not probe.cuda:
            continue
        torch.set_float32_matmul_precision("high" if precision is Precision.tf32 else "highest")
        dtype = microbenchmarks.DTYPES.get(precision, torch.float32)
        best = 0.0
        for side in sides:
            rate = microbenchmarks.product_rate(side, dtype, device) / 1e12
            best = max(best, rate)
            probe.say(**{f"{precision.value}_{side}_tflops": rate})
        probe.say(**{f"{precision.value}_tflops": best})
    torch.set_float32_matmul_precision("highest")
    size = 2**30 if probe.gpu else 2**24
    probe.say(triad_tb_s=microbenchmarks.triad_rate(size, device) / 1e12)
    one, into = (torch.rand(size // 4, device=device) for _ in range(2))
    probe.say(copy_tb_s=2 * size * microbenchmarks.per_second(lambda: into.copy_(one), device) / 1e12)
    probe.say(l2_triad_tb_s=microbenchmarks.triad_rate(2**22, device) / 1e12)
    if not probe.gpu:
        return
    for kind in ("pageable", "pinned") if probe.cuda else ("pageable",):
        to, back = microbenchmarks.link_rates(2**28, device, pinned=kind == "pinned")
        probe.say(**{f"h2d_{kind}_gb_s": to / 1e9, f"d2h_{kind}_gb_s": back / 1e9})


def train(probe: Probe, benchmark: str, *words: str, name: str = "run") -> dict[str, Any]:
    """One run of a campaign, on a CPU for some seconds: figures of its entry."""
    output, to = probe.folder / name, probe.folder / f"{name}.json"
    shutil.rmtree(output, ignore_errors=True)
    to.unlink(missing_ok=True)
    if not probe.gpu:
        words = (*words, f"max_minutes={MINUTES_ON_A_CPU}")
    fixed = (f"device={probe.device}", "runs=1", "seed=1", f"output={output}")
    began = time.perf_counter()
    answer = run([*PROGRAM, "run", f"benchmark={benchmark}", *fixed, *words, "--to", to])
    numbers: dict[str, Any] = {"wall_seconds": time.perf_counter() - began, "exit_code": answer.returncode}
    if not to.is_file():
        probe.fault(
            f"{benchmark}: train-bench run ended with {answer.returncode} and without a score.",
            answer.stdout + answer.stderr,
        )
        return numbers
    (entry,) = json.loads(to.read_text())["entries"]
    (found,) = entry["runs"]
    wanted = ("status", "minutes", "quality", "samples", "samples_per_second")
    numbers |= {key: found.get(key) for key in (*wanted, "peak_host_bytes", "peak_device_bytes")}
    numbers |= {key: entry.get(key) for key in ("target", "energy", "energy_reason", "reasons")}
    joules = (entry.get("energy") or {}).get("joules")
    if joules and found["samples"]:
        numbers["joules_per_sample"] = joules / found["samples"]
    if probe.gpu and found["status"] != "success":
        probe.fault(
            f"{benchmark}: the run ended as {found['status']} at quality {found['quality']}.",
            answer.stdout + answer.stderr,
        )
    return numbers


def one_run(probe: Probe) -> None:
    """A run to the target in bf16, with energy."""
    probe.say(**train(probe, probe.benchmark, "precision=bf16", "energy=auto"))


def compiled(probe: Probe) -> None:
    """A run of the compiled model."""
    words = ("benchmark.compile=true", *(("precision=bf16",) if probe.gpu else ()))
    probe.say(**train(probe, probe.benchmark, *words))


def precisions(probe: Probe) -> None:
    """Runs of ResNet from one seed in each precision, and the largest ratio of samples to the target."""
    samples = []
    for precision in ("bf16", "fp16", "tf32", "fp32") if probe.gpu else ("bf16", "fp32"):
        found = train(probe, probe.benchmark, f"precision={precision}", name=precision)
        probe.say(**{precision: found})
        if found.get("status") == "success":
            samples.append(found["samples"])
    if samples:
        probe.say(largest_samples_ratio=max(samples) / min(samples))


def profile(probe: Probe) -> None:
    """Profile of a step in bf16."""
    output = probe.folder / "profile"
    shutil.rmtree(output, ignore_errors=True)
    few = ("--steps", "10" if probe.gpu else "2", "--rounds", "2")
    words = (f"benchmark={probe.benchmark}", f"device={probe.device}", "precision=bf16", "seed=1")
    answer = run([*PROGRAM, "profile", *words, *few, f"output={output}"])
    path = output / "profile.json"
    if not path.is_file():
        probe.fault(f"train-bench profile ended with {answer.returncode}.", answer.stdout + answer.stderr)
        return
    probe.say(**_figures(json.loads(path.read_text())))


def _figures(content: dict[str, Any]) -> dict[str, Any]:
    """Figures of a profile."""
    waits = sum(row["seconds"] for row in content["waterfall"] if row["kind"] == "input")
    compute = content["compute"]
    return {
        "batch": content["global_batch_size"],
        "threads": content["threads_per_rank"],
        "step_ms": 1000 * content["step"]["seconds"],
        "samples_per_second": content["step"]["samples_per_second"],
        "share_of_peak": compute["share_of_peak"],
        "share_of_data_sheet": compute["share_of_data_sheet"],
        "mfu": compute["mfu"],
        "tflop_of_step": compute["flop_of_step"] / 1e12,
        "peak_tflops": content["peak"]["flop_per_second"] / 1e12,
        "wait_share": waits / content["window"]["training_seconds"],
        "evaluation_seconds": content["window"]["evaluation_seconds"],
        "memory": {key: value for key, value in content["memory"].items() if value is not None},
        "shares": {
            row["name"]: round(row["share"], 4) for row in content["waterfall"] if row["share"] > 0.01
        },
        "sentence": content["answer"]["sentence"],
        "notes": content["notes"],
        "kernels": content["kernels"][:10],
        **content["device_calls"],
    }


def nccl(probe: Probe) -> None:
    """A process group of one rank over NCCL with a device of its own, and its first exchanges."""
    import torch
    from torch import distributed

    from train_bench.core import rank_messages

    began = time.perf_counter()
    meeting = probe.folder / "meeting"
    meeting.unlink(missing_ok=True)
    distributed.init_process_group(
        "nccl", init_method=f"file://{meeting}", rank=0, world_size=1, device_id=torch.device("cuda:0")
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
    """Messages when the device's memory runs out, and when a rank stops."""
    if probe.cuda:
        large = ("benchmark.hyperparameters.global_batch_size=65536", "device=cuda", "precision=bf16")
        output = probe.folder / "too_large"
        shutil.rmtree(output, ignore_errors=True)
        answer = run([*PROGRAM, "run", f"benchmark={probe.benchmark}", *large, "runs=1", f"output={output}"])
        said = (answer.stdout + answer.stderr)[-1200:]
        probe.say(out_of_memory={"exit_code": answer.returncode, "said": said})
        if answer.returncode == 0:
            probe.fault("A global batch of 65,536 was trained, so memory did not run out.")
    found = _stopped_rank(probe)
    probe.say(stopped_rank=found)
    if not found["stopped"] or "heartbeat" not in found["said"]:
        probe.fault("A rank was stopped and the run did not say so.", found["said"])


def _stopped_rank(probe: Probe) -> dict[str, Any]:
    """A run whose rank is stopped on the clock."""
    output = probe.folder / "stopped"
    shutil.rmtree(output, ignore_errors=True)
    words = (f"device={probe.device}", "runs=1", "seed=1", f"output={output}", "stall_limit_seconds=8")
    began = time.perf_counter()
    running = subprocess.Popen(
        [*PROGRAM, "run", f"benchmark={probe.benchmark.replace('_midi', '_mini')}", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=ending_with_parent(signal.SIGTERM),
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


RECORD_EPOCHS = 10
"""Epochs of the record attempt: airbench94 takes 9.9 of them to 94 % of CIFAR-10."""


def record(probe: Probe) -> None:
    """Seconds of epochs over 50,000 images of 32 pixels that lie on the device as uint8, shifted and mirrored there,
    by a residual network of 4.7 million weights in bf16 with momentum SGD; under CUDA the whole step is a graph.

    The images are noise, so no accuracy is reached: it is the time that a record on CIFAR-10 has to beat.
    """

    batch, total = 1000, 50_000
    step = _cifar_step(probe, batch, total)
    steps = total // batch
    replay: Callable[[], object] = captured(step) if probe.cuda else step
    replay()
    probe.synchronize()
    began = time.perf_counter()
    for _ in range(RECORD_EPOCHS * steps):
        replay()
    probe.synchronize()
    seconds = time.perf_counter() - began
    probe.say(
        epochs=RECORD_EPOCHS,
        seconds=seconds,
        images_per_second=RECORD_EPOCHS * total / seconds,
        graphed=probe.cuda,
        accuracy=None,
        airbench94_seconds=2.59,
    )


def captured(step: Callable[[], object]) -> Callable[[], None]:
    """Replay of a step as a CUDA graph. It has run on a stream of its own only, so that no tensor of the default stream
    is captured."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay


def _cifar_step(probe: Probe, batch: int, total: int) -> Callable[[], object]:
    """A step that draws its batch on the device."""
    import torch
    from torch import nn

    device = probe.device
    torch.manual_seed(1)
    images = torch.randint(0, 256, (total, 3, 36, 36), dtype=torch.uint8, device=device)
    labels = torch.randint(0, 10, (total,), device=device)
    model = nn.Sequential(*_cifar_layers()).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    corner = torch.arange(32, device=device)

    def step() -> object:
        chosen = torch.randint(0, total, (batch,), device=device)
        shift = torch.randint(0, 5, (2, batch, 1), device=device)
        rows, columns = shift[0] + corner, shift[1] + corner
        turned = torch.rand(batch, 1, device=device) < 0.5
        columns = torch.where(turned, columns.flip(1), columns)
        colours = torch.arange(3, device=device)[None, :, None, None]
        cropped = images[
            chosen[:, None, None, None], colours, rows[:, None, :, None], columns[:, None, None, :]
        ]
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False):
            inputs = cropped.to(torch.bfloat16).div(64).sub(2).contiguous(memory_format=torch.channels_last)
            loss = nn.functional.cross_entropy(model(inputs).float(), labels[chosen], label_smoothing=0.2)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _cifar_layers() -> Iterator[Any]:
    """Three blocks of 64, 256 and 512 channels, halved in between, and the classifier."""
    from torch import nn

    yield from (nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.GELU())
    for inputs, outputs in ((64, 128), (128, 256), (256, 512)):
        yield from (nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.MaxPool2d(2))
        yield from (nn.BatchNorm2d(outputs), nn.GELU())
        yield from (nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.GELU())
    yield from (nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(512, 10))


PROBES: dict[str, Callable[[Probe], None]] = {
    "identity": identity,
    "facts": facts,
    "peaks": peaks,
    "run": one_run,
    "profile": profile,
    "compiled": compiled,
    "precisions": precisions,
    "nccl": nccl,
    "messages": messages,
    "record": record,
}


if __name__ == "__main__":
    process.main(PROBES)
