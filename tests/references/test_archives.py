"""Archives of other people: what comes out of them, and what is refused in one sentence before it does harm."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from train_bench.errors import RequestError
from train_bench.references.parts import archives

Made = Callable[[Path], None]


def zip_of(*members: tuple[zipfile.ZipInfo | str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Made:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method) as archive:
            for member, content in members:
                archive.writestr(member, content, compress_type=method)

    return make


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> Made:
    def make(path: Path) -> None:
        with tarfile.open(path, "w:gz") as archive:
            for member, content in members:
                if member.isreg():
                    member.size = len(content)
                archive.addfile(member, io.BytesIO(content))

    return make


def zipped_link(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


def tarred(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def unpacked(path: Path, folder: Path) -> dict[str, bytes]:
    """Every file of the archive at `path`, unpacked below `folder`."""
    (archives.unpack_zip if path.suffix == ".zip" else archives.unpack_tar)(path, folder)
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.zip", zip_of(("a/b.txt", b"one"), ("c.txt", b"two"))),
        (
            "a.tar.gz",
            tar_of(
                (tarred("a", tarfile.DIRTYPE), b""), (tarred("./a/b.txt"), b"one"), (tarred("c.txt"), b"two")
            ),
        ),
    ],
)
def test_files_come_out_as_they_went_in(tmp_path: Path, name: str, make: Made) -> None:
    make(tmp_path / name)
    assert unpacked(tmp_path / name, tmp_path / "inside") == {"a/b.txt": b"one", "c.txt": b"two"}


def test_a_file_that_is_there_in_its_size_is_kept_and_a_shorter_one_written_again(tmp_path: Path) -> None:
    zip_of(("kept.txt", b"one"), ("cut.txt", b"two"))(tmp_path / "a.zip")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "kept.txt").write_bytes(b"ONE")
    (tmp_path / "inside" / "cut.txt").write_bytes(b"t")
    assert unpacked(tmp_path / "a.zip", tmp_path / "inside") == {"kept.txt": b"ONE", "cut.txt": b"two"}


@pytest.mark.parametrize(
    ("name", "make", "sentence"),
    [
        ("a.zip", zip_of(("../out.txt", b"x")), r"a member outside its folder, '\.\./out\.txt'"),
        ("a.zip", zip_of(("/tmp/out.txt", b"x")), "a member outside its folder, '/tmp/out.txt'"),
        ("a.zip", zip_of((zipped_link("link"), b"/etc")), "link is neither a file nor a folder"),
        ("a.zip", zip_of(("x", b"x"), method=zipfile.ZIP_BZIP2), r"packed by method 12; allowed are stored"),
        ("a.zip", zip_of(("x", b"x"), method=zipfile.ZIP_LZMA), r"packed by method 14; allowed are stored"),
        ("a.zip", zip_of(("x", b"x"), ("x/y", b"y")), "unpacked into .*File exists"),
        ("a.zip", zip_of((zipfile.ZipInfo(""), b"x")), "a file without a name, ''"),
        ("a.zip", zip_of((".", b"x")), r"a file without a name, '\.'"),
        ("a.tar.gz", tar_of((tarred("."), b"x")), r"a file without a name, '\.'"),
        (
            "a.zip",
            zip_of(("huge", bytes(70 << 20))),
            r"unpacks to more than 67108864 bytes, 50 times its size",
        ),
        ("a.tar.gz", tar_of((tarred("../out.txt"), b"x")), r"a member outside its folder, '\.\./out\.txt'"),
        ("a.tar.gz", tar_of((tarred("/out.txt"), b"x")), "a member outside its folder, '/out.txt'"),
        ("a.tar.gz", tar_of((tarred("link", tarfile.SYMTYPE, "/etc"), b"")), "link is neither a file nor"),
        ("a.tar.gz", tar_of((tarred("link", tarfile.LNKTYPE, "x"), b"")), "link is neither a file nor"),
        ("a.tar.gz", tar_of((tarred("pipe", tarfile.FIFOTYPE), b"")), "pipe is neither a file nor"),
        ("a.tar.gz", tar_of((tarred("huge"), bytes(70 << 20))), "unpacks to more than 67108864 bytes"),
        (
            "a.tar.gz",
            tar_of((tarred("x" * (2 << 20)), b"")),
            "bytes belong together; at most 1048576 are read",
        ),
    ],
    ids=range(17),
)
def test_an_archive_that_would_do_harm_is_refused_at_once_in_a_sentence(
    tmp_path: Path, name: str, make: Made, sentence: str
) -> None:
    make(tmp_path / name)
    begun = time.process_time()
    with pytest.raises(RequestError, match=rf"{name} cannot be [^\n]*{sentence}[^\n]*$"):
        unpacked(tmp_path / name, tmp_path / "inside")
    assert time.process_time() - begun < 10
    assert not (tmp_path / "out.txt").exists()
    assert all(path.stat().st_size < 9 for path in (tmp_path / "inside").rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_an_archive_of_very_many_members_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    names = [str(number) for number in range(4)]
    make = (
        zip_of(*((each, b"") for each in names))
        if name == "a.zip"
        else tar_of(*((tarred(each), b"") for each in names))
    )
    make(tmp_path / name)
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    with pytest.raises(RequestError, match="it has more than 3 members"):
        unpacked(tmp_path / name, tmp_path / "inside")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_file_with_two_members_of_one_name_is_refused(tmp_path: Path) -> None:
    zip_of(("x", b"one"), ("x", b"two"))(tmp_path / "a.zip")
    with pytest.raises(RequestError, match="two members of one name"):
        archives.Zip(tmp_path / "a.zip")


def test_a_list_of_members_beyond_all_measure_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zip_of(*((str(number), b"") for number in range(100)))(tmp_path / "a.zip")
    monkeypatch.setattr(archives, "LARGEST_INDEX", 4000)
    with pytest.raises(RequestError, match="bytes belong together; at most 4000 are read"):
        archives.Zip(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("a.zip", zip_of(("a/b.txt", b"one" * 30), ("c.txt", os.urandom(300)))),
        ("a.tar.gz", tar_of((tarred("a/b.txt"), b"one" * 30), (tarred("c.txt"), os.urandom(300)))),
    ],
)
def test_wherever_an_archive_is_cut_or_changed_it_is_told_in_a_sentence(
    tmp_path: Path, name: str, make: Made
) -> None:
    make(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    refused = 0
    for place in range(0, len(content), 3):
        for damaged in (content[:place], content[:place] + b"\xff" + content[place + 1 :]):
            (tmp_path / name).write_bytes(damaged)
            try:
                unpacked(tmp_path / name, tmp_path / "inside")
            except RequestError as error:
                assert str(error).startswith(f"{tmp_path / name} cannot be ")
                refused += 1
    assert refused > len(content) / 3


def test_a_pipe_in_place_of_an_archive_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zip")
    os.mkfifo(tmp_path / "a.tar.gz")
    for name in ("a.zip", "a.tar.gz"):
        with pytest.raises(RequestError, match="it is not a file"):
            unpacked(tmp_path / name, tmp_path / "inside")


def test_arrays_come_back_and_larger_ones_than_expected_are_not_unpacked(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", small=np.arange(3.0), huge=np.zeros(4_000_000, np.float32))
    found = archives.Arrays(tmp_path / "a.npz")
    assert found.names == ["small", "huge"]
    assert found.read("small", 3).tolist() == [0, 1, 2]
    with pytest.raises(
        RequestError, match=r"has no huge\.npy that can be read: it has 16000128 bytes; at most"
    ):
        found.read("huge", 3)
    with pytest.raises(RequestError, match=r"has no other\.npy that can be read: no member has this name"):
        found.read("other", 3)
