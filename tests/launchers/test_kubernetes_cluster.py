"""Campaigns through the real kubectl, on a cluster that is an API server of the tests'."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.command_line import train_bench, typed, wait_for
from tests.fake_campaigns import FakeLauncher, begin, composed_config, laid_out, make, run_all
from tests.hosts.fleet import fleet
from tests.launchers.kubernetes.cluster import Cluster, forbidden, served
from tests.launchers.kubernetes.kubelet import INDEX, Kubelet
from tests.sandbox import ROOT
from train_bench.campaign import batch_queue, command_trust
from train_bench.campaign.opened import Campaign
from train_bench.core import files, sent_files
from train_bench.errors import RequestError, TrainBenchError
from train_bench.judge.locate import badly_ended
from train_bench.launchers.kubernetes.batch import Batch
from train_bench.launchers.kubernetes.config import Config
from train_bench.observers.observer import Observers
from train_bench.observers.sender import Sender
from train_bench.plan.plan import from_json

pytestmark = needs.program("kubectl")


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster of which kubectl knows."""
    monkeypatch.setattr(batch_queue, "POLL_SECONDS", 0.1)
    one = Cluster()
    with served(one, tmp_path) as config:
        monkeypatch.setenv("KUBECONFIG", str(config))
        yield one


WORDS = ("seed=1", "runs=2", "launcher=kubernetes", "launcher.image=bench:1", "data_dir=/data")


@pytest.fixture
def planned(tmp_path):
    """A campaign of this user that has not been submitted."""
    plan = make(f"output={tmp_path / 'c'}", *WORDS)
    begin(plan)
    command_trust.note(Campaign.of(plan))
    return plan


def submit(plan, *more):
    """Submit it, and wait for its end. Returns the lines that the user reads."""
    told = []
    assert batch_queue.carry_out(Campaign.of(plan), composed_config(*WORDS, *more), told.append)
    return "\n".join(told)


def a_pod(name, **status):
    labels = {"app.kubernetes.io/instance": name, INDEX: "0"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p0", "labels": labels},
        "spec": {"containers": [{"name": "node"}]},
        "status": status,
    }


def ends(cluster, condition, **status):
    """Pods of the next job that end at once."""

    def created(one):
        if one["kind"] == "JobSet":
            if condition:
                one["status"] = {"conditions": [{"type": condition, "status": "True", "message": "m"}]}
            cluster.put(a_pod(one["metadata"]["name"], **status))

    cluster.created = created


def node(**state):
    return [{"name": "node", "state": state}]


def test_what_pods_have_sent_is_collected_and_their_job_removed(cluster, planned, tmp_path):
    folder = planned.jobs[0].folder
    elsewhere = from_json(files.read_json(folder / "plan.json"), tmp_path / "results")
    begin(elsewhere)
    lines = []
    run_all(elsewhere, FakeLauncher(), Sender(tmp_path / "results", lines.append), retry_failed=False)
    cluster.logs["p0"] = "\n".join(["starting", *lines, ""])
    ends(cluster, "Completed", phase="Succeeded")
    assert "job resnet-mini-c is done" in submit(planned)
    for name in ("result_1.txt", "record_1.json", "attempts/run_1_1.json", "ranks/run_1/exit.json"):
        assert (folder / name).read_bytes() == (tmp_path / "results" / name).read_bytes()
    assert not (folder / "ranks" / "run_1" / "launch_token").exists()
    assert badly_ended(folder) == ()
    assert cluster.all() == []


def test_what_each_pod_has_sent_of_its_own_run_is_collected(cluster, tmp_path):
    plan = make(f"output={tmp_path / 'c'}", *WORDS, "launcher.at_once=2")
    begin(plan)
    command_trust.note(Campaign.of(plan))
    folder = plan.jobs[0].folder
    elsewhere = from_json(files.read_json(folder / "plan.json"), tmp_path / "results")
    begin(elsewhere)
    lines = {run: [] for run in (0, 1)}
    senders = Observers([Sender(tmp_path / "results", lines[run].append, [run]) for run in lines])
    run_all(elsewhere, FakeLauncher(), senders, retry_failed=False)

    def created(one):
        if one["kind"] == "JobSet":
            one["status"] = {"conditions": [{"type": "Completed", "status": "True", "message": "m"}]}
            for run, sent in lines.items():
                pod = a_pod(one["metadata"]["name"], phase="Succeeded")
                pod["metadata"]["name"] = f"p{run}"
                pod["metadata"]["labels"][INDEX] = str(run)
                cluster.put(pod)
                cluster.logs[f"p{run}"] = "\n".join([*sent, ""])

    cluster.created = created
    assert "job resnet-mini-c is done" in submit(plan, "launcher.at_once=2")
    for run in lines:
        assert (folder / f"result_{run}.txt").read_bytes() == (
            tmp_path / f"results/result_{run}.txt"
        ).read_bytes()
    assert cluster.all() == []


