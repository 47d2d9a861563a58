"""A campaign as a job of pods, and what kubectl is asked for: create, get, logs, delete."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from train_bench.core.job import Device, Job
from train_bench.errors import RequestError
from train_bench.launcher import BatchTask, Launch
from train_bench.launchers.kubernetes import refusals, state
from train_bench.launchers.kubernetes.config import Config
from train_bench.launchers.kubernetes.manifest import INSTANCE, RESOURCES, job_name, manifest
from train_bench.launchers.kubernetes.pod_spec import INSIDE, NODE, PLAN, PREPARE

GRACE_SECONDS = 60
END_SECONDS = 30
"""Time in which processes end that have written a checkpoint."""

CREATE = """\
set -e
name=$1 plan=$2 manifest=$3 token=$4; shift 4
kubectl create configmap "$name" --from-file=plan.json="$plan" --dry-run=client -o json "$@" |
    kubectl create -f - "$@" >&2
made="configmap/$name"
trap 'kubectl delete $made "$@" >&2' EXIT
if [ -n "$token" ]; then
    od -An -tx1 -N32 /dev/urandom | tr -d ' \\n' |
        kubectl create secret generic "$name" --from-file=token=/dev/stdin --dry-run=client -o json "$@" |
        kubectl create -f - "$@" >&2
    made="$made secret/$name"
fi
kubectl create -f "$manifest" -o name "$@"
trap - EXIT
"""
"""Creates the plan, the token of pods that share no folder, and the job; of these all or none."""

GET = f"""\
set -e
name=$1 kind=$2 queue=$3 jobs=$4; shift 4
kubectl get "$kind,pods" -l {INSTANCE}="$name" -o json "$@"
for job in $jobs; do
    created=involvedObject.name="$name-$job-0",reason=FailedCreate
    kubectl get events --field-selector "$created" -o json "$@" 2>/dev/null || :
done
[ -z "$queue" ] || kubectl get workloads.kueue.x-k8s.io -o json "$@" 2>/dev/null || :
"""
"""Prints the job with its pods, the events of pods that could not be created, and the workloads of Kueue."""


class _Plain(yaml.SafeDumper):
    """Without references to what is there twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


