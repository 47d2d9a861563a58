"""Controller and kubelet: the pods of a JobSet or TrainJob as processes of this machine."""

import base64
import os
import signal
import subprocess
import sys
import threading
import time

INDEX = "batch.kubernetes.io/job-completion-index"


class Kubelet:
    """Starts the pods of each job that the cluster is given, and ends them as their policies say. Mounted folders are
    below `folder`; `claims` are its folders of claims."""

    def __init__(self, cluster, folder):
        self._cluster, self._folder = cluster, folder
        self._pods, self._disrupted = {}, set()
        self._threads = []
        cluster.created, cluster.deleted = self._created, lambda one: None

    def preempt(self, index):
        """The node of a pod is drained: it has to end, within its grace period."""
        pod, process = self._pods[index]
        self._disrupted.add(index)
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        pod["status"]["conditions"] = [condition | {"message": "Eviction API: evicting"}]
        process.send_signal(signal.SIGTERM)

    def log(self, name):
        """What the container of a pod has printed."""
        return self._folder / f"{name}.log"

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
            self._disrupted.clear()
            container, count, rules, restarts = _parts(owner)
            for index in range(count):
                self._pods[index] = self._start(owner, container, index)
            ended = self._wait(rules)
            if ended != "PodFailurePolicy" or not restarts:
                break
            owner["status"]["restarts"] += 1
            self._cluster.objects["pods"].clear()
        done = "Completed" if owner["kind"] == "JobSet" else "Complete"
        condition = {"type": "Failed" if ended else done, "status": "True", "message": ended or ""}
        owner["status"]["conditions"] = [condition]

    def _start(self, owner, container, index):
        name = f"{owner['metadata']['name']}-node-0-{index}"
        where = {
            mount["mountPath"]: self._mounted(owner, mount, index) for mount in container["volumeMounts"]
        }

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
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *rest],
                env=os.environ | environ | self._of_operator(owner) | {"MASTER_ADDR": "127.0.0.1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        labels = {"app.kubernetes.io/instance": owner["metadata"]["name"], INDEX: str(index)}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": f"n{index}", "containers": [{"name": "node"}]},
            "status": {"phase": "Running"},
        }
        self._cluster.put(pod)
        self._cluster.logs[name] = self.log(name)
        return pod, process

    def _of_operator(self, owner):
        """What the controller of a TrainJob adds, and the plugin of its status."""
        if owner["kind"] != "TrainJob":
            return {}
        token, name = self._folder / "token", owner["metadata"]["name"]
        token.write_text("t")
        path = f"apis/trainer.kubeflow.org/v1alpha1/namespaces/bench/trainjobs/{name}/status"
        nodes = {"PET_NNODES": str(owner["spec"]["trainer"]["numNodes"])}
        return nodes | {
            "KUBEFLOW_TRAINER_SERVER_URL": f"{self._cluster.address}/{path}",
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(token),
        }

    def _value(self, variable):
        if "value" in variable:
            return variable["value"]
        reference = variable["valueFrom"]["secretKeyRef"]
        secret = self._cluster.objects["secrets"][reference["name"]]
        return base64.b64decode(secret["data"][reference["key"]]).decode()

    def _mounted(self, owner, mount, index):
        (volume,) = (one for one in _volumes(owner) if one["name"] == mount["name"])
        if "persistentVolumeClaim" in volume:
            folder = self._folder / volume["persistentVolumeClaim"]["claimName"]
        else:
            folder = self._folder / f"{mount['name']}_{index}"
        folder.mkdir(exist_ok=True)
        if "configMap" in volume:
            for key, text in self._cluster.objects["configmaps"][volume["configMap"]["name"]]["data"].items():
                (folder / key).write_text(text)
        return folder

    def _wait(self, rules):
        """None if all pods end well, else why their job has failed."""
        left = dict(self._pods)
        while left:
            time.sleep(0.1)
            for index, (pod, process) in list(left.items()):
                code = process.poll()
                if code is None:
                    continue
                del left[index]
                said = "\n".join(self.log(pod["metadata"]["name"]).read_text().splitlines()[-5:])
                ended = {"exitCode": code if code >= 0 else 128 - code, "message": said}
                pod["status"]["phase"] = "Failed" if code else "Succeeded"
                pod["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": ended}}]
                if code:
                    self._end(left)
                    by_policy = any(self._matches(rule, index, code) for rule in rules)
                    return "PodFailurePolicy" if by_policy else "BackoffLimitExceeded"
        return None

    def _matches(self, rule, index, code):
        if "onPodConditions" in rule:
            return index in self._disrupted
        return code in rule["onExitCodes"]["values"]

    @staticmethod
    def _end(pods):
        for _, process in pods.values():
            process.send_signal(signal.SIGTERM)
        for _, process in pods.values():
            process.wait(60)


def _parts(owner):
    """The container, the number of pods, the rules of their job, and whether the job is started again by them."""
    spec = owner["spec"]
    if owner["kind"] == "TrainJob":
        (patched,) = _pod(owner)["containers"]
        return spec["trainer"] | patched, spec["trainer"]["numNodes"], [], False
    job = spec["replicatedJobs"][-1]["template"]["spec"]
    (container,) = _pod(owner)["containers"]
    return container, job["completions"], job["podFailurePolicy"]["rules"], "rules" in spec["failurePolicy"]


def _pod(owner):
    spec = owner["spec"]
    if owner["kind"] == "TrainJob":
        spec = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    return spec["replicatedJobs"][-1]["template"]["spec"]["template"]["spec"]


def _volumes(owner):
    return _pod(owner)["volumes"]
