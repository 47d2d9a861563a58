"""Check a fleet by training: the same job with the same seed on every node, then on pairs and on all together; the node
that is slow, computes wrongly, has other versions or another time is named.

  train-bench accept benchmark=resnet_mini NODE ... output=DIR

NODE is a name, or NAME:ADDRESS where others reach it by another. DIR lies where all nodes see it, and train_bench is
installed on each as it is here.
"""

from __future__ import annotations

import argparse
import hashlib
import ipaddress
import itertools
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from train_bench import __version__
from train_bench.campaign import refusals
from train_bench.campaign.opened import Campaign
from train_bench.cli import composing
from train_bench.cli.composing import Answer
from train_bench.cli.conclude import say
from train_bench.cli.exit_codes import CANNOT_TELL, INVALID, VALID
from train_bench.cli.hydra_app import SWEEPING
from train_bench.cli.overrides import WITH_VALUES
from train_bench.core import files
from train_bench.core.job import Device, Precision
from train_bench.errors import RequestError
from train_bench.fleet import acceptance, baseline, rounds, verdict
from train_bench.fleet.observations import Node, Together
from train_bench.fleet.verdict import Verdict
from train_bench.plan import discover
from train_bench.plan.option import with_folder
from train_bench.plan.plan import Plan
from train_bench.plan.request import Request
from train_bench.report import accept as report
from train_bench.report.console import print_line
from train_bench.report.page.write import write_acceptance

NAME = re.compile(r"([\w][\w.@-]*)(?::(?:\[([\w.:-]+)\]|([\w.:-]+)))?")

USUAL_NOISE = {"processors": 0.04, "accelerators": 0.01}
"""Least deviation of ln(time) that is believed of machines that are alike, unless `--noise` says it: virtual machines
have 0.04 at best, accelerators of one's own less than their clocks differ."""

LIMIT, LIMIT_SECONDS = "start_limit_seconds", 120.0
"""Option of the time that a node may take to answer, and nodes to find each other, and its default."""

DETERMINISTIC = "deterministic"

OF_ACCEPTANCE = ("output", "seed", "runs", "benchmark.evaluation.until", DETERMINISTIC, LIMIT)
"""Options of the trainings that follow from the acceptance."""

EXIT_CODES = {verdict.GOOD: VALID, verdict.SICK: INVALID, verdict.CANNOT_TELL: CANNOT_TELL}


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    options, others = composing.parse(_parser(), arguments)
    overrides, named = _parted(others)
    _refuse(options, overrides)
    nodes = _nodes(named)
    return composing.with_request(
        "accept", options, overrides, lambda request: _accept(request, nodes, options)
    )


