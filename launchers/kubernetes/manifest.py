"""Manifest of a campaign: from its configuration to a JobSet or a TrainJob as plain data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.errors import Resumable
from train_bench.launchers.kubernetes.config import Config, Kind
from train_bench.launchers.kubernetes.pod_spec import NODE, PREPARE, given, pod_spec, preparing

INSTANCE = "app.kubernetes.io/instance"
"""Label of all objects of a campaign, with their common name."""

RESOURCES = {Kind.jobset: "jobsets.jobset.x-k8s.io", Kind.trainjob: "trainjobs.trainer.kubeflow.org"}

DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]
"""Conditions of a pod that was preempted or evicted, or whose node is gone."""

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

OF_PATCH = {"name", "env", *OF_CONTAINER}
"""Fields of a container of its runtime that a TrainJob may patch; it cannot add one."""

LEFT_TO_RUNTIME = {"restartPolicy", "automountServiceAccountToken"}
"""Fields that the runtime of a TrainJob decides, and that a campaign can do without."""


def job_name(benchmark: str, folder: Path) -> str:
    """Name of the objects of a campaign, the same at each submission: `resnet-mini-c` of a campaign in `c`."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{benchmark}-{folder.name}".lower()).strip("-")
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 9].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def manifest(
    config: Config, name: str, words: Sequence[str], *, runs: int, benchmark: str, data_dir: str
) -> dict[str, Any]:
    """The object whose pods carry out `words` of `train-bench run`, which are so many runs, in their folder of the
    campaign, on data in `data_dir`."""
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
    pod = {"metadata": of_pod, "spec": pod_spec(config, name, words, data_dir)}
    job = _indexed(config, runs, go_on="on_failure=continue" in words) | {"template": pod}
    before = None
    if config.prepare is not None:
        before = {
            "metadata": of_pod,
            "spec": preparing(
                pod["spec"], (f"benchmark={benchmark}", f"data_dir={data_dir}", f"source={config.prepare}")
            ),
        }
    spec = given(suspend=True if queue is not None else None) | spec_of(config, name, job, before)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def beyond_a_train_job(config: Config) -> list[str]:
    """Fields of the pods that a TrainJob cannot have."""
    spec = pod_spec(config, "name", (), "/data")
    (container,) = (one for one in spec["containers"] if one["name"] == NODE)
    kept = {"name", "resources", "terminationMessagePolicy", *OF_TRAINER, *OF_CONTAINER}
    fields = sorted({*spec} - {"containers", *PATCHED, *LEFT_TO_RUNTIME})
    further = [one["name"] for one in spec["containers"] if one["name"] != NODE]
    before = [
        f"{one.get('name')}.{key}" if isinstance(one, Mapping) else f"initContainers {one!r}"
        for one in spec.get("initContainers") or ()
        for key in (one if isinstance(one, Mapping) else ("",))
        if key not in OF_PATCH
    ]
    return [*fields, *(f"{NODE}.{key}" for key in container if key not in kept), *further, *before]


def _indexed(config: Config, runs: int, *, go_on: bool) -> dict[str, Any]:
    """Fields of an indexed Job. One of which a pod fails has failed; if each pod has a run of its own, the others may
    `go_on`. Pods that are disrupted, or end because another was, are no failures: as one they fail their job by its
    policy; a pod with a run of its own is replaced, where a volume keeps the attempt that was cut off."""
    count, at_once, limit, action = config.nodes, config.nodes, "backoffLimit", "FailJob"
    if config.at_once is not None:
        count, at_once = runs, min(runs, config.at_once)
        limit = "backoffLimitPerIndex" if go_on else "backoffLimit"
        action = "Ignore" if config.shares_folder else "FailIndex" if go_on else "FailJob"
    codes = {"containerName": NODE, "operator": "In", "values": [Resumable.exit_code]}
    return {
        "completionMode": "Indexed",
        "parallelism": at_once,
        "completions": count,
        limit: 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": action, "onPodConditions": DISRUPTED},
                {"action": action, "onExitCodes": codes},
            ]
        },
    }


def _job_set(
    config: Config, name: str, job: Mapping[str, Any], before: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A JobSet of one Job, and of a pod `before` it, which is replaced if it is disrupted. If the Job has failed by its
    policy, all pods are restarted, without a count, and the campaign continues, where a volume holds its folder."""
    preempted = {
        "name": "preempted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    restarts = config.shares_folder and config.at_once is None
    jobs: list[dict[str, Any]] = [{"name": NODE, "replicas": 1, "template": {"spec": job}}]
    if before is not None:
        one = {
            "completionMode": "Indexed",
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": DISRUPTED}]},
        }
        jobs[0]["dependsOn"] = [{"name": PREPARE, "status": "Complete"}]
        jobs.insert(0, {"name": PREPARE, "replicas": 1, "template": {"spec": one | {"template": before}}})
    return {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name},
        "failurePolicy": given(maxRestarts=0, rules=[preempted] if restarts else None),
        "replicatedJobs": jobs,
    }


def _train_job(config: Config, _name: str, job: Mapping[str, Any], _before: None) -> dict[str, Any]:
    """A TrainJob: what its trainer says, and the rest of a pod as patches of its runtime, which has the Job."""
    pod = job["template"]
    spec = pod["spec"]
    (container,) = (one for one in spec["containers"] if one["name"] == NODE)
    trainer = {key: container[key] for key in OF_TRAINER} | given(
        numNodes=config.nodes, resourcesPerNode=container.get("resources")
    )
    patched = {
        **{key: spec[key] for key in PATCHED if key in spec},
        "containers": [{"name": NODE, **{key: container[key] for key in OF_CONTAINER}}],
    }
    patch = {"spec": {"template": {"metadata": pod["metadata"], "spec": patched}}}
    jobs = {"replicatedJobs": [{"name": NODE, "template": patch}]}
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