class Batch:
    """One JobSet or TrainJob, whose pods carry out all runs."""

    needs = "kubectl"
    elsewhere = True

    def __init__(self, config: Config) -> None:
        self.config = config
        self.wait = config.wait

    def inside(self, environ: Mapping[str, str]) -> bool:
        """In a pod of the campaign."""
        return INSIDE in environ

    def refuse_allocation(self, environ: Mapping[str, str]) -> str | None:
        """None: pods that are not there are named by the handshake."""
        return None

    def refuse_job(self, job: Job) -> str | None:
        """GPUs that are required and not requested, and data in folders that volumes hold, or do not hold."""
        config, data = self.config, str(job.config.get("data_dir"))
        if config.prepare is not None and not config.keeps(data):
            return (
                f"launcher.prepare={config.prepare} prepares data for other pods, and no volume keeps data_dir={data}; "
                "mount one there: launcher.volumes=[CLAIM:/PATH]. Nothing was started."
            )
        staged = config.stage_from
        if staged is not None and (config.keeps(data) or not config.keeps(staged)):
            return (
                f"launcher.stage_from={staged} copies data from a volume to data_dir={data} on the disk of each node; "
                f"mount one at {staged}, and none at data_dir: launcher.volumes=[CLAIM:{staged}]. Nothing was started."
            )
        if staged is not None and any(
            f"{own}/".startswith(data.rstrip("/") + "/") for own in (PLAN, "/dev/shm")
        ):
            return (
                f"launcher.stage_from={staged} mounts a disk at data_dir={data}, over files that the pods need; give "
                "another one, such as data_dir=/data. Nothing was started."
            )
        if job.device is not Device.cuda or any(
            "gpu" in name or "mig-" in name for name in self.config.quantities
        ):
            return None
        return (
            "device=cuda needs GPUs, and the pods request none; add "
            f"launcher.resources=[nvidia.com/gpu={job.nproc_per_node}], or the resource of this cluster. Nothing "
            "was started."
        )

    def submission(self, jobs: Sequence[Job], run_argv: tuple[str, ...]) -> Launch:
        """`<folder>/kubernetes/job.yaml`, created beside a ConfigMap with the plan."""
        folder, name, config = jobs[0].folder, self._name(jobs[0]), self.config
        if "retry_failed=true" in run_argv and not config.shares_folder:
            raise RequestError(
                "retry_failed=true needs the records of the failed attempts, and no volume keeps them at "
                f"launcher.folder={config.folder}. Begin another campaign, with launcher.volumes=[CLAIM:/PATH]."
            )
        words = (*run_argv[run_argv.index("run") + 2 :], f"only=[{','.join(str(job.index) for job in jobs)}]")
        path = folder / "kubernetes" / "job.yaml"
        config = replace(config, grace_seconds=config.grace_seconds or _grace(jobs[0]))
        data = str(jobs[0].config.get("data_dir"))
        content = manifest(config, name, words, runs=len(jobs), benchmark=jobs[0].benchmark, data_dir=data)
        text = yaml.dump(content, Dumper=_Plain, sort_keys=False, width=110)
        where = (name, str(folder / "plan.json"), str(path), "token" if config.mirrors else "")
        return Launch(argv=("sh", "-c", CREATE, "kubectl", *where, *self._flags()), files={path: text})

    def settlement(self, folder: Path, batch_job: str, settle_argv: tuple[str, ...]) -> Launch | None:
        """None: pods cannot reach the folder; who settles it collects what they have logged."""
        return None

    def queries(self, batch_job: str) -> tuple[tuple[str, ...], ...]:
        """One: an object that is deleted is forgotten."""
        kind, queue = RESOURCES[self.config.kind], self.config.queue or ""
        jobs = NODE if self.config.prepare is None else f"{PREPARE} {NODE}"
        return (("sh", "-c", GET, "kubectl", batch_job, kind, queue, jobs, *self._flags()),)

    def tasks(self, accounting: str) -> tuple[BatchTask, ...]:
        """Parse the objects."""
        return state.task_of(accounting)

    def explain(self, refused: str) -> str:
        """What kubectl said, with the next step."""
        return refusals.explain(refused.replace("sh refused:", "kubectl refused:", 1))

    def cancellation(self, batch_job: str) -> str:
        """What a user types to end the job."""
        return shlex.join(self.removal(batch_job).argv)

    def logs(self, batch_job: str) -> Launch:
        """Logs of the first pod, which has sent the files of the campaign, or of all that have a run of their own."""
        first = f"{INSTANCE}={batch_job}"
        if self.config.at_once is None:
            first += f",{state.INDEX}=0"
        # Of a pod that has not started there is no log, which is no error.
        asked = ("-l", first, "-c", NODE, "--tail=-1", "--ignore-errors")
        return Launch(argv=("kubectl", "logs", *asked, *self._flags()))

    def removal(self, batch_job: str) -> Launch:
        """Deletion of the job, its pods, its plan and its token."""
        kinds = (RESOURCES[self.config.kind], "configmap", *(["secret"] if self.config.mirrors else []))
        objects = [f"{kind}/{batch_job}" for kind in kinds]
        return Launch(
            argv=("kubectl", "delete", "--ignore-not-found", "--cascade=foreground", *objects, *self._flags())
        )

    def _name(self, job: Job) -> str:
        return job_name(job.benchmark, job.folder)

    def _flags(self) -> list[str]:
        named = {"context": self.config.context, "namespace": self.config.namespace}
        return [f"--{name}={value}" for name, value in named.items() if value is not None]


def _grace(job: Job) -> int:
    """Seconds that a pod has to end: those of a checkpoint, and of its processes after it."""
    return GRACE_SECONDS if job.checkpoint_seconds is None else math.ceil(job.grace_seconds) + END_SECONDS
