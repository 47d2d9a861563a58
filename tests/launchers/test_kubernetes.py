"""Kubernetes as text: manifests, states of pods, and what kubectl says. Needs no kubectl."""

import json
import os
import re
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests import needs
from tests.command_line import typed
from tests.fake_campaigns import begin, make
from tests.run.fakes import job
from tests.sandbox import ROOT
from train_bench.campaign import begin as start_of_campaigns
from train_bench.campaign import join, refusals
from train_bench.campaign.opened import Campaign
from train_bench.core import files
from train_bench.core.job import Device
from train_bench.errors import RequestError
from train_bench.launchers.kubernetes import drop_caches, pod, state
from train_bench.launchers.kubernetes.batch import Batch
from train_bench.launchers.kubernetes.config import Config, Kind
from train_bench.launchers.kubernetes.manifest import job_name
from train_bench.launchers.kubernetes.start import Launcher

SNAPSHOTS = Path(__file__).parent / "kubernetes"
RUN = ("python", "-m", "train_bench", "run", "resume=/home/ann/c", "on_failure=stop", "trust=true")
SHARED = {"image": "registry.example/bench:1", "volumes": ["results:/results"]}

MANIFESTS = {
    "one_pod": {"image": "registry.example/bench:1", "resources": ["cpu=8"]},
    "two_pods_without_a_volume": {"image": "registry.example/bench:1", "nodes": 2},
    "prepared_runs_at_once": {
        "image": "registry.example/bench:1",
        "at_once": 2,
        "prepare": "/raw",
        "resources": ["cpu=8", "nvidia.com/gpu=1"],
        "volumes": ["results:/results", "data:/data", "raw:/raw"],
    },
    "two_pods": SHARED | {"nodes": 2, "secrets": ["tracker"], "stage_from": "/results/data"},
    "two_pods_of_a_train_job": SHARED
    | {
        "nodes": 2,
        "kind": Kind.trainjob,
        "queue": "team",
        "topology": "example/rack",
    },
    "sixty_four_pods": {
        "image": "registry.example/bench:1",
        "nodes": 64,
        "nproc_per_node": 8,
        "resources": ["cpu=96", "memory=1Ti", "nvidia.com/gpu=8", "rdma/hca=8", "hugepages-2Mi=4Gi"],
        "volumes": ["results:/results", "c4:/data"],
        "shm": "64Gi",
        "queue": "team",
        "topology": "example/rack",
        "host_network": True,
        "namespace": "bench",
        "pod": {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": "node", "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}]}],
        },
    },
}


def manifest(name):
    """The manifest of a campaign of two runs."""
    data = {"hyperparameters": {"global_batch_size": 32}, "data_dir": "/data/fake"}
    jobs = [job(Path("/home/ann/c"), index=index, launcher="kubernetes", config=data) for index in range(2)]
    return (
        Batch(Config(**MANIFESTS[name])).submission(jobs, RUN).files[Path("/home/ann/c/kubernetes/job.yaml")]
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifest_is_the_one_that_was_looked_at(name):
    path = SNAPSHOTS / f"{name}.yaml"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(manifest(name))
    assert manifest(name) == path.read_text()
    assert Launcher(Config(**MANIFESTS[name])).refuse(None) is None


@pytest.mark.parametrize(
    ("options", "of_job", "seconds"),
    [
        ({}, {}, 60),
        ({}, {"checkpoint_seconds": 0.0}, 60),
        ({}, {"checkpoint_seconds": 60.0, "grace_seconds": 120.5}, 151),
        ({"grace_seconds": 5}, {"checkpoint_seconds": 60.0, "grace_seconds": 120.0}, 5),
    ],
)
def test_a_pod_has_the_time_of_a_checkpoint_to_end(options, of_job, seconds):
    one = job(Path("/c"), **of_job)
    (text,) = Batch(Config(**SHARED, **options)).submission([one], RUN).files.values()
    (replicated,) = yaml.safe_load(text)["spec"]["replicatedJobs"]
    spec = replicated["template"]["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize(
    ("policy", "volume", "limit", "action"),
    [
        ("stop", "results:/results", "backoffLimit", "Ignore"),
        ("continue", "results:/results", "backoffLimitPerIndex", "Ignore"),
        ("stop", None, "backoffLimit", "FailJob"),
        ("continue", None, "backoffLimitPerIndex", "FailIndex"),
    ],
)
def test_a_failed_run_of_many_at_once_ends_the_others_as_the_policy_says(policy, volume, limit, action):
    needs.package("kubernetes_validate")
    import kubernetes_validate

    config = Config(image="x", at_once=2, volumes=[volume] if volume else [])
    jobs = [job(Path("/c"), index=index, launcher="kubernetes") for index in (0, 2, 3)]
    words = (*RUN[:-2], f"on_failure={policy}", "trust=true")
    spec = yaml.safe_load(*Batch(config).submission(jobs, words).files.values())["spec"]
    assert spec["failurePolicy"] == {"maxRestarts": 0}
    template = spec["replicatedJobs"][0]["template"]
    one = template["spec"]
    assert (one["completions"], one["parallelism"]) == (3, 2)
    assert {key for key in one if key.startswith("backoff")} == {limit}
    assert {rule["action"] for rule in one["podFailurePolicy"]["rules"]} == {action}
    content = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, **template}
    kubernetes_validate.validate(content, "1.31", strict=True)
    assert state.INDEX not in " ".join(Batch(config).logs("c").argv)
    assert state.INDEX in " ".join(Batch(Config(image="x")).logs("c").argv)