def _parted(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Overrides, and the names of nodes."""
    overrides, named = [], []
    following = iter(words)
    for word in following:
        if word in WITH_VALUES:
            overrides += [word, *itertools.islice(following, 1)]
        elif "=" in word or word.startswith("-"):
            overrides.append(word)
        else:
            named.append(word)
    return overrides, named


def _parser() -> composing.OverrideParser:
    parser = composing.OverrideParser("accept", page=True)
    parser.add_argument(
        "--by",
        default="ssh -o BatchMode=yes {node}",
        metavar="COMMAND",
        help="what runs a program on a node: 'ssh {node}' or 'srun --nodes=1 --ntasks=1 --nodelist={node}'; ssh "
        "without it",
    )
    parser.add_argument("--against", type=Path, metavar="FILE", help="accept.json of an earlier acceptance")
    parser.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="the page, and the same as .json; default: DIR/accept.html",
    )
    parser.add_argument(
        "--at-once", type=int, metavar="NUMBER", help="how many nodes train at the same time; all without it"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        metavar="NUMBER",
        help="trainings of each node by itself; 3 without it",
    )
    parser.add_argument(
        "--blocks", type=int, default=4, metavar="NUMBER", help="up to which evaluation they go; 4 without it"
    )
    parser.add_argument(
        "--noise",
        type=float,
        metavar="PERCENT",
        help="by how much times of machines that are alike vary at least (standard deviation); without it 1 on "
        "accelerators, else 4",
    )
    parser.add_argument(
        "--interface", metavar="NAME", help="network interface of the nodes for trainings together"
    )
    parser.add_argument("--alone", action="store_true", help="no trainings together")
    return parser


def _refuse(options: argparse.Namespace, overrides: Sequence[str]) -> None:
    for name in ("at_once", "repeats", "blocks"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise RequestError(f"--{name.replace('_', '-')} is {value}; it is at least 1.")
    if options.noise is not None and not 0 < options.noise <= 50:
        raise RequestError(f"--noise is {options.noise:g}; it is above 0 and at most 50 (percent).")
    if options.to is not None and (options.to.suffix != ".html" or options.to.is_dir()):
        raise RequestError(f"--to is '{options.to}'; give the name of a page, for example fleet.html.")
    if (
        options.to is not None
        and options.against is not None
        and files.resolved(options.against) == files.resolved(options.to.with_suffix(".json"))
    ):
        raise RequestError(f"--to {options.to} would write over {options.against}; give another name.")
    if options.to is not None:
        composing.refuse_file(options.to.with_suffix(".json"))
    try:
        shlex.split(options.by)
    except ValueError as error:
        raise RequestError(f"--by is '{options.by}', which is no command ({error}).") from error
    if "{node}" not in options.by:
        raise RequestError(
            f"--by is '{options.by}'; it names the node as {{node}}, for example 'ssh {{node}}'."
        )
    if not SWEEPING.isdisjoint(overrides):
        raise RequestError("A fleet is checked by one benchmark at a time; leave --multirun out.")


def _is_ipv6(word: str) -> bool:
    try:
        return ipaddress.ip_address(word).version == 6 and "%" not in word
    except ValueError:
        return False


def _nodes(words: Sequence[str]) -> list[Node]:
    nodes = []
    for word in words:
        address = word.removeprefix("[").removesuffix("]")
        if _is_ipv6(address):
            nodes.append(Node(name=address, address=address))
            continue
        named = NAME.fullmatch(word)
        if named is None:
            raise RequestError(
                f"'{word}' is no node; give NAME, NAME:ADDRESS or an IPv6 address, of letters, digits and . _ - @ :."
            )
        nodes.append(Node(name=named[1], address=named[2] or named[3] or named[1].rpartition("@")[2]))
    names = [node.name for node in nodes]
    if not names or len(set(names)) < len(names):
        raise RequestError(
            f"Name each node of the fleet once, for example n1 n2 n3; given: {' '.join(names) or 'none'}."
        )
    return nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The words of `train-bench` that train on a node, or on several."""

    request: Request
    blocks: int
    interface: str | None

    def alone(self, folder: Path) -> list[str]:
        """As requested."""
        return ["run", *self.words(), with_folder("output", folder)]

    def words(self) -> list[str]:
        """Words that are the same on all nodes."""
        names = [word for word in self.request.overrides if word.partition("=")[0] not in OF_ACCEPTANCE]
        return [*self.request.config_dir, *names, *self.decided(self.request)]

    def together(self, addresses: Sequence[str], folder: Path) -> list[list[str]]:
        """With the same batch on each rank as alone; by torchrun, which the others join."""
        config = self.request.config
        batch = config.benchmark.hyperparameters.global_batch_size * len(addresses)
        hyperparameters = replace(config.benchmark.hyperparameters, global_batch_size=batch)
        several = replace(config, benchmark=replace(config.benchmark, hyperparameters=hyperparameters))
        kept = [word for word in self.request.overrides if not word.startswith("launcher")]
        kept = [word for word in kept if word.partition("=")[0] not in OF_ACCEPTANCE]
        own = [f"launcher.interface={self.interface}"] if self.interface else []
        leading = [
            *("run", *self.request.config_dir, *kept),
            *("launcher=torchrun", f"launcher.nodes={len(addresses)}"),
            f"launcher.nproc_per_node={config.launcher.nproc_per_node}",
            f"launcher.master_addr={addresses[0]}",
            f"benchmark.hyperparameters.global_batch_size={batch}",
            *self.decided(replace(self.request, config=several)),
            *(*own, with_folder("output", folder)),
        ]
        joining = [
            ["join", str(folder), f"launcher.node_rank={rank}", *own] for rank in range(1, len(addresses))
        ]
        return [leading, *joining]

    def decided(self, request: Request) -> list[str]:
        """Decided values: the seed, the length, and the threads of a rank."""
        config, job = request.config, Campaign.planned(request).first
        points = job.schedule.points()
        until = points[min(self.blocks, len(points)) - 1]
        threads = config.launcher.threads_per_rank
        return [
            *(f"seed={config.seed}", "runs=1", f"benchmark.evaluation.until={until}"),
            f"{DETERMINISTIC}={str(config.deterministic).lower()}",
            f"{LIMIT}={config.start_limit_seconds:g}",
            *([] if threads is None else [f"launcher.threads_per_rank={threads}"]),
        ]


def _accept(request: Request, nodes: Sequence[Node], options: argparse.Namespace) -> Answer:
    request = _completed(request)
    campaign = Campaign.planned(request)
    refusals.refuse(campaign, [refusals.packages])
    planned, rules, folder = campaign.plan, campaign.rules, campaign.folder
    training = Training(request=request, blocks=options.blocks, interface=options.interface)
    job = _job(planned, training, options.blocks)
    known = {} if options.against is None else baseline.read(options.against, job["digest"])
    refusals.refuse(campaign, [refusals.folder])
    if len(nodes) > 1 and not options.alone:
        training.together([node.address for node in nodes], folder)  # the rules refuse before anything starts
    ways = rounds.Ways(
        command=shlex.split(options.by),
        program=rounds.program(),
        at_once=options.at_once or len(nodes),
        repeats=options.repeats,
        start_limit=request.config.start_limit_seconds,
        folder=folder,
    )
    with rounds.Fleet(nodes, ways, rules, say) as fleet:
        noise = _noise(options, nodes, request)
        found, together = acceptance.accept(fleet, training, known, noise, in_company=not options.alone)
    document = {
        "train_bench": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "job": job,
        "against": None if options.against is None else str(options.against),
        **_as_json(found, nodes, together),
    }
    to = options.to or folder / "accept.html"
    files.write_json(to.with_suffix(".json"), document)
    write_acceptance(document, to)

    def shown(content: dict[str, Any], console: Console) -> None:
        report.show(content, console)
        print_line(console, f"The page is in {to}, and the same for programs in {to.with_suffix('.json')}.")

    return Answer(code=EXIT_CODES[found.state], content=document, show=shown)


def _completed(request: Request) -> Request:
    """Request with the default seed and folder. Raises `RequestError` for a launcher that nodes cannot run by
    themselves."""
    config = request.config
    if discover.batch(config.launcher) is not None or config.launcher.nodes != 1:
        raise RequestError(
            f"launcher={config.launcher.name} with {config.launcher.nodes} node(s) finds its nodes itself, or queues; "
            f"here each node trains by itself first: choose inline or torchrun, and reach the nodes with --by."
        )
    typed = {word.partition("=")[0] for word in request.overrides}
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    output = config.output or f"results/{now}_accept"
    return replace(
        request,
        config=replace(
            config,
            output=output,
            seed=1 if config.seed is None else config.seed,
            start_limit_seconds=config.start_limit_seconds if LIMIT in typed else LIMIT_SECONDS,
            deterministic=config.deterministic
            if DETERMINISTIC in typed
            else config.precision is not Precision.tf32,
        ),
    )


def _job(planned: Plan, training: Training, blocks: int) -> dict[str, Any]:
    """Training of every node, so that a baseline of something else is known as such."""
    job = planned.jobs[0]
    trained = {
        "config": {name: value for name, value in job.config.items() if name != "data_dir"},
        "target": asdict(job.target),
        "ranks": job.nproc_per_node,
        "launcher": job.launcher,
        "device": job.device.value,
        "precision": job.precision.value,
        "decided": [word for word in training.decided(training.request) if not word.startswith(LIMIT)],
    }
    digest = hashlib.sha256(json.dumps(trained, sort_keys=True).encode()).hexdigest()[:16]
    return {
        "benchmark": planned.variant,
        "blocks": blocks,
        "words": shlex.join(training.words()),
        "digest": digest,
    }


def _noise(options: argparse.Namespace, nodes: Sequence[Node], request: Request) -> float:
    if options.noise is not None:
        return float(options.noise / 100)
    on_accelerators = request.config.device is not Device.cpu and any(node.accelerators for node in nodes)
    return USUAL_NOISE["accelerators" if on_accelerators else "processors"]


def _as_json(found: Verdict, nodes: Sequence[Node], together: Sequence[Together]) -> dict[str, Any]:
    doubtful = {name for one in found.undecided for name in one.nodes}
    return {
        "verdict": found.state,
        "nodes": [
            {
                **{key: value for key, value in asdict(node).items() if key != "trained"},
                "trainings": [asdict(done) for done in node.trained],
                "longer": found.slower.get((node.name,)),
                "verdict": verdict.SICK
                if node.name in found.sick()
                else verdict.CANNOT_TELL
                if node.name in doubtful
                else verdict.GOOD,
                "reasons": [one.sentence for one in found.findings if node.name in one.nodes],
            }
            for node in nodes
        ],
        "together": [{**asdict(one), "longer": found.slower.get(one.nodes)} for one in together],
        "types": [baseline.as_json(kind) for kind in found.types],
        "findings": [asdict(one) for one in found.findings],
        "undecided": [asdict(one) for one in found.undecided],
        "notes": found.notes,
    }
