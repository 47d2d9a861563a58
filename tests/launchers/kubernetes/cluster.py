"""An API server of Kubernetes, as far as kubectl asks it: discovery, objects, lists, logs, and refusals on demand."""

import json
import re
import threading
from collections import defaultdict
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

GROUPS = {
    "v1": {"configmaps": "ConfigMap", "secrets": "Secret", "pods": "Pod", "events": "Event"},
    "jobset.x-k8s.io/v1alpha2": {"jobsets": "JobSet"},
    "trainer.kubeflow.org/v1alpha1": {"trainjobs": "TrainJob"},
    "kueue.x-k8s.io/v1beta1": {"workloads": "Workload"},
}
OBJECT = re.compile(
    r"/apis?/(?P<group>.+?)/namespaces/(?P<namespace>[\w-]+)/(?P<kind>\w+)(/(?P<name>[\w.-]+))?(/log|/status)?"
)
NAMESPACE = "bench"


class Cluster:
    """Its objects by kind and name, `logs` by the names of pods, its `requests`, and the `statuses` that pods of
    TrainJobs have sent. `refusals` are answered to requests such as `POST jobsets`; by `role.yaml`, nobody
    reads secrets. `created` is called with each new object."""

    def __init__(self):
        self.objects = defaultdict(dict)
        self.logs, self.requests = {}, []
        self.refusals = {"GET secrets": forbidden("secrets", "get")}
        self.statuses = []
        self.created = self.deleted = lambda one: None

    def put(self, one):
        """Write an object, as a controller does."""
        kinds = {kind: plural for group in GROUPS.values() for plural, kind in group.items()}
        one["metadata"].setdefault("namespace", NAMESPACE)
        self.objects[kinds[one["kind"]]][one["metadata"]["name"]] = one

    def all(self):
        """Names of everything that is there."""
        return sorted(f"{kind}/{name}" for kind, named in self.objects.items() for name in named)

    def answer(self, method, path, body):
        """Status and object, or text, of a request."""
        url = urlsplit(path)
        if url.path == "/version":
            return 200, {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
        if url.path == "/api":
            return 200, {"kind": "APIVersions", "versions": ["v1"]}
        if url.path == "/apis":
            groups = [_group(version) for version in GROUPS if "/" in version]
            return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if url.path == "/openapi/v3":
            paths = {
                _root(version): {"serverRelativeURL": f"/openapi/v3/{_root(version)}"} for version in GROUPS
            }
            return 200, {"paths": paths}
        for version in GROUPS:
            if url.path == f"/{_root(version)}":
                return 200, _resources(version)
            if url.path == f"/openapi/v3/{_root(version)}":
                return 200, _schema(version)
        found = OBJECT.fullmatch(url.path)
        if found is None or found["kind"] not in GROUPS.get(found["group"], {}):
            return _status(404, "NotFound", "the server could not find the requested resource")
        self.requests.append(f"{method} {found['kind']}")
        if self.requests[-1] in self.refusals:
            return self.refusals[self.requests[-1]]
        return self._object(method, found, parse_qs(url.query), body, url.path.endswith("/log"))

    def _object(self, method, found, query, body, log):
        named, name = self.objects[found["kind"]], found["name"]
        if method == "POST" and name is not None:  # the status server of Kubeflow Trainer
            self.statuses.append(body["trainerStatus"])
            return 200, body
        if method == "POST":
            name = body["metadata"]["name"]
            if name in named:
                return _status(409, "AlreadyExists", f'{found["kind"]} "{name}" already exists')
            body["metadata"] |= {"namespace": found["namespace"], "uid": name}
            named[name] = body
            self.created(body)
            return 201, body
        if name is None:
            kind = GROUPS[found["group"]][found["kind"]]
            items = [one for one in list(named.values()) if _selected(one, query)]
            return 200, {"kind": f"{kind}List", "apiVersion": found["group"], "metadata": {}, "items": items}
        if name not in named:
            return _status(404, "NotFound", f'{found["kind"]} "{name}" not found')
        if log:
            if name in self.logs:
                return 200, text_of(self.logs[name])
            return _status(400, "BadRequest", f'container "node" in pod "{name}" is waiting to start')
        if method == "DELETE":
            one = named.pop(name)
            if found["kind"] in ("jobsets", "trainjobs"):
                self.objects["pods"].clear()
            self.deleted(one)
            return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        return 200, named[name]


def _root(version):
    return f"apis/{version}" if "/" in version else f"api/{version}"


def _schema(version):
    """Says that the server validates fields itself, so that kubectl does not."""
    group, _, number = version.rpartition("/")
    validates = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
    paths = {
        f"/{_root(version)}/namespaces/{{namespace}}/{plural}/{{name}}": {
            "patch": {
                "parameters": validates,
                "responses": {},
                "x-kubernetes-group-version-kind": {"group": group, "version": number, "kind": kind},
            }
        }
        for plural, kind in GROUPS[version].items()
    }
    return {"openapi": "3.0.0", "info": {"title": "own", "version": "1"}, "paths": paths}


def _group(version):
    one = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [one], "preferredVersion": one}


def _resources(version):
    listed = []
    for plural, kind in GROUPS[version].items():
        verbs = ["create", "delete", "get", "list", "watch"]
        listed.append(
            {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": verbs}
        )
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": listed}


def _status(code, reason, message):
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, status | {"reason": reason, "message": message, "code": code}


def text_of(log):
    """The text of a log that is a file or written down."""
    return log.read_text() if isinstance(log, Path) else log


def forbidden(what, verb="create"):
    """The answer to a user without rights."""
    said = f'{what} is forbidden: User "ann" cannot {verb} resource "{what}" in API group "x" in the namespace "bench"'
    return _status(403, "Forbidden", said)


def _selected(one, query):
    labels = one["metadata"].get("labels", {})
    for selector in query.get("labelSelector", [""])[0].split(","):
        key, _, value = selector.partition("=")
        if key and labels.get(key) != value:
            return False
    for selector in query.get("fieldSelector", [""])[0].split(","):
        key, _, value = selector.partition("=")
        field = one
        for part in key.split(".") if key else ():
            field = field.get(part, {})
        if key and field != value:
            return False
    return True


@contextmanager
def served(cluster, folder):
    """The configuration of kubectl for the cluster, which answers while it lasts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            body = yaml.safe_load(text) if text.startswith(b"{") else None
            code, answer = cluster.answer(self.command, self.path, body)
            content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(code)
            kind = "text/plain" if isinstance(answer, str) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PATCH = answer

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    path = folder / "kubeconfig"
    address = cluster.address = f"http://127.0.0.1:{server.server_port}"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "own", "cluster": {"server": address}}],
                "users": [{"name": "ann", "user": {}}],
                "contexts": [
                    {"name": "own", "context": {"cluster": "own", "user": "ann", "namespace": NAMESPACE}}
                ],
                "current-context": "own",
            }
        )
    )
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