def fields_lost(lower, upper, path=""):
    """Fields of a manifest that its model does not have."""
    if isinstance(lower, dict):
        for key, value in lower.items():
            yield from fields_lost(value, upper[key], f"{path}.{key}") if key in upper else [f"{path}.{key}"]
    elif isinstance(lower, list):
        for number, (one, other) in enumerate(zip(lower, upper, strict=True)):
            yield from fields_lost(one, other, f"{path}[{number}]")
    elif lower != upper:
        yield f"{path}: {lower} became {upper}"


@pytest.mark.parametrize("name", MANIFESTS)
def test_each_field_is_one_of_jobset_and_trainer(name):
    needs.package("kubeflow_trainer_api")
    from kubeflow_trainer_api import models

    content = yaml.safe_load(manifest(name))
    kinds = {"JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob}
    kind = kinds[content["kind"]]
    assert list(fields_lost(content, kind.from_dict(content).to_dict())) == []
    content["spec"]["suspended"] = True
    assert list(fields_lost(content, kind.from_dict(content).to_dict())) == [".spec.suspended"]


@pytest.mark.parametrize("name", [name for name in MANIFESTS if "train_job" not in name])
def test_the_job_of_a_jobset_is_one_of_kubernetes(name):
    needs.package("kubernetes_validate")
    import kubernetes_validate

    for replicated in yaml.safe_load(manifest(name))["spec"]["replicatedJobs"]:
        content = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            **replicated["template"],
        }
        for version in ("1.31", "1.37"):
            kubernetes_validate.validate(content, version, strict=True)
        content["spec"]["template"]["spec"]["containers"][0]["imag"] = "x"
        with pytest.raises(kubernetes_validate.ValidationError, match="imag"):
            kubernetes_validate.validate(content, "1.37", strict=True)


def test_a_campaign_without_a_volume_is_not_restarted_since_its_finished_runs_would_be_lost():
    policy = yaml.safe_load(manifest("one_pod"))["spec"]["failurePolicy"]
    assert policy == {"maxRestarts": 0}
    assert yaml.safe_load(manifest("two_pods"))["spec"]["failurePolicy"]["rules"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"image": None}, "needs launcher.image=IMAGE"),
        ({"image": "a b"}, "launcher.image has 'a b'; it has to be the name of an image"),
        ({"nodes": 0}, "launcher.nodes is 0"),
        ({"grace_seconds": 0}, "launcher.grace_seconds is 0"),
        ({"prepare": "raw"}, "launcher.prepare has 'raw'"),
        ({"stage_from": "c4"}, "launcher.stage_from has 'c4'"),
        ({"prepare": "/raw", "kind": Kind.trainjob}, "launcher.prepare is for launcher.kind=jobset"),
        ({"at_once": 0}, "launcher.at_once is 0"),
        ({"at_once": 2, "nodes": 2}, "launcher.at_once=2 is for runs on one host each"),
        ({"at_once": 2, "kind": Kind.trainjob}, "launcher.at_once=2 is for runs on one host each"),
        ({"master_port": 65535}, "launcher.master_port is 65535; allowed are 1 to 65534"),
        ({"volumes": ["results"]}, "has to be CLAIM:/PATH"),
        ({"resources": ["cpu=many"]}, "has to be NAME=QUANTITY"),
        ({"pod": "x"}, "it has to be fields of a pod"),
        ({"shm": "lots"}, "has to be a quantity such as 16Gi"),
        ({"context": "--help"}, "the name of a context"),
        ({"secrets": ["a b"]}, "the name of a secret"),
        ({"kind": Kind.trainjob, "host_network": True}, "A TrainJob cannot have dnsPolicy, hostNetwork"),
        ({"kind": Kind.trainjob, "secrets": ["s"]}, "A TrainJob cannot have node.envFrom"),
        ({"kind": Kind.trainjob, "pod": {"containers": [{"name": "proxy"}]}}, "A TrainJob cannot have proxy"),
        ({"kind": Kind.trainjob, "stage_from": "/results/x"}, "A TrainJob cannot have stage.image, stage."),
        (
            {"kind": Kind.trainjob, "pod": {"initContainers": [{"name": "init", "env": [], "image": "x"}]}},
            "A TrainJob cannot have init.image of its pods",
        ),
        (
            {"kind": Kind.trainjob, "pod": {"initContainers": ["busybox"]}},
            "A TrainJob cannot have initContainers 'busybox'",
        ),
    ],
)
def test_what_makes_no_manifest_is_refused(options, sentence):
    assert sentence in Launcher(Config(**(SHARED | options))).refuse(None)


