"""The store of weights: what it takes, who holds what, and what is evicted."""

import contextlib
import errno
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from safetensors.numpy import save_file

from train_bench.errors import RequestError, WriteError
from train_bench.startup import weight_store
from train_bench.startup.weight_store import Tier, fetch

HOLD = """
import sys
from pathlib import Path
from train_bench.startup.weight_store import Tier
with Tier(Path(sys.argv[1])).lease(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


def weights(folder, number, size=1000):
    """A file of weights and its digest."""
    path = folder / f"weights_{number}.safetensors"
    save_file({"values": np.full(size, number, np.float32)}, path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def tier(tmp_path):
    return Tier(tmp_path / "tier")


@pytest.fixture(autouse=True)
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_admitted_weights_are_those_of_the_file_by_their_digest_and_cannot_be_written(tier, tmp_path):
    path, digest = weights(tmp_path, 1)
    tier.admit(path, digest)
    tier.admit(path, digest)
    kept = tier.folder / "sha256" / f"{digest}.safetensors"
    assert tier.path(digest) == kept
    assert kept.read_bytes() == path.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o444
    assert tier.digests() == [digest]
    assert sorted(one.name for one in tier.folder.iterdir()) == ["lock", "sha256"]


@pytest.mark.parametrize("at", [0, 50, -1])
def test_a_changed_byte_is_refused_and_nothing_is_kept(tier, tmp_path, at):
    path, digest = weights(tmp_path, 1)
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        RequestError, match=rf"{path} is not the weights that were asked for: .* {digest[:12]}"
    ):
        tier.admit(path, digest)
    assert list((tier.folder / "sha256").iterdir()) == []


def test_a_byte_that_changes_in_a_tier_is_refused_by_the_one_above(tmp_path):
    path, digest = weights(tmp_path, 1)
    near, far = Tier(tmp_path / "near"), Tier(tmp_path / "far")
    far.admit(path, digest)
    kept = far.path(digest)
    kept.chmod(0o644)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(RequestError, match="is not the weights"), fetch(digest, (near, far)):
        pytest.fail("fetched")
    assert not near.has(digest)


def test_a_file_that_is_no_safetensors_is_refused(tier, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"notes" * 100)
    with pytest.raises(RequestError, match=rf"{path} is not a safetensors file \(.+\); give weights"):
        tier.admit(path, hashlib.sha256(path.read_bytes()).hexdigest())
    assert tier.digests() == []


@pytest.mark.parametrize("digest", ["", "abc", "../" * 20, "A" * 64, "0" * 65])
def test_what_is_no_digest_is_refused(tier, tmp_path, digest):
    with pytest.raises(RequestError, match="is not a digest of weights"):
        tier.admit(tmp_path / "x", digest)


def test_a_source_that_is_not_there_is_refused(tier, tmp_path):
    with pytest.raises(RequestError, match=r"nothing.safetensors cannot be read \(No such file"):
        tier.admit(tmp_path / "nothing.safetensors", "0" * 64)


def test_weights_that_are_not_there_are_not_leased(tier):
    with pytest.raises(RequestError, match="has no weights 000000000000"), tier.lease("0" * 64):
        pytest.fail("leased")


def test_leased_weights_are_not_evicted_and_those_that_nobody_holds_are(tier, tmp_path):
    (held, other) = (weights(tmp_path, number) for number in range(2))
    for path, digest in (held, other):
        tier.admit(path, digest)
    with tier.lease(held[1]) as path:
        assert not tier.evict(held[1])
        assert tier.evict(other[1])
        assert path.is_file()
    assert tier.evict(held[1])
    assert not tier.evict(held[1])
    assert tier.digests() == []


def test_a_process_that_is_killed_frees_its_lease(tier, tmp_path):
    path, digest = weights(tmp_path, 1)
    tier.admit(path, digest)
    command = [sys.executable, "-c", HOLD, str(tier.folder), digest]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert not tier.evict(digest)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert tier.evict(digest)
    assert tier.digests() == []


def test_what_an_interrupted_admission_left_is_removed_by_the_next(tier, tmp_path):
    path, digest = weights(tmp_path, 1)
    tier.admit(path, digest)
    (tier.folder / "sha256" / f"{'0' * 64}.{'1' * 16}.part").write_bytes(b"half")
    other = weights(tmp_path, 2)
    tier.admit(*other)
    assert {one.stem for one in (tier.folder / "sha256").iterdir()} == {digest, other[1]}


def test_a_full_disk_leaves_the_tier_as_it_was(tier, tmp_path, monkeypatch):
    def full(source, target):
        target.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    path, digest = weights(tmp_path, 1)
    monkeypatch.setattr(weight_store, "_copy", full)
    with pytest.raises(WriteError, match=f"No space is left in {tier.folder} for weights of"):
        tier.admit(path, digest)
    assert list((tier.folder / "sha256").iterdir()) == []


def test_a_source_whose_disk_fails_on_the_way_is_what_cannot_be_read(tier, tmp_path, monkeypatch):
    class Failing:
        def __init__(self):
            self.blocks = [b"a part"]

        def read(self, size):
            if not self.blocks:
                raise OSError(errno.EIO, "Input/output error")
            return self.blocks.pop()

    path, digest = weights(tmp_path, 1)
    monkeypatch.setattr(weight_store.files, "opened", lambda source: contextlib.nullcontext(Failing()))
    with pytest.raises(RequestError, match=rf"^{path} cannot be read \(Input/output error\)"):
        tier.admit(path, digest)
    assert list((tier.folder / "sha256").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    path, digest = weights(tmp_path, 1)
    with pytest.raises(WriteError, match=r"cannot be written \(Not a directory\); give a folder"):
        Tier(tmp_path / "file" / "tier").admit(path, digest)


def test_weights_are_fetched_from_the_nearest_tier_that_has_them(tmp_path):
    path, digest = weights(tmp_path, 1)
    tiers = [Tier(tmp_path / name) for name in ("memory", "disk", "far")]
    tiers[2].admit(path, digest)
    with fetch(digest, tiers[1:]) as found:
        assert found == tiers[1].path(digest)
    tiers[2].evict(digest)
    with fetch(digest, tiers) as found:
        assert found.read_bytes() == path.read_bytes()
        assert not tiers[0].evict(digest)
        assert tiers[1].has(digest)
    assert tiers[0].evict(digest)


def test_weights_that_no_tier_has_are_not_fetched(tmp_path):
    with pytest.raises(RequestError, match=r"None of .*near, .*far has weights 000"):
        fetch("0" * 64, (Tier(tmp_path / "near"), Tier(tmp_path / "far"))).__enter__()


def test_weights_that_are_evicted_while_a_lease_waits_are_not_leased(tier, tmp_path, monkeypatch):
    """Between opening the file and locking it."""
    path, digest = weights(tmp_path, 1)
    tier.admit(path, digest)
    open_file = os.open

    def evicted_behind(name, flags, *more):
        descriptor = open_file(name, flags, *more)
        if name == tier.path(digest) and tier.has(digest):
            monkeypatch.setattr(os, "open", open_file)
            tier.evict(digest)
        return descriptor

    monkeypatch.setattr(os, "open", evicted_behind)
    with pytest.raises(RequestError, match="has no weights"), tier.lease(digest):
        pytest.fail("leased what is gone")


def test_processes_that_admit_the_same_weights_at_once_keep_them_once(tmp_path):
    path, digest = weights(tmp_path, 1, size=300_000)
    errors = []

    def admit():
        try:
            Tier(tmp_path / "tier").admit(path, digest)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=admit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [one.name for one in (tmp_path / "tier" / "sha256").iterdir()] == [f"{digest}.safetensors"]


def as_link(path, other):
    path.symlink_to(other)


def as_other_content(path, other):
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (as_other_content, "is not the weights that were asked for"),
        (as_link, "cannot be read as weights .it is a link"),
        (lambda path, _: os.mkfifo(path), "is not a regular file"),
        (lambda path, _: path.mkdir(), "is not a regular file"),
    ],
)
def test_what_somebody_put_in_the_place_of_weights_is_neither_served_nor_waited_for(tmp_path, plant, said):
    path, digest = weights(tmp_path, 1)
    other, _ = weights(tmp_path, 2)
    near, far = Tier(tmp_path / "near"), Tier(tmp_path / "far")
    far.admit(path, digest)
    near.path(digest).parent.mkdir(parents=True)
    plant(near.path(digest), other)
    with pytest.raises(RequestError, match=said):
        near.admit(path, digest)
    with pytest.raises(RequestError, match=said), fetch(digest, (near, far)):
        pytest.fail("fetched")
    if said != "is not the weights that were asked for":
        with pytest.raises(RequestError, match=said):
            near.evict(digest)


def test_weights_that_change_after_they_were_served_are_hashed_again(tier, tmp_path):
    path, digest = weights(tmp_path, 1)
    tier.admit(path, digest)
    with tier.lease(digest) as kept:
        kept.chmod(0o644)
        kept.write_bytes(weights(tmp_path, 2)[0].read_bytes())
    with pytest.raises(RequestError, match="is not the weights"), tier.lease(digest):
        pytest.fail("leased")


def test_a_held_lock_is_waited_for_in_words_and_not_for_ever(tier, tmp_path, monkeypatch, capsys):
    path, digest = weights(tmp_path, 1)
    tier.folder.mkdir()
    monkeypatch.setattr(weight_store, "PATIENCE_SECONDS", 0.0)
    with (tier.folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        with pytest.raises(WriteError, match="was locked by another process"):
            tier.admit(path, digest)
    tier.admit(path, digest)


def test_a_folder_that_looks_like_remains_is_named(tier, tmp_path):
    path, digest = weights(tmp_path, 1)
    (tier.folder / "sha256" / f"{'0' * 64}.{'1' * 16}.part").mkdir(parents=True)
    with pytest.raises(WriteError, match=r"11\.part cannot be removed"):
        tier.admit(path, digest)


@pytest.mark.parametrize("name", ["x.part", f"{'0' * 64}.part", f"{'0' * 64}.safetensors.part"])
def test_files_of_others_in_a_store_stay(tier, tmp_path, name):
    path, digest = weights(tmp_path, 1)
    other = tier.folder / "sha256" / name
    other.parent.mkdir(parents=True)
    other.write_bytes(b"a download")
    tier.admit(path, digest)
    assert other.read_bytes() == b"a download"


def test_a_link_in_the_place_of_the_folder_of_weights_is_refused(tier, tmp_path):
    path, digest = weights(tmp_path, 1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{'0' * 64}.{'1' * 16}.part").write_bytes(b"of others")
    tier.folder.mkdir()
    (tier.folder / "sha256").symlink_to(elsewhere)
    for change in (lambda: tier.admit(path, digest), lambda: tier.evict(digest)):
        with pytest.raises(RequestError, match=r"sha256 is a link; remove it, or give another folder"):
            change()
    assert [one.read_bytes() for one in elsewhere.iterdir()] == [b"of others"]


@pytest.mark.parametrize(("folder_mode", "umask"), [(0o2775, 0o077), (0o755, 0o077), (0o700, 0o000)])
def test_files_of_a_store_are_for_the_users_of_its_folder_whatever_the_umask(
    tier, tmp_path, folder_mode, umask
):
    path, digest = weights(tmp_path, 1)
    tier.folder.mkdir()
    tier.folder.chmod(folder_mode)
    before = os.umask(umask)
    try:
        tier.admit(path, digest)
    finally:
        os.umask(before)
    modes = {
        name: (tier.folder / name).stat().st_mode & 0o777
        for name in ("sha256", "lock", f"sha256/{digest}.safetensors")
    }
    assert [*modes.values()] == [folder_mode & 0o777, folder_mode & 0o666, folder_mode & 0o444]


def test_a_tier_without_locks_is_refused_by_its_reason(tier, tmp_path, monkeypatch):
    path, digest = weights(tmp_path, 1)

    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with pytest.raises(WriteError, match=r"its file system keeps no locks\. Give a folder on a local disk"):
        tier.admit(path, digest)