def test_a_job_that_waits_is_no_failure_and_is_not_submitted_twice(cluster, planned):
    folder = planned.jobs[0].folder
    files.write_json(folder / "batch.json", {"job": "resnet-mini-c", "runs": [0], "tasks": []})
    labels = {"app.kubernetes.io/instance": "resnet-mini-c"}
    job = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {}}
    cluster.put(job | {"metadata": {"name": "resnet-mini-c", "labels": labels}})
    with pytest.raises(RequestError, match=r"Job resnet-mini-c has not ended yet; .*kubectl delete"):
        submit(planned)
    assert cluster.all() == ["jobsets/resnet-mini-c"]


def test_a_plan_prints_the_manifest_that_is_submitted(cluster, tmp_path):
    words = ("benchmark=resnet_mini", *WORDS, f"output={tmp_path / 'c'}", "on_failure=continue")
    (plan,) = json.loads(typed("plan", *words, "--json").stdout)["plans"]
    cluster.refusals["POST jobsets"] = forbidden("jobsets")
    assert typed("run", *words).returncode == 1
    assert plan["files"] == {path: Path(path).read_text() for path in plan["files"]}


@pytest.mark.parametrize(("prepare", "job"), [("/raw", "prepare"), ("/raw", "node"), (None, "node")])
def test_a_job_whose_pods_cannot_be_created_is_named_with_the_reason(cluster, prepare, job):
    labels = {"app.kubernetes.io/instance": "c"}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {}}
    cluster.put(owner | {"metadata": {"name": "c", "labels": labels}})
    refused = {"reason": "FailedCreate", "message": f"c-{job}-0-0 is forbidden: exceeded quota"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}}
    cluster.put(event | refused | {"involvedObject": {"name": f"c-{job}-0"}})
    batch = Batch(Config(image="x", prepare=prepare))
    (query,) = batch.queries("c")
    (task,) = batch.tasks(subprocess.run(query, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert task.how == f"has no pods yet: {refused['message']}"


PAGE = ROOT / "docs" / "64-nodes-kubernetes.md"
ROW = re.compile(r"^\| ([^|`]+) \| `([^`]+)` \| (\d|as scored) \| ([^|]+) \|$", re.MULTILINE)
TABLE = {what: row for what, *row in ROW.findall(PAGE.read_text())}


def waiting(reason, message):
    return {"phase": "Pending", "containerStatuses": node(waiting={"reason": reason, "message": message})}


def condition(kind, status, message, **more):
    return {"type": kind, "status": status, "message": message, **more}


WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {"name": "w", "ownerReferences": [{"name": "resnet-mini-c"}]},
    "status": {"conditions": [condition("QuotaReserved", "False", "need 8 more GPUs")]},
}
AT_FIRST = {
    "no node has room, then one": {
        "phase": "Pending",
        "conditions": [condition("PodScheduled", "False", "0/3 nodes are available: 3 Insufficient gpu.")],
    },
    "the queue does not admit it, then does": {"phase": "Pending"},
    "the registry does not answer, then does": waiting("ErrImagePull", "i/o timeout"),
    "all pods are preempted twice": {"phase": "Running"},
}
"""Status of a pod that trains later."""

NEVER_STARTS = {
    "the image does not exist": waiting("ImagePullBackOff", "bench:1: not found"),
    "a pod refers to a secret that is missing, and never starts": waiting(
        "CreateContainerConfigError", 'secret "s" not found'
    ),
}
FAILS = {
    "a pod runs out of memory": {
        "containerStatuses": node(terminated={"reason": "OOMKilled", "exitCode": 137})
    },
    "a node evicts a pod": {"reason": "Evicted", "message": "The node was low on resource: memory."},
    "a pod is preempted, without a volume or in a TrainJob": {
        "conditions": [
            condition(
                "DisruptionTarget",
                "True",
                "preempting to accommodate a higher priority pod",
                reason="PreemptionByScheduler",
            )
        ]
    },
    "an operator starts 3 pods of a plan for 2": {
        "containerStatuses": node(
            terminated={"exitCode": 2, "message": "train-bench: PET_NNODES is 3 in this pod, and ..."}
        )
    },
}
NO_RIGHTS = forbidden("jobsets.jobset.x-k8s.io")[1]
REFUSED = {
    "the quota does not allow it": NO_RIGHTS
    | {"message": 'jobsets "c" is forbidden: exceeded quota: q, requested: count/jobsets=1'},
    "the user has no rights": NO_RIGHTS,
}


def trains_later(cluster, status, *, after, suspended=False, restarts=0):
    """The next job has a pod with this status at first; at a later request it is done, and has sent its files."""

    def created(one):
        if one["kind"] != "JobSet":
            return
        name = one["metadata"]["name"]
        one["spec"]["suspend"] = suspended
        one["status"] = {"restarts": restarts}
        cluster.put(a_pod(name, **status))
        if suspended:
            cluster.put(WORKLOAD)
        logs = [line for run in (0, 1) for line in sent_files.lines_of(f"result_{run}.txt", b"")]
        cluster.logs["p0"] = "\n".join([*logs, ""])

    def answer(method, path, body):
        if cluster.requests.count("GET jobsets") >= after:
            for one in cluster.objects["jobsets"].values():
                one["spec"]["suspend"] = False
                one["status"]["conditions"] = [condition("Completed", "True", "m")]
            cluster.objects["workloads"].clear()
        return answered(method, path, body)

    answered = cluster.answer
    cluster.created, cluster.answer = created, answer


def a_kubectl(folder, monkeypatch, script):
    """In place of the real one, or of any."""
    folder.mkdir()
    if script is not None:
        (folder / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "kubectl").chmod(0o755)
    rest = "" if script is None else f":{os.environ['PATH']}"
    monkeypatch.setenv("PATH", f"{folder}{rest}")


@pytest.mark.parametrize("what", TABLE)
def test_every_end_is_as_the_page_says(cluster, tmp_path, monkeypatch, what):
    sentence, code, stays = TABLE[what]
    if what in AT_FIRST:
        restarts = 2 if "twice" in what else 0
        trains_later(cluster, AT_FIRST[what], after=2, suspended="queue" in what, restarts=restarts)
    elif what in NEVER_STARTS:
        ends(cluster, None, **NEVER_STARTS[what])
    elif what in FAILS:
        ends(cluster, "Failed", phase="Failed", **FAILS[what])
    elif what in REFUSED:
        cluster.refusals["POST jobsets"] = (403, REFUSED[what])
    elif what == "the API server goes away":
        monkeypatch.setattr(batch_queue, "SILENCE_SECONDS", 0.0)
        cluster.refusals["GET jobsets"] = (503, {"kind": "Status", "message": "i/o timeout", "code": 503})
    elif what == "the log lacks a result":
        ends(cluster, "Completed", phase="Succeeded")
    elif what == "another object has the name":
        cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "resnet-mini-c"}})
    elif what == "kubectl is not installed":
        a_kubectl(tmp_path / "bin", monkeypatch, None)
    else:
        assert what == "kubectl is too old"
        a_kubectl(tmp_path / "bin", monkeypatch, "echo 'error: unknown flag: --cascade' >&2; exit 1")
    queue = ["launcher.queue=team"] if "queue" in what else []
    answer = typed("run", "benchmark=resnet_mini", *WORDS, *queue, f"output={tmp_path / 'c'}")
    said = " ".join(f"{answer.stdout} {answer.stderr}".split())
    assert sentence in said
    assert code == ("as scored" if what in AT_FIRST else str(answer.returncode))
    left = {
        "nothing": [],
        "the job": ["configmaps/resnet-mini-c", "jobsets/resnet-mini-c"],
        "that object": ["configmaps/resnet-mini-c"],
    }
    assert [name for name in cluster.all() if not name.startswith(("pods/", "workloads/"))] == left[stays]
    if stays == "nothing" and what not in AT_FIRST and not what.startswith("kubectl"):
        failed = badly_ended(tmp_path / "c")
        assert what in REFUSED or sentence in " ".join(failed)