@pytest.mark.parametrize(
    ("volume", "mirrors"), [("c:/fast", False), ("c:/fast/", False), ("c:/fas", True), (None, True)]
)
def test_two_pods_share_a_folder_below_a_volume_and_mirror_it_without_one(volume, mirrors):
    config = Config(nodes=2, image="x", volumes=[volume] if volume else [], folder="/fast/results")
    assert config.mirrors == mirrors
    assert (config.cannot_continue is not None) == mirrors
    assert not Config(image="x").mirrors


@pytest.mark.parametrize(
    ("resource", "enough"), [("cpu", False), ("amd.com/gpu", True), ("nvidia.com/mig-1g.5gb", True)]
)
def test_ranks_on_gpus_need_pods_with_gpus(resource, enough):
    batch = Batch(Config(image="x", resources=[f"{resource}=1"]))
    refused = batch.refuse_job(job(Path("/c"), device=Device.cuda, nproc_per_node=8))
    assert enough == (refused is None)
    assert enough or "launcher.resources=[nvidia.com/gpu=8]" in refused
    assert batch.refuse_job(job(Path("/c"), device=Device.cpu)) is None


@pytest.mark.parametrize(("data_dir", "kept"), [("/data/fake", True), ("/data", True), ("/datasets", False)])
def test_data_are_prepared_by_one_pod_where_the_others_find_them(data_dir, kept):
    batch = Batch(Config(image="x", prepare="/raw", volumes=["claim:/data"]))
    refused = batch.refuse_job(job(Path("/c"), config={"data_dir": data_dir}))
    assert (refused is None) == kept
    assert kept or f"no volume keeps data_dir={data_dir}; mount one there" in refused


@pytest.mark.parametrize(
    ("volumes", "copies"), [(["c:/c4"], True), (["c:/c4", "d:/data"], False), (["d:/other"], False)]
)
def test_data_are_copied_from_a_volume_to_the_disk_of_a_node(volumes, copies, tmp_path):
    batch = Batch(Config(image="x", stage_from="/c4/prepared", volumes=volumes))
    one = job(Path("/c"), config={"data_dir": "/data/fake"})
    refused = batch.refuse_job(one)
    assert (refused is None) == copies
    assert copies or "mount one at /c4/prepared, and none at data_dir" in refused
    if copies:
        (text,) = batch.submission([one], RUN).files.values()
        pod = yaml.safe_load(text)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        (stage,) = pod["initContainers"]
        assert {"/c4", "/data/fake"} <= {mount["mountPath"] for mount in stage["volumeMounts"]}
        fill = tmp_path / "c4" / "prepared" / "part"
        fill.mkdir(parents=True)
        (fill / "manifest.json").touch()
        (tmp_path / "data" / "fake").mkdir(parents=True)
        subprocess.run(
            [
                word.replace("/c4", f"{tmp_path}/c4").replace("/data", f"{tmp_path}/data")
                for word in stage["command"]
            ],
            check=True,
        )
        assert (tmp_path / "data" / "fake" / "part" / "manifest.json").exists()


