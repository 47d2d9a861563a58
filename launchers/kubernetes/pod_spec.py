"""Spec of the pods of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from train_bench.core.rank_messages import SHARED
from train_bench.launcher import SAFE_PATH
from train_bench.launchers.kubernetes import drop_caches
from train_bench.launchers.kubernetes.config import Config

NODE = "node"
"""Replicated job, and container of its pods, as Kubeflow's runtime for torch has them."""

PREPARE = "prepare"
"""Replicated job of the pod that prepares the data."""

PLAN = "/etc/train_bench"
"""Folder in the pods with the plan."""

OF_ANY_NODE = ("cpu", "memory", "ephemeral-storage")

OF_INIT = ("image", "securityContext", "volumeMounts", "terminationMessagePolicy", "resources")
"""Fields of a container that one before it has, too."""

INSIDE = "TRAIN_BENCH_POD"
"""Environment variable of the pods with the name of their object."""


def pod_spec(config: Config, name: str, words: Sequence[str], data_dir: str) -> dict[str, Any]:
    """Spec of each pod."""
    volumes: dict[str, dict[str, Any]] = {
        PLAN: {"name": "plan", "configMap": {"name": name}},
        "/dev/shm": {"name": "shm", "emptyDir": given(medium="Memory", sizeLimit=config.shm)},
    }
    for number, (path, claim) in enumerate(config.mounts.items()):
        volumes[path] = {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}}
    if config.stage_from is not None:
        volumes[data_dir] = {"name": "data", "emptyDir": {}}
    if not config.shares_folder:
        volumes[config.folder] = {"name": "results", "emptyDir": {}}
    variables = {"MASTER_ADDR": f"{name}-{NODE}-0-0.{name}", INSIDE: name, **SAFE_PATH}
    environment: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in variables.items()]
    address = {"fieldRef": {"fieldPath": "status.hostIP"}}
    environment.append({"name": drop_caches.ADDRESS, "valueFrom": address})
    if config.mirrors:
        reference = {"secretKeyRef": {"name": name, "key": "token"}}
        environment.append({"name": SHARED, "valueFrom": reference})
    # Libraries of RDMA lock memory.
    locks = ["IPC_LOCK"] if any("rdma" in resource for resource in config.quantities) else None
    quantities = config.quantities
    container = given(
        name=NODE,
        image=config.image,
        command=["python", "-m", "train_bench.launchers.kubernetes.pod"],
        args=[f"{PLAN}/plan.json", f"{config.folder}/{name}", *words],
        env=environment,
        securityContext={
            "allowPrivilegeEscalation": False,
            "capabilities": given(drop=["ALL"], add=locks),
        },
        volumeMounts=[{"name": volume["name"], "mountPath": path} for path, volume in volumes.items()],
        # The end of what a container has printed is in the state of its pod.
        terminationMessagePolicy="FallbackToLogsOnError",
        envFrom=[{"secretRef": {"name": secret}} for secret in config.secrets] or None,
        resources={"requests": quantities, "limits": quantities} if quantities else None,
    )
    # It has the limits, the mounts and the rights of the container.
    staging = {key: container[key] for key in container if key in OF_INIT} | {
        "name": "stage",
        "command": ["cp", "-r", f"{config.stage_from}/.", data_dir],
    }
    spec = given(
        restartPolicy="Never",
        terminationGracePeriodSeconds=config.grace_seconds,
        automountServiceAccountToken=False,
        securityContext={
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        hostNetwork=True if config.host_network else None,
        dnsPolicy="ClusterFirstWithHostNet" if config.host_network else None,
        initContainers=None if config.stage_from is None else [staging],
        containers=[container],
        volumes=list(volumes.values()),
    )
    merged: dict[str, Any] = _merged(spec, config.pod or {})
    return merged


def preparing(spec: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Spec of a pod that carries out `words` of `train-bench prepare`, without accelerators."""

    def container(one: Mapping[str, Any]) -> Mapping[str, Any]:
        if one["name"] != NODE:
            return one
        kept = {
            kind: {name: quantity for name, quantity in quantities.items() if name in OF_ANY_NODE}
            for kind, quantities in one.get("resources", {}).items()
        }
        own = {
            "command": ["python", "-m", "train_bench"],
            "args": ["prepare", *words],
            "resources": kept or None,
        }
        return given({**one, **own})

    return {**spec, "containers": [container(one) for one in spec["containers"]]}


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


def given(fields: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Fields that have a value."""
    return {key: value for key, value in {**(fields or {}), **more}.items() if value is not None}
