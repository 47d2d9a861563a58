"""Plan of a campaign, for a terminal. Takes the object that `plan --json` prints; computes no more than its reader
would."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from train_bench.report.console import print_line
from train_bench.report.listing import in_its_own_words


def show(plan: Mapping[str, Any], console: Console) -> None:
    """A line per fact, then the exact commands, the user's own programs that they start, and the files."""
    about = in_its_own_words(plan["about"] or "")
    print_line(console, f"{plan['variant']} under {plan['ruleset']}{': ' if about else ''}{about}")
    for name, fact in _facts(plan):
        print_line(console, f"{name:11} {fact}", column=12)
    for command in (*plan["commands"], *plan["programs"], *plan["join"]):
        _say(console, command)
    for name, text in plan["files"].items():
        _say(console, f"{name}:")
        _say(console, text.rstrip("\n"))


def _facts(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    shared, needed, runs = plan["shared"], plan["runs_required"], len(plan["jobs"])
    yield "target", plan["target"]
    yield "runs", str(runs) if runs >= needed else f"{runs}; a result needs {needed}"
    yield "seeds", _seeds(plan)
    yield "training", _training(shared)
    yield "evaluation", _evaluation(shared)
    yield "ranks", _ranks(shared)
    if plan["rank_cores"] is not None:
        yield "cores", _cores(plan["rank_cores"])
    if plan["memory"] is not None:
        yield "memory", plan["memory"]
    slow = f"; {plan['advice']}" if plan["advice"] else ""
    yield "numerics", f"{shared['precision']} on device={shared['device']}{slow}"
    if shared["command"] is not None:
        yield "command", f"{shlex.join(shared['command']['argv'])} in {shared['command']['cwd']}"
    if shared["stop_when"] is not None:
        yield "budget", f"a run stops as not converged when {shared['stop_when']}"
    if shared["checkpoint_seconds"] is not None:
        killed = f", and injected faults: {shared['faults']}" if shared["faults"] else ""
        grace = f"{shared['grace_seconds']:g} s for one after a warning"
        yield (
            "checkpoints",
            f"every {shared['checkpoint_seconds']:g} s or more, after an evaluation; {grace}{killed}",
        )
    yield "data", plan["data"]
    yield "time", plan["time"]
    yield "folder", plan["folder"]
    if plan["changes"]:
        yield "changes", f"{', '.join(plan['changes'])} (another task: does not count as {plan['benchmark']})"


def _seeds(plan: Mapping[str, Any]) -> str:
    if plan["seeds"] == "entropy":
        return "drawn from the operating system's entropy at the start of the campaign"
    return f"from seed={plan['request']['seed']}: {', '.join(str(job['seed']) for job in plan['jobs'])}"


def _training(shared: Mapping[str, Any]) -> str:
    hyperparameters, ranks = shared["config"]["hyperparameters"], shared["nodes"] * shared["nproc_per_node"]
    together = shared["launcher_config"].get("tensor_parallel", 1)
    batch, parts = hyperparameters["global_batch_size"], hyperparameters["gradient_accumulation_steps"]
    if shared["command"] is not None:
        return f"global batch {batch}, divided by the command"
    accumulated = f" x {parts} micro-batches" if parts > 1 else ""
    samples = shared["schedule"]["samples_per_unit"]
    epoch = f"; an epoch is {samples} samples, {samples / batch:.4g} steps" if samples > 1 else ""
    divided = f"{ranks} rank(s)" if together == 1 else f"{ranks // together} group(s) of {together} ranks"
    each = batch * together // (ranks * parts)
    return f"global batch {batch} = {divided} x {each} samples{accumulated}{epoch}"


def _evaluation(shared: Mapping[str, Any]) -> str:
    schedule, unit = shared["schedule"], shared["unit"]
    first, period, until = (schedule[name] for name in ("first", "period", "until"))
    count = int((until - first) / period + 1e-9) + 1
    return f"at {unit} {first:g}, then every {period:g}, to the target or {unit} {until:g}: at most {count}"


def _ranks(shared: Mapping[str, Any]) -> str:
    threads = shared["threads_per_rank"]
    own = "" if shared["command"] is None else ", threads chosen by the command"
    each = f", {threads} thread(s) each" if threads else own
    return f"{shared['launcher']}: {shared['nodes']} host(s) x {shared['nproc_per_node']} rank(s){each}"


def _cores(each: Mapping[str, Any]) -> str:
    known = "those of each rank, known when it starts" if each["cores"] is None else f"{each['cores']} a rank"
    threads = f"; {each['threads']} thread(s)" if each["threads"] else ""
    loaders = each["loader_processes"]
    counts = f"; {loaders['cuda']} loader process(es) on a GPU, {loaders['cpu']} on a CPU" if loaders else ""
    return f"{known}{threads}{counts}"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
