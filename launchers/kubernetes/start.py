"""torchrun inside the pods: one agent per pod."""

from __future__ import annotations

import re
from collections.abc import Mapping

from train_bench.core.job import Job
from train_bench.launcher import Death, Launch
from train_bench.launchers.kubernetes.config import Config, Kind
from train_bench.launchers.kubernetes.manifest import beyond_a_train_job
from train_bench.launchers.parts.threads import thread_variables
from train_bench.launchers.torchrun.config import Config as TorchrunConfig
from train_bench.launchers.torchrun.start import Launcher as TorchrunLauncher
from train_bench.task import BenchmarkConfig

WORD = r"[A-Za-z0-9]([\w./:-]*[A-Za-z0-9])?"
PATH = r"/[\w./-]*\w"
QUANTITY = r"[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?"
IMAGE = r"[A-Za-z0-9][^\s]*"

SHAPES = {
    "image": (IMAGE, "the name of an image"),
    "folder": (PATH, "an absolute path without blanks"),
    "prepare": (PATH, "an absolute path without blanks"),
    "stage_from": (PATH, "an absolute path without blanks"),
    "shm": (QUANTITY, "a quantity such as 16Gi"),
    "queue": (WORD, "the name of a local queue"),
    "topology": (WORD, "the key of a node label, such as cloud.google.com/gke-nodepool"),
    "runtime": (WORD, "the name of a ClusterTrainingRuntime"),
    "namespace": (WORD, "the name of a namespace"),
    "context": (r"[^\s-][^\s]*", "the name of a context"),
    "volumes": (f"{WORD}:{PATH}", "CLAIM:/PATH, such as results:/results"),
    "secrets": (WORD, "the name of a secret"),
    "resources": (rf"{WORD}={QUANTITY}", "NAME=QUANTITY, such as cpu=8 or memory=1Ti"),
}


class Launcher:
    """Runs the ranks of one pod. For the pods see `batch.py`."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Refuse invalid numbers and malformed options of the manifest."""
        config = self.config
        for name in ("nodes", "nproc_per_node", "grace_seconds", "at_once"):
            number = getattr(config, name)
            if number is not None and number < 1:
                return f"launcher.{name} is {number}; it has to be at least 1."
        if not 1 <= config.master_port < 65535:
            return f"launcher.master_port is {config.master_port}; allowed are 1 to 65534."
        return _refuse_shapes(config) or _refuse_together(config) or config.refuse_division(benchmark)

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """torchrun's agent of this pod; where ranks meet is known in the pods alone (`agent.py`)."""
        agent = ("-m", "train_bench.launchers.kubernetes.agent", *rank_argv[-2:])
        return Launch(argv=(rank_argv[0], *agent), env=thread_variables(job))

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """As torchrun names them."""
        return TorchrunLauncher(TorchrunConfig()).deaths(exit_code, stderr)


def _refuse_shapes(config: Config) -> str | None:
    for name, (pattern, allowed) in SHAPES.items():
        value = getattr(config, name)
        for item in value if isinstance(value, list) else [value]:
            if item is not None and not re.fullmatch(pattern, item, re.ASCII):
                return f"launcher.{name} has {item!r}; it has to be {allowed}."
    return None


def _refuse_together(config: Config) -> str | None:
    if config.pod is not None and not isinstance(config.pod, Mapping):
        return f"launcher.pod is {config.pod!r}; it has to be fields of a pod, as {{nodeSelector: {{disk: nvme}}}}."
    if config.image is None:
        return "launcher=kubernetes needs launcher.image=IMAGE, an image in which `python -m train_bench` starts."
    if config.prepare is not None and config.kind is Kind.trainjob:
        return "launcher.prepare is for launcher.kind=jobset; the runtime of a TrainJob has an initializer of its own."
    if config.at_once is not None and (config.nodes > 1 or config.kind is Kind.trainjob):
        return (
            f"launcher.at_once={config.at_once} is for runs on one host each and launcher.kind=jobset; launcher.nodes="
            f"{config.nodes} and launcher.kind={config.kind.value} were requested."
        )
    further = beyond_a_train_job(config) if config.kind is Kind.trainjob else []
    if further:
        return (
            f"A TrainJob cannot have {', '.join(further)} of its pods; leave it to the runtime (launcher.runtime), or "
            "use launcher.kind=jobset."
        )
    return None
