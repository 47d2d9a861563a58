"""Foreign code in a process that the system confines; where it does not, nothing is started."""

import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest

from train_bench.errors import LaunchError
from train_bench.launcher import Launch
from train_bench.own_trainer import confined, hidden
from train_bench.own_trainer.confined import Confinement, can_confine, confine
from train_bench.plan import process

IPC = Path("/proc/self/ns/ipc")
OUTSIDE = IPC.readlink() if IPC.is_symlink() else None


@pytest.fixture
def wanted(tmp_path):
    """A repository with the folder of another run, and one of this run."""
    for name in (".git", "other", "own"):
        (tmp_path / "top" / name).mkdir(parents=True)
    return Confinement(read_only=(tmp_path / "top",), writable=(tmp_path / "top" / "own",))


def happens(wanted, attempt):
    """True if a confined process manages to do it; where the system confines none, False likewise."""

    def condition():
        confine(wanted)
        with contextlib.suppress(OSError):
            return bool(attempt(wanted.read_only[0]))
        return False

    return hidden.holds_in_a_child(condition)


def edits_git(top):
    return (top / ".git" / "HEAD").write_text("mine")


def edits_the_logs_of_another_run(top):
    return (top / "other" / "result_0.txt").write_text("mine")


def moves_its_folder_away(top):
    (top / "own").rename(top / "elsewhere")
    return True


def makes_it_writable_again(top):
    flags = hidden.MS_BIND | 32  # MS_REMOUNT
    hidden.mount(None, str(top), None, flags)
    return True


def reaches_the_network(_top):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 9))  # sends nothing
    return True


def keeps_shared_memory(_top):
    return any(confined.SHARED_MEMORY.iterdir())


def shares_memory_of_system_v(_top):
    return IPC.readlink() == OUTSIDE


@pytest.mark.parametrize(
    "attempt",
    [
        edits_git,
        edits_the_logs_of_another_run,
        moves_its_folder_away,
        makes_it_writable_again,
        reaches_the_network,
        keeps_shared_memory,
        shares_memory_of_system_v,
    ],
)
def test_what_a_confined_process_cannot_do(wanted, attempt, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "state").touch()
    monkeypatch.setattr(confined, "SHARED_MEMORY", shared)
    assert not happens(wanted, attempt)
    assert not (tmp_path / "top" / "elsewhere").exists() and (shared / "state").exists()


def test_a_mount_below_a_repository_is_read_only_too(wanted, tmp_path):
    """And one that a confined run has for itself stays writable."""

    def is_kept():
        hidden.enter()
        for name in ("other", "own"):
            hidden.mount("none", str(tmp_path / "top" / name), "tmpfs", 0)
        confine(wanted)
        (tmp_path / "top" / "own" / "mine").touch()
        return not os.access(tmp_path / "top" / "other", os.W_OK)

    assert hidden.holds_in_a_child(is_kept) is can_confine(wanted)


def writes_in_its_own_folder(top):
    return (top / "own" / "result_0.txt").write_text("mine")


def writes_shared_memory(_top):
    return (confined.SHARED_MEMORY / "train_bench_test").write_text("mine")


def talks_to_itself(_top):
    for address in ("127.0.0.1", "10.9.8.7"):
        with socket.create_server((address, 0)) as server:
            socket.create_connection(server.getsockname()).close()
    return True


def hides_files_in_it(top):
    return hidden.can_hide([top / "other"])


@pytest.mark.parametrize(
    "attempt", [writes_in_its_own_folder, writes_shared_memory, talks_to_itself, hides_files_in_it]
)
def test_what_it_can_do_where_the_system_confines(wanted, attempt, monkeypatch):
    monkeypatch.setattr(confined, "_own_address", lambda: "10.9.8.7")
    assert happens(wanted, attempt) is can_confine(wanted)
    assert not (confined.SHARED_MEMORY / "train_bench_test").exists()


def test_a_host_whose_name_cannot_be_looked_up_has_no_address(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "a" * 64)
    assert confined._own_address() is None


def test_a_contest_may_give_the_network(wanted):
    def same(_top):
        return Path("/proc/self/ns/net").readlink() == network

    network = Path("/proc/self/ns/net").readlink()
    open_ = Confinement(read_only=wanted.read_only, network=True)
    assert not happens(wanted, same)
    assert happens(open_, same) is can_confine(open_)


def test_a_folder_that_stays_writable_is_not_confined(wanted, monkeypatch):
    monkeypatch.setattr(confined, "_set_read_only", lambda path, flags: None)
    assert not can_confine(wanted)


def test_a_system_that_has_the_namespaces_confines(wanted):
    """What always fails would pass the tests above as a system without namespaces does."""
    each = hidden.CLONE_NEWUSER | hidden.CLONE_NEWNS | confined.CLONE_NEWIPC | confined.CLONE_NEWNET

    def has():
        hidden.check(hidden.LIBC.unshare(each))
        hidden.mount(None, "/", None, hidden.MS_REC | hidden.MS_PRIVATE)
        return True

    assert can_confine(wanted) is hidden.holds_in_a_child(has)


def test_files_in_the_working_folder_are_hidden_too(tmp_path, monkeypatch):
    (tmp_path / "labels").write_text("1")
    monkeypatch.chdir(tmp_path)

    def reads():
        hidden.hide([tmp_path])
        return Path("labels").exists()

    assert not hidden.holds_in_a_child(reads)


WRITES = """
from pathlib import Path
for name in ("own", "other"):
    try:
        Path(name, "written").touch()
    except OSError as error:
        print(error.strerror)
"""


def test_a_launch_begins_confined(wanted, tmp_path):
    top, confines = tmp_path / "top", can_confine(wanted)
    with contextlib.nullcontext() if confines else pytest.raises(LaunchError):
        carried_out(tmp_path, top, lambda: confine(wanted))
    assert (top / "own" / "written").exists() is confines
    assert not (top / "other" / "written").exists()


def test_a_launch_that_cannot_be_confined_is_not_started(tmp_path):
    def refused():
        raise OSError("no namespaces")

    with pytest.raises(LaunchError, match="could not be confined; the system refuses it now"):
        carried_out(tmp_path, tmp_path, refused)
    assert not (tmp_path / "own").exists()


def carried_out(folder, cwd, first):
    launch = Launch(argv=(sys.executable, "-S", "-c", WRITES), env={})
    return process.carry_out(launch, folder, lambda: None, cwd=cwd, first=first)
