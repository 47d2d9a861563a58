"""Load of every accelerator of a host at once, which `train-bench accept` starts on each node:

python -m train_bench.gpu_check.load DEVICE PRECISION SECONDS

All of them compute large matrix products for so many seconds, then stream their memory, then copy over the host
link; at last neighbours reduce between them. One that fails, or a pair, leaves the others their figures; figures of a
phase are printed at its end, so that one that hangs leaves those of before. On a CPU sizes are tiny.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial

import torch

from train_bench.core.job import Precision
from train_bench.gpu_check.probe import Probe, run
from train_bench.run import microbenchmarks
from train_bench.run.rank_state import end_process

SIDE = {"cpu": 128, "cuda": 16384}
TRIAD_BYTES = {"cpu": 2**16, "cuda": 2**30}
LINK_BYTES = 2**28
PAIR_BYTES = {"cpu": 2**16, "cuda": 2**28}

SMI = ("uuid", "clocks.sm", "power.draw", "temperature.gpu", "ecc.errors.uncorrected.volatile.total")
"""What nvidia-smi is asked for under load."""

PAIR_SECONDS = 60.0
"""Time limit of the all-reduces of a pair, the first of which opens channels."""

LONGEST_ERROR = 300


@dataclass(slots=True, kw_only=True)
class Loaded:
    """An accelerator under load: its number, name and UUID; `rates` in FLOP and bytes a second; `facts` of its driver
    under load; why it failed."""

    index: int
    name: str
    uuid: str | None
    rates: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    error: str | None = None


def devices(kind: str) -> list[torch.device]:
    """Every visible device of a kind; `auto` is the GPUs, and without any the CPU."""
    count = 0 if kind == "cpu" else torch.cuda.device_count()
    if kind == "cuda" and not count:
        sys.exit("device=cuda, and PyTorch finds no GPU here; look at nvidia-smi.")
    return [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]


def load(
    found: Sequence[torch.device],
    precision: Precision,
    seconds: float,
    say: Callable[[Sequence[Loaded]], None] = lambda rows: None,
) -> list[Loaded]:
    """Load them together, phase by phase; `say` is called with the rows at the end of each."""
    rows = [_described(index, device) for index, device in enumerate(found)]
    torch.set_float32_matmul_precision("high" if precision is Precision.tf32 else "highest")

    def product(device: torch.device) -> dict[str, float]:
        dtype = microbenchmarks.DTYPES.get(precision, torch.float32)
        return {"product": microbenchmarks.settled_product_rate(SIDE[device.type], dtype, device, seconds)}

    def memory(device: torch.device) -> dict[str, float]:
        return {"memory": microbenchmarks.triad_rate(TRIAD_BYTES[device.type], device)}

    def link(device: torch.device) -> dict[str, float]:
        if device.type == "cpu":
            return {}
        to, back = microbenchmarks.link_rates(LINK_BYTES, device, pinned=True)
        return {"to_device": to, "from_device": back}

    with ThreadPoolExecutor(len(found) + 1) as threads:
        asked = threads.submit(_ask_driver, rows, 0.8 * seconds if found[0].type == "cuda" else None)
        for phase in (product, memory, link):
            list(threads.map(partial(_keep, phase), rows, found))
            say(rows)
        asked.result()
    return rows


def pairs(
    found: Sequence[torch.device], rows: Sequence[Loaded], reduce: Callable[[Sequence[torch.Tensor]], None]
) -> list[dict[str, object]]:
    """Bytes a second of an all-reduce between neighbours in a ring; a pair with one that has failed is left out,
    and why a pair fails is noted as the error of both. A pair that hangs is the last one: its accelerators do not
    answer, and NCCL may hold a lock."""
    ring = [(at, (at + 1) % len(found)) for at in range(len(found) if len(found) > 2 else len(found) - 1)]
    measured: list[dict[str, object]] = []
    loaded = {at for at, row in enumerate(rows) if row.error is None}
    for pair in ring:
        if not loaded.issuperset(pair):
            continue
        try:
            rate = _in_time(lambda of=pair: _pair_rate([found[at] for at in of], reduce))  # type: ignore[misc]
        except (RuntimeError, TimeoutError) as error:
            for at, other in (pair, pair[::-1]):
                said = f"all-reduce with {rows[other].index}: {type(error).__name__}: {error}"
                rows[at].error = rows[at].error or said[:LONGEST_ERROR]
            if isinstance(error, TimeoutError):
                break
            continue
        measured.append({"gpus": [rows[at].index for at in pair], "rate": rate})
    return measured


def _pair_rate(pair: Sequence[torch.device], reduce: Callable[[Sequence[torch.Tensor]], None]) -> float:
    size = PAIR_BYTES[pair[0].type]
    with _current(pair[0]):
        tensors = [torch.zeros(size // 4, device=device) for device in pair]
        return size * microbenchmarks.per_second(lambda: reduce(tensors), pair[0])


def _in_time(work: Callable[[], float]) -> float:
    """Result of `work` in a thread, which is left behind where it hangs: then raises `TimeoutError`."""
    done: Future[float] = Future()

    def carry_out() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=carry_out, daemon=True).start()
    try:
        return done.result(PAIR_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"no end within {PAIR_SECONDS:g} s") from None


def _described(index: int, device: torch.device) -> Loaded:
    if device.type == "cpu":
        return Loaded(index=index, name="cpu", uuid=None)
    properties = torch.cuda.get_device_properties(device)
    return Loaded(index=index, name=properties.name, uuid=f"GPU-{getattr(properties, 'uuid', index)}")


def _keep(phase: Callable[[torch.device], dict[str, float]], row: Loaded, device: torch.device) -> None:
    """Figures of a phase, or why it failed, after which the device is left alone."""
    if row.error is not None:
        return
    try:
        with _current(device):
            row.rates |= phase(device)
    except (RuntimeError, OSError) as error:
        row.error = f"{type(error).__name__}: {error}"[:LONGEST_ERROR]


def _current(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Streams and events of a thread are those of its current device."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _ask_driver(rows: Sequence[Loaded], after: float | None) -> None:
    """Clocks, power, temperature and memory errors under load; without nvidia-smi there are none."""
    if after is None:
        return
    time.sleep(after)
    with contextlib.suppress(OSError):
        answer = run(["nvidia-smi", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader"])
        for line in answer.stdout.splitlines():
            values = [value.strip() for value in line.split(",")]
            for row in rows:
                if len(values) == len(SMI) and row.uuid == values[0]:
                    row.facts = dict(zip(SMI[1:], values[1:], strict=True))


def main() -> None:
    """Print the figures as those of a probe."""
    from pathlib import Path

    kind, precision, seconds = sys.argv[1:]
    found = devices(kind)
    probe = Probe(found[0].type, Path())

    def say(rows: Sequence[Loaded], **more: object) -> None:
        probe.say(gpus=[asdict(row) for row in rows], **more)

    rows = load(found, Precision(precision), float(seconds), say)
    between = pairs(found, rows, torch.cuda.nccl.all_reduce) if len(found) > 1 else []
    say(rows, pairs=between)
    end_process()  # a thread that hangs in NCCL would hold up the end of the interpreter


if __name__ == "__main__":
    main()
