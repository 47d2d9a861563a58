"""Pods that share no folder mirror it."""

import errno
import http.client
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.command_line import wait_for
from train_bench.core import files, sent_files
from train_bench.core.rank_messages import SHARED
from train_bench.errors import RequestError, WriteError
from train_bench.launchers.kubernetes import mirror, pod
from train_bench.launchers.kubernetes.mirror import FirstHost, OtherHost

TOKEN = b"secret"
FIRST = ("hosts.json", "result_0.txt.part", "ranks/run_0/heartbeat", "ranks/run_0/clocks.json")
OTHERS = (
    "ranks/run_0/arrived/n1_7",
    "ranks/run_0/rank_1.json",
    "ranks/run_0/hosts/1.json",
    "power/run_1/n.txt",
)
NOBODYS = ("ranks/run_0/launch_token", "plan.json", "score.json")


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} of {folder.name}")


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def first(tmp_path):
    (tmp_path / "first").mkdir()
    fill(tmp_path / "first", *FIRST, *NOBODYS)
    one = FirstHost(tmp_path / "first", TOKEN, 0, others=1)
    yield one
    one._server.server_close()


def other(tmp_path, first, token=TOKEN):
    (tmp_path / "other").mkdir(exist_ok=True)
    files.write_json(tmp_path / "plan.json", {"jobs": []})
    return OtherHost(tmp_path / "other", token, ("127.0.0.1", first.port), 1, tmp_path / "plan.json")


def test_each_host_gets_what_it_reads_of_the_other_and_nothing_else(first, tmp_path):
    with first, other(tmp_path, first):
        wait_for(lambda: (tmp_path / "other" / "plan.json").exists())
        assert names(tmp_path / "other") == {*FIRST, "plan.json"}
        (tmp_path / "first" / "hosts.json").write_text("next run")
        wait_for(lambda: (tmp_path / "other" / "hosts.json").read_text() == "next run")
        fill(tmp_path / "other", *OTHERS, "ranks/run_0/launch_token", "score.json")
    # What was written last has arrived when both have left.
    assert names(tmp_path / "first") == {*FIRST, *OTHERS, *NOBODYS}
    assert (tmp_path / "first" / "ranks/run_0/launch_token").read_text().endswith("of first")


def test_what_others_send_when_they_leave_is_printed_as_lines(first, tmp_path, capsys):
    late = ("ranks/run_1/launcher_1.stderr", "power/result_1/node_1.txt")
    with first:
        with other(tmp_path, first):
            fill(tmp_path / "other", *late)
        assert capsys.readouterr().out == ""
    assert sent_files.received(capsys.readouterr().out) == {
        name: f"{name} of other".encode() for name in late
    }


def test_what_a_launching_process_prints_is_sent_once_at_the_end(first, tmp_path):
    printed = "ranks/run_0/launcher_1.stderr"
    with first:
        with other(tmp_path, first):
            fill(tmp_path / "other", printed, *OTHERS)
            wait_for(lambda: {*OTHERS} <= names(tmp_path / "first"))
            assert printed not in names(tmp_path / "first")
        assert printed in names(tmp_path / "first")


def test_files_that_are_too_large_for_a_message_come_in_several(first, tmp_path, monkeypatch):
    """Each file may be as large as a message."""
    monkeypatch.setattr(sent_files, "LARGEST_BYTES", 1000)
    monkeypatch.setattr(mirror, "LARGEST_MESSAGE", 2000)
    large = [f"ranks/run_{run}/launcher_1.stderr" for run in range(3)]
    with first:
        one = other(tmp_path, first)
        fill(tmp_path / "other", *large)
        for name in large:
            (tmp_path / "other" / name).write_text(600 * "x")
        said, left = [], []
        for _ in large:
            said.append(one._exchange(leaves=True))
            left.append({*first._left})
        assert said == [False, False, True]
        assert {*large} <= names(tmp_path / "first")
        assert left == [set(), set(), {1}]


def test_a_host_that_leaves_asks_until_the_first_answers_or_its_time_is_over(first, tmp_path, monkeypatch):
    clock, answers = [0.0], 5 * [False] + [True]
    monkeypatch.setattr(mirror, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=None))
    mirror.time.sleep = lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    asked = []

    class Silent(OtherHost):
        def _follow(self):
            pass

        def _exchange(self, *, leaves=False):
            asked.append(leaves)
            return answers.pop(0) if answers else False

    for _ in range(2):
        with Silent(tmp_path / "other", TOKEN, ("127.0.0.1", first.port), 1, tmp_path / "plan.json"):
            pass
    assert asked[:6] == 6 * [True]
    assert mirror.LEAVE_SECONDS <= clock[0] < mirror.LEAVE_SECONDS + 10 * mirror.PERIOD_SECONDS


@pytest.mark.parametrize(("answered", "periods"), [(True, 0), (False, 80)])
def test_a_host_that_leaves_does_not_wait_for_a_first_one_that_is_gone(
    first, tmp_path, monkeypatch, answered, periods
):
    """Before its first answer, the first host may not have started."""
    clock = [0.0]
    one = other(tmp_path, first)
    first._others = 0
    with first:
        assert one._exchange()
    one._answered = answered
    one._over.set()  # it leaves at once
    later = SimpleNamespace(monotonic=lambda: clock[0], time_ns=mirror.time.time_ns)
    later.sleep = lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    monkeypatch.setattr(mirror, "time", later)
    with one:
        pass
    assert clock[0] == periods * mirror.PERIOD_SECONDS


