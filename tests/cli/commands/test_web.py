"""What `train-bench web` answers, and to whom."""

import base64
import gzip
import http.client
import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import in_the_foreground
from tests.report import pages
from tests.store.test_store import campaign, index
from train_bench.cli.commands import web
from train_bench.cli.program import command
from train_bench.errors import RequestError
from train_bench.store import history
from train_bench.web import pages as web_pages
from train_bench.web import server as serve
from train_bench.web.server import Server


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A campaign, one with markup in its names, a secret beside them, and a store of both."""
    root = tmp_path_factory.mktemp("web")
    campaign(root / "results" / "one", created="2020-11-20T00:00:00+00:00")
    pages.mini(root / "results" / "<img src=x onerror=alert(1)>")
    (root / "results" / "one" / "secret.txt").write_text("the secret")
    (root / "results" / "loop").symlink_to(root / "results")
    index(root / "results.db", root / "results" / "one")
    return root


@contextmanager
def served(folder, store, ruleset=None):
    with Server(web.Pages(folder, store, ruleset), 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(results):
    with served(results / "results", results / "results.db") as server:
        yield server


def ask(server, path, *, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=400)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer, content


def links(server):
    return re.findall(r'href="(/[^"]*)"', ask(server, "/")[1])


def test_the_first_page_leads_to_the_others_and_each_can_be_read(server):
    there = links(server)
    assert [path.split("/")[1] for path in there] == ["history", "review", "campaign", "campaign"]
    beside = "/beside/" + "/".join(path.split("/")[2] for path in there[2:])
    for path in (*there, beside):
        answer, content = ask(server, path)
        assert answer.status == 200, content
        assert "<!doctype html>" in content.lower()
        assert "Content-Security-Policy" in content
        assert "<img src=x" not in content
        assert '<a href="/">All results</a>' in content
    answer, content = ask(server, there[2], method="HEAD")
    assert (answer.status, content) == (200, "")


def test_the_first_page_has_verdict_score_and_date_the_latest_first(server):
    content = ask(server, "/")[1]
    (table,) = re.findall(r'<table id="entries" class="blocks">.*?</table>', content, re.DOTALL)
    rows = re.findall(r"<tr><td[^>]*><input.*?</tr>", table, re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert [re.sub("<[^>]*>", "", cell) for cell in cells[0][1:]] == [
        *("VALID", "1.0333", "2020-11-20 00:00", "resnet_mini"),
    ]
    assert [re.sub("<[^>]*>", "", cell) for cell in cells[1][1:3]] == ["not judged", "–"]
    assert 'title="' in rows[0] and ">one</a>" in rows[0]


def test_tests_of_served_weights_are_named_without_a_verdict(tmp_path):
    folder = tmp_path / "answers <b>"
    folder.mkdir()
    pages_made = web.Pages(tmp_path, tmp_path / "none.db", None)
    assert "served weights" not in pages_made("/")
    (folder / "serving.json").write_text('{"valid": true}')
    content = pages_made("/")
    assert "<li>answers &lt;b&gt;" in content
    assert "train-bench judge gives it" in content
    assert "VALID</" not in content


def test_several_results_are_compared_but_none_with_itself(server):
    one, other = (path.split("/")[2] for path in links(server) if path.startswith("/campaign"))
    assert ask(server, f"/beside/{one}/{other}")[0].status == 200
    for wrong in (
        f"/beside/{one}/{one}",
        f"/beside/{one}/{other}/{'0' * 16}",
        f"/beside/{'/'.join([one] * 31)}",
    ):
        assert ask(server, wrong)[0].status == 404


def test_the_history_leads_to_the_pages_of_its_campaigns(server):
    packed = re.search(r'id="history">([^<]*)<', ask(server, "/history")[1])[1]
    (page,) = json.loads(gzip.decompress(base64.b64decode(packed)))["points"]["page"]
    assert page in links(server)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FORGE"])
def test_nothing_but_reading_is_answered(server, method):
    assert ask(server, "/", method=method)[0].status in (405, 501)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", ""]
)
def test_whoever_calls_this_machine_by_another_name_gets_nothing(server, host):
    answer, content = ask(server, "/", Host=host.replace("{port}", str(server.server_port)))
    assert (answer.status, content) == (421, "421 Misdirected Request\n")
    assert ask(server, "/", Host=f"localhost:{server.server_port}")[0].status == 200


def test_pages_of_others_can_have_nothing_made(server):
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert ask(server, "/", **{"Sec-Fetch-Site": site})[0].status == status


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/campaign/one",
            "/campaign/../../secret.txt",
            "/results/one/secret.txt",
            "/campaign/0123456789abcdef",
        ),
        *(
            "//etc/passwd",
            "/..%2f..%2fetc/passwd",
            "/campaign/",
            "/beside/0123456789abcdef",
            "/index.html",
            "x",
        ),
        "/campaign/%3Cscript%3E",
    ],
)
def test_an_address_names_no_file(server, path):
    answer, content = ask(server, path)
    assert answer.status in (404, 400)
    assert "secret" not in content
    assert "<" not in content
    assert answer.getheader("Content-Type").startswith("text/plain")


def test_every_answer_forbids_to_be_framed_kept_or_guessed_at(server):
    for path in ("/", "/nothing"):
        answer, _ = ask(server, path)
        assert "frame-ancestors 'none'" in answer.getheader("Content-Security-Policy")
        assert answer.getheader("Cache-Control") == "no-store"
        assert answer.getheader("X-Content-Type-Options") == "nosniff"


def test_only_this_machine_is_listened_to(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    addresses = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for other in addresses - {"127.0.0.1"}:
        with pytest.raises(OSError), socket.create_connection((other, server.server_port), timeout=2):
            pass


def test_a_slow_or_broken_question_keeps_nobody_waiting(server, capfd):
    with socket.create_connection(("127.0.0.1", server.server_port)) as slow:
        slow.sendall(b"GET / HT")
        assert ask(server, "/")[0].status == 200
    with socket.create_connection(("127.0.0.1", server.server_port)) as odd:
        odd.sendall(f"GET http://[ HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        assert b" 400 " in odd.makefile("rb").readline()
    with socket.create_connection(("127.0.0.1", server.server_port)) as broken:
        broken.sendall(b"\x00\xff\r\n\r\n" * 3)
    assert ask(server, "/")[0].status == 200
    assert capfd.readouterr().err == ""


def test_what_cannot_be_judged_is_a_sentence(results, tmp_path):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "result_0.txt").write_text("no log")
    with served(tmp_path, tmp_path / "none.db") as server:
        assert "There is no store" in ask(server, "/")[1]
        assert ask(server, "/history")[0].status == 404
        (path,) = (path for path in links(server) if path.startswith("/campaign"))
        answer, content = ask(server, path)
    assert answer.status == 500
    assert "is unknown (no plan.json" in content


def test_it_ends_with_ctrl_c_and_leaves_the_port_free(results):
    words = [sys.executable, "-m", "train_bench", "web", str(results / "results"), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, text=True, preexec_fn=in_the_foreground, **pipes) as process:
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=400)
    assert (process.returncode, out, err) == (0, "Ended.\n", "")
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_a_request_that_cannot_be_served_is_refused_before_anything_listens(results, server, tmp_path):
    for words, said in (
        ([str(tmp_path / "none")], "There is no folder"),
        (["--store", str(tmp_path / "none.db")], "There is no store"),
        ([str(results), "--port", str(server.server_port)], "is taken; give another"),
        ([str(results), "--port", "70000"], "cannot be had"),
        ([str(results), "--ruleset", "NONSENSE"], "no ruleset 'NONSENSE'"),
    ):
        with pytest.raises(RequestError, match=said):
            command("web")(words)


def test_without_a_folder_the_campaigns_are_those_of_the_store(results):
    with served(None, results / "results.db") as server:
        there = links(server)
        assert [path.split("/")[1] for path in there] == ["history", "campaign"]
        assert "resnet_mini" in ask(server, there[1])[1]


def test_a_folder_of_a_store_without_results_in_itself_is_not_searched(tmp_path):
    folder = campaign(tmp_path / "above" / "campaign")
    store = tmp_path / "store.db"
    index(store, folder)
    with sqlite3.connect(store) as connection:
        connection.execute("UPDATE entries SET folder = ?", (str(tmp_path / "above"),))
    connection.close()
    pages = web.Pages(None, store, None)
    [address] = set(re.findall("/campaign/[0-9a-f]{16}", pages("/")))
    assert pages(address) is None


def test_an_entry_without_a_folder_in_a_damaged_store_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "select", lambda store, query: (("folder",), [(None,), ("/a",)]))
    assert web_pages.folders_of(tmp_path / "store.db") == [Path("/a")]


def test_a_page_that_takes_long_keeps_others_waiting_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(serve, "WAIT_SECONDS", 0.01)
    with Server(lambda path: "page", 0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with server.alone:
            answer, text = ask(server, "/")
        assert answer.status == 503 and "not finished" in text
        assert ask(server, "/")[0].status == 200
        server.shutdown()
