"""Options of `launcher=kubernetes`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from train_bench.launchers.parts.sharding import ShardingConfig


class Kind(str, Enum):
    """Object that has the pods. `jobset`: JobSet v1alpha2. `trainjob`: TrainJob v1alpha1 of Kubeflow Trainer 2.2 or
    newer."""

    jobset = "jobset"
    trainjob = "trainjob"


@dataclass(slots=True, kw_only=True)
class Config(ShardingConfig):
    """Options of the manifest and of kubectl; null leaves a choice to the cluster. A pod is a host.

    kind           jobset or trainjob
    at_once        number of runs on one host each that are carried out at the same time, every one by a pod of its own;
                   null: one after the other by the same pods
    image          image of the pods; its `python` finds train_bench
    resources      resources of each pod, requests and limits alike: `[cpu=96,memory=1Ti,nvidia.com/gpu=8]`
    volumes        persistent volume claims of the pods, `CLAIM:/PATH` each
    prepare        path in the pods of a data set as it is distributed, from which a Job of one pod prepares data_dir
                   before the others start; null: the first pod prepares what needs no such set
    stage_from     path in the pods of prepared data on a volume, which each pod copies to data_dir, on the disk of its
                   node, before it starts; null: data_dir is read where it is
    folder         folder in the pods below which campaigns write; it outlives them on a volume
    shm            size limit of /dev/shm, which is memory of the pod; null: what plan --dry computes, if it is known
    queue          local queue of Kueue, which admits all pods together
    topology       node label whose values are topology domains; all pods are in one, with a queue by its topology
    host_network   pods have the network of their hosts
    grace_seconds  time that a pod has to end after SIGTERM; null: 60, and 30 more than grace_seconds= for runs with
                   checkpoints
    secrets        secrets whose keys are environment variables of the pods
    pod            fields of the pod's spec, merged over those of the manifest, as `{nodeSelector: {disk: nvme}}`; items
                   of lists by their names
    runtime        (trainjob) ClusterTrainingRuntime, with a replicated job `node` that has a container `node`
    namespace      --namespace of kubectl
    context        --context of kubectl
    wait           stay until the job has ended, collect, and show the score, instead of returning once it is created
    master_port    port of host 0 for the rendezvous; without a volume it uses the next one, too
    node_rank      number of this pod; set in the pods alone
    """

    name: str = "kubernetes"
    kind: Kind = Kind.jobset
    at_once: int | None = None
    image: str | None = None
    resources: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    prepare: str | None = None
    stage_from: str | None = None
    folder: str = "/results"
    shm: str | None = None
    queue: str | None = None
    topology: str | None = None
    host_network: bool = False
    grace_seconds: int | None = None
    secrets: list[str] = field(default_factory=list)
    pod: Any = None
    runtime: str = "torch-distributed"
    namespace: str | None = None
    context: str | None = None
    wait: bool = True
    master_port: int = 29500
    node_rank: int = 0

    RESTARTS: ClassVar[bool] = True
    SHARED_MEMORY: ClassVar[str | None] = "shm"

    @property
    def joining(self) -> tuple[str, ...]:
        """Overrides for every pod but the first: its number."""
        return tuple(f"launcher.node_rank={rank}" for rank in range(1, self.nodes))

    @property
    def rank_cores(self) -> int | None:
        """Those of a pod, divided among its ranks."""
        quantity = self.quantities.get("cpu", "")
        whole = quantity.removesuffix("m")
        if not whole.isdecimal():
            return None
        cores = int(whole) // (1000 if quantity.endswith("m") else 1)
        return max(1, cores // self.nproc_per_node)

    @property
    def cannot_continue(self) -> str | None:
        """Checkpoints are on a volume that all pods share."""
        if not self.mirrors:
            return None
        return f"Pods continue from checkpoints in the folder that they share, and none is at {self.folder}"

    @property
    def mounts(self) -> dict[str, str]:
        """Paths in the pods, and the claims that are mounted there."""
        return {path: claim for claim, _, path in (one.partition(":") for one in self.volumes)}

    @property
    def quantities(self) -> dict[str, str]:
        """Resources of each pod by their names."""
        return {name: quantity for name, _, quantity in (one.partition("=") for one in self.resources)}

    @property
    def mirrors(self) -> bool:
        """True if several pods have no folder in common, and each has a mirror of it."""
        return self.nodes > 1 and not self.shares_folder

    @property
    def shares_folder(self) -> bool:
        """True if a volume holds the folder of campaigns, which outlives the pods then."""
        return self.keeps(self.folder)

    def keeps(self, folder: str) -> bool:
        """True if a volume holds a folder in the pods."""
        return any(f"{folder}/".startswith(f"{path.rstrip('/')}/") for path in self.mounts)