@pytest.mark.parametrize("data_dir", ["/etc/train_bench", "/etc", "/dev/shm", "/"])
def test_data_are_not_copied_over_what_pods_need(data_dir):
    batch = Batch(Config(image="x", stage_from="/c4/prepared", volumes=["c:/c4"]))
    refused = batch.refuse_job(job(Path("/c"), config={"data_dir": data_dir}))
    assert f"mounts a disk at data_dir={data_dir}, over files that the pods need" in refused


def test_who_says_nothing_does_not_keep_the_program_that_drops_caches(monkeypatch):
    monkeypatch.setattr(drop_caches, "CLIENT_SECONDS", 0.1)
    server = drop_caches.served(0)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as silent:
            assert silent.recv(1) == b""
    finally:
        server.shutdown()
        server.server_close()


def test_the_caches_of_a_node_are_dropped_by_its_privileged_pod(tmp_path, monkeypatch):
    monkeypatch.setattr(drop_caches, "DROP", tmp_path / "drop_caches")
    server = drop_caches.served(0)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    try:
        assert drop_caches.dropped("127.0.0.1", server.server_port) is None
        assert (tmp_path / "drop_caches").read_text() == "3\n"
        monkeypatch.setattr(drop_caches, "DROP", tmp_path / "no" / "drop_caches")
        said = drop_caches.dropped("127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
    assert said.endswith("drop_caches: No such file or directory.")
    assert "does not answer" in drop_caches.dropped("127.0.0.1", server.server_port)


def test_the_privileged_pods_are_those_of_kubernetes_at_the_port_that_is_asked():
    needs.package("kubernetes_validate")
    import kubernetes_validate

    content = yaml.safe_load((ROOT / "launchers" / "kubernetes" / "drop_caches.yaml").read_text())
    kubernetes_validate.validate(content, "1.37", strict=True)
    (container,) = content["spec"]["template"]["spec"]["containers"]
    assert [port["hostPort"] for port in container["ports"]] == [drop_caches.PORT]


def test_failed_runs_are_not_repeated_where_no_volume_keeps_their_attempts():
    with pytest.raises(RequestError, match=r"no volume keeps them at launcher.folder=/results"):
        Batch(Config(image="x")).submission([job(Path("/c"))], (*RUN, "retry_failed=true"))


@pytest.mark.parametrize(
    ("benchmark", "folder", "name"),
    [
        ("resnet_mini", "C_1.2", "resnet-mini-c-1-2"),
        ("resnet", "2026-11-28_10-00-00", "resnet-2026-11-28-10-00-00"),
        ("bert", "x" * 60, "bert-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-6623392c"),
    ],
)
def test_a_job_has_a_name_that_hosts_may_have(benchmark, folder, name):
    assert job_name(benchmark, Path("/home/ann") / folder) == name
    assert len(f"{name}-node-0-63") <= 63


def test_data_of_this_host_are_not_those_of_pods(monkeypatch, tmp_path):
    """Pods read the folder that is named, and prepare what is not in it."""
    monkeypatch.setattr(Campaign, "data_in_cache", True)
    campaign = Campaign.of(make("launcher=kubernetes", "launcher.image=x"))
    assert "and runs with launcher=kubernetes are elsewhere. Give data_dir=DIR" in next(
        refusals.queue(campaign)
    )
    monkeypatch.setattr(Campaign, "data_in_cache", False)
    (tmp_path / "kubectl").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert list(refusals.queue(campaign)) == []


PLAN = {"shared": {"nodes": 4, "nproc_per_node": 1, "launcher_config": {}}, "jobs": [{"index": 0}]}


def started(folder, index, plan):
    environ = {} if index is None else {"JOB_COMPLETION_INDEX": str(index)}
    return pod.command(plan, folder / "results" / "c", ("trust=true", "only=[0]"), environ)


def test_the_first_pod_carries_out_the_campaign_and_the_others_join_it(tmp_path):
    plan, folder = tmp_path / "plan.json", tmp_path / "results" / "c"
    files.write_json(plan, PLAN)
    for _ in range(2):  # a pod that is started again finds the plan
        assert started(tmp_path, 0, plan) == ("run", f"resume={folder}", "trust=true", "only=[0]")
    assert files.read_json(folder / "plan.json") == PLAN
    assert started(tmp_path, 3, plan) == ("join", str(folder), "launcher.node_rank=3", "trust=true")


def test_a_folder_with_another_campaign_is_left_alone(tmp_path):
    folder = tmp_path / "results" / "c"
    files.write_json(tmp_path / "plan.json", PLAN)
    files.write_json(folder / "plan.json", {"jobs": [2]})
    with pytest.raises(RequestError, match="holds another campaign"):
        started(tmp_path, 0, tmp_path / "plan.json")
    assert files.read_json(folder / "plan.json") == {"jobs": [2]}


def test_pods_of_runs_at_once_carry_them_out_in_their_order(tmp_path):
    shared = {"nodes": 1, "nproc_per_node": 1, "launcher_config": {"at_once": 2}}
    files.write_json(tmp_path / "plan.json", {"shared": shared, "jobs": [{"index": 0}]})
    folder = tmp_path / "results"
    for index, run in enumerate(("0", "2", "13")):
        words = pod.command(
            tmp_path / "plan.json",
            folder,
            ("trust=true", "only=[0,2,13]"),
            {"JOB_COMPLETION_INDEX": str(index)},
        )
        assert words == ("run", f"resume={folder}", "trust=true", f"only=[{run}]")


def test_another_number_of_pods_than_planned_is_refused(tmp_path):
    files.write_json(tmp_path / "plan.json", PLAN)
    environ = {"PET_NNODES": "3", "PET_NODE_RANK": "1"}
    with pytest.raises(RequestError, match=r"PET_NNODES is 3 in this pod, and the plan has 4 host\(s\)"):
        pod.command(tmp_path / "plan.json", tmp_path / "c", (), environ)


def job_set(*conditions, **more):
    listed = [{"type": kind, "status": "True", "message": "of the JobSet"} for kind in conditions]
    return {
        "kind": "JobSet",
        "metadata": {"name": "c"},
        "spec": {"suspend": more.pop("suspend", False)},
        "status": {"conditions": listed, **more},
    }


def a_pod(index=0, phase="Pending", *, waiting=None, terminated=None, conditions=(), **status):
    states = {"waiting": waiting} if waiting else {"terminated": terminated} if terminated else {}
    return {
        "kind": "Pod",
        "metadata": {"name": f"c-{index}", "labels": {state.INDEX: str(index)}},
        "spec": {"nodeName": f"n{index}"},
        "status": {
            "phase": phase,
            "conditions": list(conditions),
            "containerStatuses": [{"name": "node", "state": states}],
            **status,
        },
    }


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "message": "0/3 nodes are available: 3 Insufficient gpu.",
}
PREEMPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "preempting to accommodate a higher priority pod",
}
LOST = {
    "exitCode": 1,
    "finishedAt": "2026-11-28T10:00:09Z",
    "message": "train-bench: rank 0 failed: peer is gone",
}
WORDS = "train-bench: Run 0 (1 of 5) failed: rank 3 killed by SIGKILL.\n:::TRAIN_BENCH_FILE failed 0 1/1 x\n"