@pytest.mark.parametrize(("number", "is_gone"), [(socket.EAI_AGAIN, False), (socket.EAI_NONAME, True)])
def test_a_first_host_whose_name_is_not_known_for_a_moment_is_not_gone(
    first, tmp_path, monkeypatch, number, is_gone
):
    one = other(tmp_path, first)
    with first:
        assert one._exchange()
        with monkeypatch.context() as patched:
            refused = socket.gaierror(number, "")
            patched.setattr(http.client.HTTPConnection, "connect", Mock(side_effect=refused))
            assert not one._exchange()
            assert one._gone is is_gone
        assert one._exchange()
        assert not one._gone
        assert one._exchange(leaves=True)


def full(folder):
    """No space is left for the files of a folder, until this is undone."""
    patch = pytest.MonkeyPatch()
    true = Path.write_bytes

    def write_bytes(path, content):
        if path.is_relative_to(folder):
            true(path, content[:1])
            raise OSError(errno.ENOSPC, "No space left on device")
        return true(path, content)

    patch.setattr(Path, "write_bytes", write_bytes)
    return patch


@pytest.mark.parametrize("ill", ["first", "other"])
def test_a_full_disk_ends_no_exchange_and_leaves_no_part(first, tmp_path, capsys, ill):
    first._others = 0
    with first:
        one = other(tmp_path, first)
        fill(tmp_path / "other", *OTHERS)
        patch = full(tmp_path / ill)
        try:
            assert not one._exchange()
        finally:
            patch.undo()
        assert not [*tmp_path.glob("*/mirror_*.part")]
        assert one._exchange()
    assert names(tmp_path / "other") == {*FIRST, *OTHERS, "plan.json"}
    assert {*OTHERS} <= names(tmp_path / "first")
    assert "Traceback" not in capsys.readouterr().err


def test_a_plan_for_which_there_is_no_space_comes_later(first, tmp_path, monkeypatch):
    first._others = 0
    with first, monkeypatch.context() as patch:
        one = other(tmp_path, first)

        def write_json(path, value):
            raise WriteError("No space is left")

        patch.setattr(files, "write_json", write_json)
        assert not one._exchange()
        patch.undo()
        assert one._exchange()
    assert (tmp_path / "other" / "plan.json").exists()


def test_a_host_whose_clock_is_set_back_is_heard(first, tmp_path, monkeypatch):
    first._others = 0
    with first:
        one = other(tmp_path, first)
        assert one._exchange()
        monkeypatch.setattr(mirror.time, "time_ns", lambda: 7)
        assert one._exchange()
        assert one._exchange()


def request(name="ranks/run_0/rank_1.json", at=1, token=TOKEN):
    asked = {"host": 1, "at": at, "leaves": False, "known": {}, "files": {name: ["eA==", []]}}
    body = json.dumps(asked).encode()
    return body, mirror._signature(token, b"request", body)


def test_a_message_is_heard_once_and_only_with_the_token(first, tmp_path):
    assert first.answer(*request(token=b"guess")) is None
    assert "ranks/run_0/rank_1.json" not in names(tmp_path / "first")
    assert first.answer(*request()) is not None
    assert (tmp_path / "first" / "ranks/run_0/rank_1.json").read_text() == "x"
    assert first.answer(*request()) is None


@pytest.mark.parametrize("name", ["../x.json", "ranks/run_0/../../x", "result_0.txt", "power/../x.txt"])
def test_others_write_no_files_but_their_own(first, tmp_path, name):
    before = names(tmp_path)
    assert first.answer(*request(name)) is not None
    assert names(tmp_path) == before


def test_strangers_are_not_believed(first, tmp_path):
    first._others = 0
    with first:
        assert not other(tmp_path, first, b"another token")._exchange()
        first._token, first.answer = b"another token", lambda body, signature: b"{}"
        assert not other(tmp_path, first)._exchange()
    assert names(tmp_path / "other") == set()


@pytest.mark.parametrize(
    ("length", "signature", "status"),
    [
        *((length, 64 * "0", 413) for length in ("-1", "x", "", "1_0", "٣", 5000 * "9", str(2**40))),
        ("1000000", "short", 403),
    ],
)
def test_nothing_is_read_of_a_message_that_cannot_be_one(first, capsys, length, signature, status):
    """Its content never comes: an answer shows that nobody waits for it."""
    first._others = 0
    head = f"POST / HTTP/1.1\r\nContent-Length: {length}\r\nSignature: {signature}\r\n\r\n"
    with first, socket.create_connection(("127.0.0.1", first.port), timeout=30) as connection:
        connection.sendall(head.encode())
        with connection.makefile() as answer:
            assert f" {status} " in answer.read().partition("\n")[0]
    assert capsys.readouterr().err == ""


def test_the_first_host_waits_for_the_others_until_it_is_ended_itself(first, monkeypatch):
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(mirror.time, "sleep", sleep)
    with first:
        pass
    assert len(waited) == 1


def test_a_port_that_is_taken_is_named(first, tmp_path):
    with pytest.raises(
        RequestError, match=f"Port {first.port} of host 0 cannot be opened .*launcher.master_port"
    ):
        FirstHost(tmp_path, TOKEN, first.port, others=1)


def test_pods_with_a_token_mirror_their_folder(tmp_path):
    plan = {"shared": {"nodes": 3, "launcher_config": {"master_port": -1}}, "jobs": [{"index": 0}]}
    files.write_json(tmp_path / "plan.json", plan)

    def of(**environ):
        return pod.mirrored(tmp_path / "plan.json", tmp_path / "c", environ)

    assert not isinstance(of(), FirstHost | OtherHost)
    secret = {SHARED: "secret", "MASTER_ADDR": "127.0.0.1"}
    assert isinstance(of(**secret, JOB_COMPLETION_INDEX="1"), OtherHost)
    first = of(**secret)
    first._server.server_close()
    assert first._others == 2
