"""State of a job on Kubernetes, from the objects that kubectl prints, in sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from train_bench.core.excerpt import last_words, shorten
from train_bench.launcher import BatchTask
from train_bench.launchers.kubernetes.pod_spec import NODE, PREPARE
from train_bench.launchers.parts.exit_codes import how_it_ended

Object = Mapping[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"

STAYS = {
    "InvalidImageName": "has an image with an invalid name",
    "ErrImageNeverPull": "may not pull its image, which its node does not have",
    "CreateContainerConfigError": "lacks what its container refers to",
    "CreateContainerError": "has a container that cannot be created",
    "RunContainerError": "has a container that cannot be started",
}
"""Reasons for which a container waits, and will wait for ever."""

PULLS = ("ErrImagePull", "ImagePullBackOff")
NO_SUCH_IMAGE = re.compile(r"not found|does not exist|denied|unauthorized|manifest unknown", re.IGNORECASE)


def documents(printed: str) -> Iterator[Object]:
    """Objects in the lists that kubectl has printed, one after the other."""
    decoder, rest = json.JSONDecoder(), printed.lstrip()
    while rest:
        listed, end = decoder.raw_decode(rest)
        yield from listed.get("items", (listed,))
        rest = rest[end:].lstrip()


def task_of(printed: str) -> tuple[BatchTask, ...]:
    """The JobSet or TrainJob among the objects; none if it is not there."""
    objects = list(documents(printed))
    owner = next((one for one in objects if one["kind"] in ("JobSet", "TrainJob")), None)
    if owner is None:
        return ()
    pods = _current(one for one in objects if one["kind"] == "Pod")
    ended, good, how = _state(owner, pods, [one for one in objects if one not in (owner, *pods)])
    return (BatchTask(name=owner["metadata"]["name"], ended=ended, good=good, how=how),)


def _current(pods: Iterable[Object]) -> list[Object]:
    """The last pod of each index of each job, in their order: those before it were replaced, and blame nothing."""
    last: dict[tuple[str, int], Object] = {}
    for pod in sorted(pods, key=_created):
        last[_job(pod), _index(pod)] = pod
    return [last[key] for key in sorted(last)]


def _state(owner: Object, pods: Sequence[Object], others: Sequence[Object]) -> tuple[bool, bool, str]:
    conditions = _conditions(owner)
    restarts = owner.get("status", {}).get("restarts", 0)
    again = f", after {restarts} preemption(s)" if restarts else ""
    if {"Completed", "Complete"} & {*conditions}:
        return True, True, f"is done{again}"
    if "Failed" in conditions:
        why = _worst(pods) or _said(conditions["Failed"]) or "for a reason that the cluster does not state"
        return True, False, f"failed{again}: {why}"
    for pod in pods:
        stays = _stays(pod)
        if stays is not None:
            return True, False, f"cannot start: {stays}"
    if owner["spec"].get("suspend"):
        why = _not_admitted(owner, others)
        return False, False, f"is suspended, and waits to be admitted{again}{why}"
    for pod in pods:
        waits = _waits(pod)
        if waits is not None:
            return False, False, f"waits{again}: {waits}"
    if not pods:
        refused = [_said(one) for one in others if one["kind"] == "Event"]
        return False, False, f"has no pods yet{again}{f': {refused[-1]}' if refused else ''}"
    running = sum(_phase(pod) == "Running" for pod in pods)
    return False, False, f"is running: {running} pod(s){again}"


def _worst(pods: Sequence[Object]) -> str | None:
    """The failure that caused the others: something that was done to a pod, or else the first to end."""
    failed = [pod for pod in pods if _phase(pod) == "Failed" or "DisruptionTarget" in _conditions(pod)]
    ends = [(*_end(pod), _name(pod)) for pod in failed]
    if not ends:
        return None
    _, _, how, name = min(ends, key=lambda end: end[:2])
    return f"{name} {how}"


def _end(pod: Object) -> tuple[int, str, str]:
    """How grave the end of a pod is (0: what was done to it), when it ended, and how."""
    status, disrupted = pod.get("status", {}), _conditions(pod).get("DisruptionTarget")
    ended = _container(pod).get("terminated") or {}
    when = ended.get("finishedAt") or "9"
    if status.get("reason") == "Evicted":
        return 0, when, f"was evicted: {_said(status)}"
    if ended.get("reason") == "OOMKilled":
        return 0, when, "ran out of memory (OOMKilled); raise memory in launcher.resources"
    if disrupted is not None:
        return 0, when, f"was preempted ({disrupted.get('reason', '')}): {_said(disrupted)}"
    if status.get("reason"):
        return 0, when, f"failed ({status['reason']}): {_said(status)}"
    code = ended.get("exitCode")
    if code is None:
        return 1, when, "ended without an exit code"
    lines = [line for line in str(ended.get("message", "")).splitlines() if not line.startswith(":::")]
    said = last_words("\n".join(lines))
    return 1, when, how_it_ended(-(code - 128) if code > 128 else code) + (f": {said}" if said else "")


def _stays(pod: Object) -> str | None:
    waiting = _container(pod).get("waiting") or {}
    reason = waiting.get("reason")
    if reason in STAYS:
        return f"{_name(pod)} {STAYS[reason]} ({reason}): {_said(waiting)}"
    if reason in PULLS and NO_SUCH_IMAGE.search(waiting.get("message", "")):
        return f"{_name(pod)} cannot pull its image ({reason}): {_said(waiting)}"
    return None


def _waits(pod: Object) -> str | None:
    if _phase(pod) != "Pending":
        return None
    waiting = _container(pod).get("waiting") or {}
    if waiting.get("reason") in PULLS:
        return f"{_name(pod)} pulls its image again ({waiting['reason']}): {_said(waiting)}"
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return f"{_name(pod)} is pending: {_said(condition)}"
    return f"{_name(pod)} is pending: {waiting.get('reason') or 'its node prepares it'}"


def _not_admitted(owner: Object, others: Sequence[Object]) -> str:
    """What Kueue says of the workload of a suspended job."""
    for one in others:
        owners = [ref["name"] for ref in one["metadata"].get("ownerReferences", ())]
        if one["kind"] == "Workload" and owner["metadata"]["name"] in owners:
            for condition in one.get("status", {}).get("conditions", ()):
                if condition["type"] in ("QuotaReserved", "Evicted") and condition.get("message"):
                    return f": {_said(condition)}"
    return ""


def _conditions(one: Object) -> dict[str, Object]:
    listed = one.get("status", {}).get("conditions", ())
    return {condition["type"]: condition for condition in listed if condition["status"] == "True"}


def _container(pod: Object) -> Mapping[str, Any]:
    """State of the container that trains, or of one before it that does not end well."""
    status = pod.get("status", {})
    listed = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    states = {one["name"]: one.get("state", {}) for one in listed}
    before = [
        state
        for name, state in states.items()
        if name != NODE and not _ended_well(state) and "running" not in state
    ]
    own: Mapping[str, Any] = states.get(NODE, {})
    return own if not before or own.get("terminated") else before[0]


def _ended_well(state: Mapping[str, Any]) -> bool:
    return (state.get("terminated") or {}).get("exitCode") == 0


def _index(pod: Object) -> int:
    metadata = pod["metadata"]
    found = metadata.get("labels", {}).get(INDEX) or metadata.get("annotations", {}).get(INDEX)
    return int(found or 0)


def _job(pod: Object) -> str:
    return str(pod["metadata"].get("labels", {}).get(REPLICATED, NODE))


def _created(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp", ""))


def _name(pod: Object) -> str:
    where = pod["spec"].get("nodeName")
    what = "preparation of the data" if _job(pod) == PREPARE else f"host {_index(pod)}"
    return f"{what} (pod {pod['metadata']['name']}{f' on {where}' if where else ''})"


def _phase(pod: Object) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _said(one: Mapping[str, Any]) -> str:
    return shorten(" ".join(str(one.get("message") or "without a message").split())).rstrip(".")