STATES = [
    (
        [job_set(), a_pod(conditions=[UNSCHEDULABLE])],
        r"waits: host 0 \(pod c-0 on n0\) is pending: 0/3 nodes are available",
    ),
    ([job_set(), a_pod(waiting={"reason": "ContainerCreating"})], "waits: .* is pending: ContainerCreating"),
    ([job_set(), a_pod()], "waits: .* is pending: its node prepares it"),
    (
        [
            job_set(),
            a_pod(1, waiting={"reason": "ErrImagePull", "message": "i/o timeout"}),
            a_pod(0, "Running"),
        ],
        r"waits: host 1 .* pulls its image again \(ErrImagePull\): i/o timeout",
    ),
    ([job_set(), a_pod(0, "Running"), a_pod(1, "Running")], r"is running: 2 pod\(s\)"),
    ([job_set(restarts=2), a_pod(0, "Running")], r"is running: 1 pod\(s\), after 2 preemption"),
    ([job_set(suspend=True)], "is suspended, and waits to be admitted"),
    (
        [
            job_set(suspend=True),
            {
                "kind": "Workload",
                "metadata": {"name": "w", "ownerReferences": [{"name": "c"}]},
                "status": {
                    "conditions": [
                        {"type": "QuotaReserved", "status": "False", "message": "need 8 more GPUs"}
                    ]
                },
            },
        ],
        "waits to be admitted: need 8 more GPUs",
    ),
    ([job_set()], "has no pods yet"),
    (
        [
            job_set(),
            {"kind": "Event", "metadata": {"name": "e"}, "message": "pods is forbidden: exceeded quota: q"},
        ],
        "has no pods yet: pods is forbidden: exceeded quota: q",
    ),
]
BAD_ENDS = [
    (
        [job_set(), a_pod(waiting={"reason": "ImagePullBackOff", "message": "x:1: not found"})],
        r"cannot start: host 0 \(pod c-0 on n0\) cannot pull its image \(ImagePullBackOff\): x:1: not found",
    ),
    ([job_set(), a_pod(waiting={"reason": "InvalidImageName"})], "has an image with an invalid name"),
    (
        [
            job_set(),
            a_pod(waiting={"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}),
        ],
        r"lacks what its container refers to \(CreateContainerConfigError\): secret \"s\" not found",
    ),
    (
        [
            job_set("Failed"),
            a_pod(0, "Failed", terminated=LOST),
            a_pod(
                1,
                "Failed",
                terminated={"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-28T10:00:10Z"},
            ),
        ],
        r"failed: host 1 \(pod c-1 on n1\) ran out of memory \(OOMKilled\)",
    ),
    (
        [
            job_set("Failed"),
            a_pod(1, "Failed", reason="Evicted", message="The node was low on resource: memory."),
            a_pod(0, "Failed", terminated=LOST),
        ],
        "failed: host 1 .* was evicted: The node was low on resource: memory",
    ),
    (
        [
            job_set("Failed", restarts=1),
            a_pod(0, "Failed", conditions=[PREEMPTED]),
            a_pod(1, "Failed", terminated=LOST),
        ],
        r"failed, after 1 preemption\(s\): host 0 .* was preempted \(PreemptionByScheduler\): preempting to acc",
    ),
    (
        [job_set("Failed"), a_pod(0, "Failed", reason="DeadlineExceeded", message="too long")],
        r"failed: host 0 .* failed \(DeadlineExceeded\): too long",
    ),
    (
        [job_set("Failed"), a_pod(0, "Failed", terminated={"exitCode": 1, "message": WORDS})],
        r"failed: host 0 .* ended with exit code 1: train-bench: Run 0 \(1 of 5\) failed: rank 3 killed by SIGKILL",
    ),
    (
        [job_set("Failed"), a_pod(0, "Failed", terminated={"exitCode": 137})],
        "failed: host 0 .* killed by SIGKILL",
    ),
    ([job_set("Failed")], "failed: of the JobSet"),
    (
        [
            job_set("Failed"),
            a_pod(
                0,
                "Failed",
                initContainerStatuses=[{"name": "copy", "state": {"terminated": {"exitCode": 4}}}],
            ),
        ],
        "failed: host 0 .* ended with exit code 4",
    ),
]


def task(objects):
    (one,) = state.task_of("\n".join(json.dumps({"kind": "List", "items": [item]}) for item in objects))
    assert one.name == "c"
    return one


@pytest.mark.parametrize(("objects", "how"), STATES)
def test_a_job_that_waits_or_runs_has_not_ended(objects, how):
    one = task(objects)
    assert not one.ended
    assert not one.good
    assert pytest.importorskip("re").search(how.replace("(pod c-0 on n0)", r"\(pod c-0 on n0\)"), one.how), (
        one.how
    )


@pytest.mark.parametrize(("objects", "how"), BAD_ENDS)
def test_a_bad_end_names_the_pod_and_the_cause(objects, how):
    one = task(objects)
    assert one.ended
    assert not one.good
    assert re.search(how, one.how), one.how


def replaced(pod, *, job, created):
    """The pod of a job, made at this minute."""
    pod["metadata"]["labels"][state.REPLICATED] = job
    pod["metadata"] |= {"name": f"c-{job}-{created}", "creationTimestamp": f"2026-11-28T10:0{created}:00Z"}
    return pod


@pytest.mark.parametrize("job", ["prepare", "node"])
def test_a_pod_that_was_replaced_is_not_blamed_for_a_later_failure(job):
    before = replaced(a_pod(0, "Failed", conditions=[PREEMPTED]), job=job, created=1)
    after = replaced(a_pod(0, "Succeeded", terminated={"exitCode": 0}), job=job, created=2)
    other = replaced(a_pod(1, "Failed", terminated=LOST), job="node", created=3)
    how = task([job_set("Failed"), other, after, before]).how
    assert how.startswith("failed: host 1 (pod c-node-3 on n1) ended with exit code 1")
    assert task([job_set("Failed"), other, before]).how.startswith(
        f"failed: {'host 0' if job == 'node' else 'preparation of the data'} (pod c-{job}-1 on n0) was preempted"
    )


def test_a_job_that_is_done_was_good():
    assert task([job_set("Completed", restarts=2)]).how == "is done, after 2 preemption(s)"
    assert task([job_set("Completed")]).good
    train_job = job_set("Complete") | {"kind": "TrainJob"}
    assert task([train_job]).good


def test_a_job_that_was_deleted_is_no_task():
    assert state.task_of('{"kind": "List", "items": []}') == ()


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ('pods "c" is forbidden: exceeded quota: q, requested: cpu=8', "The quota of the namespace"),
        ('Error from server (Forbidden): jobsets is forbidden: User "ann"', "launchers/kubernetes/role.yaml"),
        ("error: You must be logged in to the server (Unauthorized)", "Log in to the cluster"),
        ('error: no matches for kind "JobSet" in version "v1"', "Install JobSet on the cluster"),
        ('error: the server doesn\'t have a resource type "trainjobs"', "Install trainjobs on the cluster"),
        ('configmaps "c" already exists', "give this campaign another output=DIR"),
        ('strict decoding error: unknown field "spec.x"', "Fields in launcher.pod are misspelt"),
        ("error: unknown flag: --cascade", "This kubectl is too old"),
        ('error: context "x" does not exist', "kubectl config get-contexts"),
        (
            "The connection to the server 127.0.0.1:1 was refused - did you specify",
            "The cluster does not answer",
        ),
        ("Unable to connect to the server: dial tcp: lookup x: no such host", "The cluster does not answer"),
        ('Error from server (NotFound): namespaces "x" not found', "Check launcher.namespace"),
    ],
)
def test_what_kubectl_refuses_has_a_next_step(said, step):
    assert step in Batch(Config()).explain(f"sh refused: {said}")
    assert Batch(Config()).explain(f"sh refused: {said}").startswith(f"kubectl refused: {said}. ")


