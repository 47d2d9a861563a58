"""Manifest of a campaign: from its configuration to a JobSet or a TrainJob as plain data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.errors import Resumable
from train_bench.launchers.kubernetes.config import Config, Kind
from train_bench.launchers.kubernetes.pod_spec import NODE, given, pod_spec

INSTANCE = "app.kubernetes.io/instance"
"""Label of all objects of a campaign, with their common name."""

RESOURCES = {Kind.jobset: "jobsets.jobset.x-k8s.io", Kind.trainjob: "trainjobs.trainer.kubeflow.org"}

LONGEST_NAME = 45
"""Names of pods add `-node-0-` and a number; that of a host has at most 63 characters."""

PATCHED = (
    *("affinity", "imagePullSecrets", "initContainers", "nodeSelector", "schedulingGates", "securityContext"),
    *("serviceAccountName", "terminationGracePeriodSeconds", "tolerations", "volumes"),
)
"""Fields of a pod's spec that the `runtimePatches` of a TrainJob may have, besides those of its containers."""

OF_TRAINER = ("image", "command", "args", "env")
"""Fields of a container that are fields of the trainer of a TrainJob."""

OF_CONTAINER = ("securityContext", "volumeMounts")

LEFT_TO_RUNTIME = {"restartPolicy", "automountServiceAccountToken"}
"""Fields that the runtime of a TrainJob decides, and that a campaign can do without."""


def job_name(benchmark: str, folder: Path) -> str:
    """Name of the objects of a campaign, the same at each submission: `resnet-mini-c` of a campaign in `c`."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{benchmark}-{folder.name}".lower()).strip("-")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def manifest(config: Config, name: str, words: Sequence[str]) -> dict[str, Any]:
    """The object whose pods carry out `words` of `train-bench run` in their folder of the campaign."""
    queue, topology = config.queue, config.topology
    kind, version, spec_of = OBJECTS[config.kind]
    by_jobset = topology if queue is None else None
    by_queue = topology if queue is not None else None
    metadata = given(
        name=name,
        labels={INSTANCE: name} | given({"kueue.x-k8s.io/queue-name": queue}),
        namespace=config.namespace,
        annotations=given({"alpha.jobset.sigs.k8s.io/exclusive-topology": by_jobset}) or None,
    )
    of_pod = given(
        labels={INSTANCE: name},
        annotations=given({"kueue.x-k8s.io/podset-required-topology": by_queue}) or None,
    )
    pod = {"metadata": of_pod, "spec": pod_spec(config, name, words)}
    spec = given(suspend=True if queue is not None else None) | spec_of(config, name, pod)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def beyond_a_train_job(config: Config) -> list[str]:
    """Fields of the pods that a TrainJob cannot have."""
    spec = pod_spec(config, "name", ())
    (container,) = (one for one in spec["containers"] if one["name"] == NODE)
    kept = {"name", "resources", "terminationMessagePolicy", *OF_TRAINER, *OF_CONTAINER}
    fields = sorted({*spec} - {"containers", *PATCHED, *LEFT_TO_RUNTIME})
    further = [one["name"] for one in spec["containers"] if one["name"] != NODE]
    return [*fields, *(f"{NODE}.{key}" for key in container if key not in kept), *further]


def _job_set(config: Config, name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """A JobSet of one indexed Job. A job of which a pod fails has failed. One of which a pod is disrupted, or ends
    because another was, has failed by its policy; all pods are restarted then, without a count, and the campaign
    continues, where a volume holds its folder."""
    lasting, interrupted = config.shares_folder, Resumable.exit_code
    preempted = {
        "name": "preempted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    job = {
        "completionMode": "Indexed",
        "parallelism": config.nodes,
        "completions": config.nodes,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": NODE, "operator": "In", "values": [interrupted]},
                },
            ]
        },
        "template": pod,
    }
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "failurePolicy": {"maxRestarts": 0, **({"rules": [preempted]} if lasting else {})},
        "replicatedJobs": [{"name": NODE, "replicas": 1, "template": {"spec": job}}],
    }


def _train_job(config: Config, _name: str, pod: Mapping[str, Any]) -> dict[str, Any]:
    """A TrainJob: what its trainer says, and the rest as patches of its runtime."""
    spec = pod["spec"]
    (container,) = (one for one in spec["containers"] if one["name"] == NODE)
    trainer = {key: container[key] for key in OF_TRAINER} | given(
        numNodes=config.nodes, resourcesPerNode=container.get("resources")
    )
    patched = {
        **{key: spec[key] for key in PATCHED if key in spec},
        "containers": [{"name": NODE, **{key: container[key] for key in OF_CONTAINER}}],
    }
    job = {"spec": {"template": {"metadata": pod["metadata"], "spec": patched}}}
    jobs = {"replicatedJobs": [{"name": NODE, "template": job}]}
    return {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": config.runtime,
        },
        "trainer": trainer,
        "runtimePatches": [
            {"manager": "train-bench/launcher", "trainingRuntimeSpec": {"template": {"spec": jobs}}}
        ],
    }


OBJECTS: dict[Kind, tuple[str, str, Callable[..., dict[str, Any]]]] = {
    Kind.jobset: ("JobSet", "jobset.x-k8s.io/v1alpha2", _job_set),
    Kind.trainjob: ("TrainJob", "trainer.kubeflow.org/v1alpha1", _train_job),
}
"""Kind of each object, its version, and its spec."""
