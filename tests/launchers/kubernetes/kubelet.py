"""Controller and kubelet: the pods of a JobSet or TrainJob as processes of this machine, or in network namespaces."""

import base64
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.fleet import INSIDE

INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True)
class Job:
    """An indexed Job of a JobSet, or of the runtime of a TrainJob."""

    name: str
    spec: dict
    """Of its pods."""
    container: dict
    completions: int
    parallelism: int
    rules: list
    by_index: bool = False


class Kubelet:
    """Starts the pods of each job that the cluster is given, and ends them as their policies say. Mounted folders are
    below `folder`, but for claims that are mounted beside it; `most` pods have run at the same time. With `hosts`, the
    pod of each index is on one of them, where it knows the others by their names."""

    def __init__(self, cluster, folder):
        self._cluster, self._folder = cluster, folder
        self._pods, self._disrupted, self._started = {}, set(), Counter()
        self._threads = []
        self.most, self.hosts = 0, ()
        cluster.created, cluster.deleted = self._created, lambda one: None

    def preempt(self, index, job="node"):
        """The node of a pod is drained: it has to end, within its grace period."""
        pod, process = self._pods[job, index]
        self._disrupted.add(pod["metadata"]["name"])
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        pod["status"]["conditions"] = [condition | {"message": "Eviction API: evicting"}]
        self._end_within_grace(pod, process)

    def runs(self, job):
        """Whether the pod of index 0 of a job runs."""
        return (job, 0) in self._pods and self._pods[job, 0][1].poll() is None

    def stop(self):
        """No process stays."""
        for _, process in self._pods.values():
            process.kill()
        for thread in self._threads:
            thread.join()

    def _created(self, one):
        if one["kind"] in ("JobSet", "TrainJob"):
            self._threads.append(threading.Thread(target=self._follow, args=(one,)))
            self._threads[-1].start()

    def _follow(self, owner):
        owner["status"] = {"restarts": 0, "conditions": []}
        while True:
            ended = next(filter(None, (self._carry_out(owner, job) for job in _jobs(owner))), None)
            if not _restarts(owner, ended):
                break
            owner["status"]["restarts"] += 1
            self._cluster.objects["pods"].clear()
        done = "Completed" if owner["kind"] == "JobSet" else "Complete"
        condition = {"type": "Failed" if ended else done, "status": "True", "message": ended or ""}
        owner["status"]["conditions"] = [condition]

    def _carry_out(self, owner, job):
        """None if all pods end well, else why their job has failed."""
        waiting, running, failed = list(range(job.completions)), {}, False
        while waiting or running:
            while waiting and len(running) < job.parallelism:
                index = waiting.pop(0)
                running[index] = self._pods[job.name, index] = self._start(owner, job, index)
            self.most = max(self.most, len(running))
            time.sleep(0.1)
            for index, (pod, process) in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[index]
                self._end(pod, code)
                action = self._action(job, pod, code) if code else None
                if action == "Ignore":
                    waiting.insert(0, index)  # another pod takes its place
                elif action == "FailIndex" or (code and action is None and job.by_index):
                    failed = True
                elif code:
                    self._end_others(running)
                    return "PodFailurePolicy" if action == "FailJob" else "BackoffLimitExceeded"
        return "FailedIndexes" if failed else None

    def _start(self, owner, job, index):
        of_job = f"{owner['metadata']['name']}-{job.name}-0"
        self._started[of_job, index] += 1
        name = f"{of_job}-{index}-{self._started[of_job, index]}"
        container = job.container
        where = {mount["mountPath"]: self._mounted(job, mount, name) for mount in container["volumeMounts"]}

        def inside(text):
            for path, folder in where.items():
                if text == path or text.startswith(f"{path}/"):
                    return f"{folder}{text.removeprefix(path)}"
            return text

        environ = {one["name"]: self._value(one) for one in container["env"]} | {
            "JOB_COMPLETION_INDEX": str(index)
        }
        assert environ["MASTER_ADDR"] == f"{owner['metadata']['name']}-node-0-0.{owner['metadata']['name']}"
        command, *rest = [*container["command"], *map(inside, container["args"])]
        assert command == "python"
        log = self._folder / f"{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self._on_host(environ["MASTER_ADDR"], index), sys.executable, *rest],
                env=os.environ
                | environ
                | self._of_operator(owner, index)
                | ({} if self.hosts else {"MASTER_ADDR": "127.0.0.1"}),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        labels = {"app.kubernetes.io/instance": owner["metadata"]["name"], INDEX: str(index)}
        labels |= {"batch.kubernetes.io/job-name": of_job, "jobset.sigs.k8s.io/replicatedjob-name": job.name}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": labels,
                "creationTimestamp": f"2026-11-28T10:00:{self._started.total():02}Z",
            },
            "spec": job.spec | {"nodeName": f"n{index}"},
            "status": {"phase": "Running"},
        }
        self._cluster.put(pod)
        self._cluster.logs[name] = log
        return pod, process

    def _on_host(self, first, index):
        """Words that start a program on the host of a pod, with the names that a service and a kubelet give."""
        if not self.hosts:
            return []
        names = self._folder / "hosts"
        lines = (
            f"{host.address} {first.replace('-0-0.', f'-0-{number}.')} {host.name}"
            for number, host in enumerate(self.hosts)
        )
        names.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        named = f'mount --bind {names} /etc/hosts && exec "$@"'
        return [*(word.format(node=self.hosts[index].name) for word in INSIDE), "sh", "-c", named, "sh"]

    def _of_operator(self, owner, index):
        """What the controller of a TrainJob adds for torchrun, and the plugin of its status."""
        if owner["kind"] != "TrainJob":
            return {}
        token, name = self._folder / "token", owner["metadata"]["name"]
        token.write_text("t")
        path = f"apis/trainer.kubeflow.org/v1alpha1/namespaces/bench/trainjobs/{name}/status"
        return {
            "PET_NNODES": str(owner["spec"]["trainer"]["numNodes"]),
            "PET_NPROC_PER_NODE": "auto",
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
            "PET_MASTER_PORT": "29400",
            "KUBEFLOW_TRAINER_SERVER_URL": f"{self._cluster.address}/{path}",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
        }

    def _value(self, variable):
        if "value" in variable:
            return variable["value"]
        if "fieldRef" in variable["valueFrom"]:
            return "127.0.0.1"
        reference = variable["valueFrom"]["secretKeyRef"]
        secret = self._cluster.objects["secrets"][reference["name"]]
        return base64.b64decode(secret["data"][reference["key"]]).decode()

    def _mounted(self, job, mount, pod):
        (volume,) = (one for one in job.spec["volumes"] if one["name"] == mount["name"])
        path = Path(mount["mountPath"])
        if path.is_relative_to(self._folder.parent):
            folder = path
        elif "persistentVolumeClaim" in volume:
            folder = self._folder / volume["persistentVolumeClaim"]["claimName"]
        else:
            folder = self._folder / f"{mount['name']}_{pod}"
        folder.mkdir(exist_ok=True)
        if "configMap" in volume:
            for key, text in self._cluster.objects["configmaps"][volume["configMap"]["name"]]["data"].items():
                (folder / key).write_text(text)
        return folder

    def _end(self, pod, code):
        said = "\n".join(self._cluster.logs[pod["metadata"]["name"]].read_text().splitlines()[-5:])
        ended = {"exitCode": code if code >= 0 else 128 - code, "message": said}
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        pod["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": ended}}]

    def _action(self, job, pod, code):
        """What the first rule that matches says of a pod that has failed."""
        for rule in job.rules:
            if "onPodConditions" in rule:
                matches = pod["metadata"]["name"] in self._disrupted
            else:
                matches = code in rule["onExitCodes"]["values"]
            if matches:
                return rule["action"]
        return None

    def _end_within_grace(self, pod, process):
        """Ask it to end, and kill it after its grace period."""
        process.send_signal(signal.SIGTERM)
        kill = threading.Timer(pod["spec"]["terminationGracePeriodSeconds"], process.kill)
        kill.daemon = True
        kill.start()

    def _end_others(self, pods):
        for pod, process in pods.values():
            self._end_within_grace(pod, process)
        for _, process in pods.values():
            process.wait()


def _restarts(owner, ended):
    """Whether all pods are started again after a job has failed for this reason."""
    rules = owner["spec"].get("failurePolicy", {}).get("rules", ())
    action = next((rule["action"] for rule in rules if ended in rule["onJobFailureReasons"]), None)
    return action == "RestartJobSetAndIgnoreMaxRestarts"


def _jobs(owner):
    """Its jobs, each of which begins when the one before is complete."""
    spec = owner["spec"]
    if owner["kind"] == "TrainJob":
        (patch,) = spec["runtimePatches"]
        (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        pod = replicated["template"]["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        nodes = spec["trainer"]["numNodes"]
        return [Job("node", pod, spec["trainer"] | container, nodes, nodes, [])]
    assert [one["dependsOn"][0]["name"] for one in spec["replicatedJobs"][1:]] == [
        one["name"] for one in spec["replicatedJobs"][:-1]
    ]
    return [_job(replicated) for replicated in spec["replicatedJobs"]]


def _job(replicated):
    spec = replicated["template"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    rules = spec["podFailurePolicy"]["rules"]
    sizes = spec["completions"], spec["parallelism"]
    return Job(replicated["name"], pod, container, *sizes, rules, "backoffLimitPerIndex" in spec)