def test_the_role_allows_what_kubectl_is_asked_for():
    rules = yaml.safe_load((ROOT / "launchers" / "kubernetes" / "role.yaml").read_text())["rules"]
    allowed = {f"{verb} {kind}" for rule in rules for verb in rule["verbs"] for kind in rule["resources"]}
    assert {
        f"{verb} {kind}"
        for verb in ("create", "delete")
        for kind in ("jobsets", "trainjobs", "configmaps", "secrets")
    } <= allowed
    assert {"list pods", "get pods/log", "list events", "list workloads"} <= allowed
    assert {one for one in allowed if one.endswith(" secrets")} == {"create secrets", "delete secrets"}


def test_a_job_of_a_foreign_plan_is_not_deleted(tmp_path):
    """Its plan names a context of this user, and its batch.json a job there."""
    begin(
        make(f"output={tmp_path / 'c'}", "launcher=kubernetes", "launcher.image=x", "launcher.context=work")
    )
    files.write_json(tmp_path / "c" / "batch.json", {"job": "other", "runs": [0], "tasks": []})
    answer = typed("settle", str(tmp_path / "c"))
    assert answer.returncode == 2
    assert "settle would delete a job as the campaign in" in answer.stderr
    assert "launcher.context=work" in answer.stderr


def test_data_are_prepared_in_the_pods_and_not_where_a_campaign_is_submitted(tmp_path, monkeypatch):
    prepared = []
    monkeypatch.setattr(start_of_campaigns.data, "prepare", prepared.append)
    (tmp_path / "kubectl").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plan = make(f"output={tmp_path / 'c'}", "launcher=kubernetes", "launcher.image=x")
    start_of_campaigns.set_up(Campaign.of(plan))
    request = SimpleNamespace(refuse_other_overrides=lambda *_: {}, config=SimpleNamespace(trust=True))
    start_of_campaigns.resume(request, tmp_path / "c", print)
    assert prepared == []
    monkeypatch.setenv("TRAIN_BENCH_POD", "c")
    campaign = start_of_campaigns.resume(request, tmp_path / "c", print)
    assert prepared == [campaign]
    join._prepare_data(campaign)
    assert prepared == [campaign, campaign]