def test_a_user_who_may_not_read_secrets_makes_and_deletes_that_of_the_token(cluster, tmp_path):
    plan = make(f"output={tmp_path / 'c'}", *WORDS, "launcher.nodes=2")
    begin(plan)
    command_trust.note(Campaign.of(plan))
    cluster.refusals["POST jobsets"] = (403, NO_RIGHTS)
    with pytest.raises(TrainBenchError, match=r"role\.yaml"):
        submit(plan, "launcher.nodes=2")
    assert cluster.all() == []
    del cluster.refusals["POST jobsets"]
    trains_later(cluster, {"phase": "Running"}, after=2)
    assert "job resnet-mini-c is done" in submit(plan, "launcher.nodes=2")
    assert cluster.all() == []
    assert cluster.requests.count("POST secrets") == cluster.requests.count("DELETE secrets") == 2


@pytest.fixture
def kubelet(cluster, tmp_path):
    """Pods are processes here."""
    (tmp_path / "pods").mkdir()
    one = Kubelet(cluster, tmp_path / "pods")
    yield one
    one.stop()


@pytest.fixture
def on_two_hosts(kubelet):
    """Its two pods have addresses of their own. Needs root; where CI is set, its absence is a failure."""
    try:
        with fleet(2) as kubelet.hosts:
            yield
    except (OSError, subprocess.CalledProcessError) as error:
        needs.namespaces(error)


