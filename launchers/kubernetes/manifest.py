"""Manifest of a campaign: from its configuration to a JobSet or a TrainJob as plain data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from train_bench.errors import Resumable
from train_bench.launcher import SAFE_PATH
from train_bench.launchers.kubernetes.config import Config, Kind

NODE = "node"
"""Replicated job, and container of its pods, as Kubeflow's runtime for torch has them."""

PLAN = "/etc/train_bench"
"""Folder in the pods with the plan."""

INSIDE = "TRAIN_BENCH_POD"
"""Environment variable of the pods with the name of their object."""

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
    labels = {INSTANCE: name, **({"kueue.x-k8s.io/queue-name": config.queue} if config.queue else {})}
    by_jobset = config.topology is not None and config.queue is None
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": config.topology} if by_jobset else {}
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    if config.namespace is not None:
        metadata["namespace"] = config.namespace
    if exclusive:
        metadata["annotations"] = exclusive
    pod = {"metadata": _of_pod(config, name), "spec": pod_spec(config, name, words)}
    suspended = {"suspend": True} if config.queue is not None else {}
    if config.kind is Kind.trainjob:
        spec, version = _train_job(config, pod), "trainer.kubeflow.org/v1alpha1"
    else:
        spec, version = _job_set(config, name, pod), "jobset.x-k8s.io/v1alpha2"
    kind = "TrainJob" if config.kind is Kind.trainjob else "JobSet"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": suspended | spec}


def pod_spec(config: Config, name: str, words: Sequence[str]) -> dict[str, Any]:
    """Spec of each pod."""
    claims = {path: f"volume-{number}" for number, path in enumerate(config.mounts)}
    volumes: list[dict[str, Any]] = [
        {"name": "plan", "configMap": {"name": name}},
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory", **({"sizeLimit": config.shm} if config.shm else {})},
        },
        *(
            {"name": claims[path], "persistentVolumeClaim": {"claimName": claim}}
            for path, claim in config.mounts.items()
        ),
    ]
    mounts = {PLAN: "plan", "/dev/shm": "shm", **claims}
    if not config.shares_folder:
        volumes.append({"name": "results", "emptyDir": {}})
        mounts[config.folder] = "results"
    # Libraries of RDMA lock memory.
    locks = ["IPC_LOCK"] if any("rdma" in resource for resource in config.quantities) else []
    container: dict[str, Any] = {
        "name": NODE,
        "image": config.image,
        "command": ["python", "-m", "train_bench.launchers.kubernetes.pod"],
        "args": [f"{PLAN}/plan.json", f"{config.folder}/{name}", *words],
        "env": [
            {"name": variable, "value": value}
            for variable, value in {
                "MASTER_ADDR": f"{name}-{NODE}-0-0.{name}",
                INSIDE: name,
                **SAFE_PATH,
            }.items()
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], **({"add": locks} if locks else {})},
        },
        "volumeMounts": [{"name": volume, "mountPath": path} for path, volume in mounts.items()],
        # The end of what a container has printed is in the state of its pod.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if config.secrets:
        container["envFrom"] = [{"secretRef": {"name": secret}} for secret in config.secrets]
    if config.resources:
        container["resources"] = {"requests": config.quantities, "limits": config.quantities}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": config.grace_seconds,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if config.host_network else {}),
        "containers": [container],
        "volumes": volumes,
    }
    merged: dict[str, Any] = _merged(spec, config.pod or {})
    return merged


def beyond_a_train_job(config: Config) -> list[str]:
    """Fields of the pods that a TrainJob cannot have."""
    spec = pod_spec(config, "name", ())
    (container,) = (one for one in spec["containers"] if one["name"] == NODE)
    kept = {"name", "resources", "terminationMessagePolicy", *OF_TRAINER, *OF_CONTAINER}
    fields = sorted({*spec} - {"containers", *PATCHED, *LEFT_TO_RUNTIME})
    further = [one["name"] for one in spec["containers"] if one["name"] != NODE]
    return [*fields, *(f"{NODE}.{key}" for key in container if key not in kept), *further]


def _of_pod(config: Config, name: str) -> dict[str, Any]:
    labels = {INSTANCE: name}
    if config.topology is None or config.queue is None:
        return {"labels": labels}
    return {
        "labels": labels,
        "annotations": {"kueue.x-k8s.io/podset-required-topology": config.topology},
    }


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


def _train_job(config: Config, pod: Mapping[str, Any]) -> dict[str, Any]:
    """A TrainJob: what its trainer says, and the rest as patches of its runtime."""
    spec = pod["spec"]
    (container,) = (one for one in spec["containers"] if one["name"] == NODE)
    trainer = {key: container[key] for key in OF_TRAINER} | {"numNodes": config.nodes}
    if "resources" in container:
        trainer["resourcesPerNode"] = container["resources"]
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


def _merged(lower: Any, upper: Any) -> Any:
    """`lower` with the values of `upper`: mappings are merged, and lists whose items have names by these."""
    if isinstance(lower, Mapping) and isinstance(upper, Mapping):
        both = {key: _merged(lower[key], upper[key]) for key in upper if key in lower}
        return {**lower, **upper, **both}
    if isinstance(lower, list) and isinstance(upper, list) and _are_named([*lower, *upper]):
        named = {one["name"]: one for one in lower}
        for one in upper:
            named[one["name"]] = _merged(named.get(one["name"], {}), one)
        return list(named.values())
    return upper


def _are_named(items: Sequence[Any]) -> bool:
    return all(isinstance(one, Mapping) and "name" in one for one in items)