def free_port():
    """Of this machine, on which all pods are."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def on_pods(tmp_path, benchmark, *more, nodes=2):
    """What is typed for a campaign on pods."""
    where = (f"output={tmp_path / 'c'}", f"data_dir={tmp_path / 'data'}", "seed=1", "device=cpu")
    own = (
        "launcher=kubernetes",
        "launcher.image=bench:1",
        "launcher.threads_per_rank=1",
        f"launcher.nodes={nodes}",
    )
    port = f"launcher.master_port={free_port()}"
    return ("run", f"benchmark={benchmark}", *where, *own, port, *more)


CLAIM = "launcher.volumes=[claim:/results]"


def outcomes(tmp_path):
    """How each attempt has ended."""
    attempts = (tmp_path / "c" / "attempts").glob("*.json")
    return {path.stem: json.loads(path.read_text())["outcome"] for path in attempts}


def has_begun(log, process):
    """Whether the clock of a run has started, in a campaign that has not ended."""
    assert process.poll() is None, process.communicate()[0]
    return log.exists() and "run_start" in log.read_text()


@pytest.mark.full
@pytest.mark.timeout(900)
@needs.program("namespaces")
@pytest.mark.parametrize("volumes", [(), (CLAIM,)], ids=["without", "volume"])
@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_a_campaign_of_five_runs_on_two_pods_is_valid(cluster, kubelet, request, tmp_path, kind, volumes):
    """Those of a JobSet are on hosts of their own; the operator's status is sent to this one."""
    if kind == "jobset":
        request.getfixturevalue("on_two_hosts")
    answer = train_bench(*on_pods(tmp_path, "dlrm_mini", f"launcher.kind={kind}", *volumes))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "job dlrm-mini-c is done" in answer.stdout
    assert "VALID" in answer.stdout
    states = [json.loads(path.read_text()) for path in (tmp_path / "c" / "ranks").glob("run_*/rank_*.json")]
    assert [one["state"] for one in states] == 10 * ["finished"]
    percentages = [one["progressPercentage"] for one in cluster.statuses]
    assert percentages[-1:] == ([100] if kind == "trainjob" else [])
    assert percentages == sorted(percentages)
    assert cluster.all() == []


@pytest.mark.full
@pytest.mark.timeout(900)
def test_runs_at_once_are_valid_though_a_pod_of_them_and_that_of_their_data_are_preempted(
    cluster, kubelet, tmp_path
):
    volumes = f"launcher.volumes=[claim:/results,data:{tmp_path / 'data'}]"
    own = (volumes, "launcher.at_once=2", "launcher.prepare=/raw")
    with laid_out(tmp_path):
        command = [sys.executable, "-m", "train_bench", *on_pods(tmp_path, "waves", *own, nodes=1)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            wait_for(lambda: kubelet.runs("prepare"))
            kubelet.preempt(0, "prepare")
            log = tmp_path / "pods" / "claim" / "waves-c" / "result_1.txt.part"
            wait_for(lambda: has_begun(log, process))
            kubelet.preempt(1)
            said = process.communicate()[0]
    assert process.returncode == 0, said
    assert "VALID" in said
    ended = outcomes(tmp_path)
    assert (ended["run_1_1"], ended["run_1_2"]) == ("interrupted", "finished")
    assert kubelet.most == 2
    assert cluster.all() == []


@pytest.mark.full
@pytest.mark.timeout(900)
def test_runs_at_once_without_a_volume_are_collected_from_their_pods(cluster, kubelet, tmp_path):
    with laid_out(tmp_path):
        answer = train_bench(*on_pods(tmp_path, "waves", "launcher.at_once=3", nodes=1))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "VALID" in answer.stdout
    assert kubelet.most == 3
    assert cluster.all() == []


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_campaign_that_is_preempted_twice_is_valid_and_says_what_it_lost(cluster, kubelet, tmp_path):
    folder = tmp_path / "pods" / "claim" / "waves-c"
    with laid_out(tmp_path):
        words = on_pods(tmp_path, "waves", CLAIM, "launcher.grace_seconds=30")
        command = [sys.executable, "-m", "train_bench", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for run, index in ((0, 1), (2, 0)):
                log = folder / f"result_{run}.txt.part"
                wait_for(lambda log=log: has_begun(log, process))
                kubelet.preempt(index)
            said = process.communicate()[0]
        assert process.returncode == 0, said
        assert "is done, after 2 preemption(s)" in said
    words = " ".join(said.split())
    assert "VALID" in words
    for run in (0, 2):
        assert f"result_{run}.txt: This run had 2 attempts: attempt 1 was interrupted." in words
    ended = outcomes(tmp_path)
    assert ended["run_0_1"] == ended["run_2_1"] == "interrupted"
    assert ended["run_0_2"] == ended["run_2_2"] == ended["run_1_1"] == "finished"
    assert cluster.all() == []
