"""Residency in the page cache: proven, made and refused."""

import mmap
import os

import pytest

from train_bench.errors import LaunchError, RequestError
from train_bench.startup import page_cache

SIZE = 300 * mmap.PAGESIZE + 5


@pytest.fixture
def file(on_disk):
    path = on_disk / "file"
    path.write_bytes(bytes(range(256)) * (SIZE // 256) + bytes(SIZE % 256))
    return path


def test_a_file_is_warm_once_it_was_read_and_cold_once_it_was_dropped(file):
    assert page_cache.make_warm(file) == page_cache.resident_share(file) == 1
    assert page_cache.make_cold(file) < page_cache.COLD
    assert page_cache.resident_share(file) < page_cache.COLD
    assert page_cache.make_warm(file) == 1


def test_the_resident_share_is_that_of_the_pages_that_were_read(file):
    page_cache.make_cold(file)
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        for page in range(30):
            os.pread(opened.fileno(), 1, 10 * page * mmap.PAGESIZE)
    assert page_cache.resident_share(file) == pytest.approx(30 / 301, abs=page_cache.COLD)


def test_a_file_that_was_just_written_is_made_cold(on_disk):
    path = on_disk / "fresh"
    path.write_bytes(bytes(SIZE))
    assert page_cache.make_cold(path) < page_cache.COLD
    assert path.read_bytes() == bytes(SIZE)


def test_pages_that_a_process_maps_stay_and_the_file_is_not_called_cold(file):
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        assert sum(mapping[:: mmap.PAGESIZE]) >= 0
        with pytest.raises(
            LaunchError, match=r"cannot be made cold: 100.0 % of it stay .* A process may map it"
        ):
            page_cache.make_cold(file)


def test_a_file_in_shared_memory_is_warm_and_a_folder_there_is_refused_by_the_name_of_its_file_system(
    in_memory,
):
    path = in_memory / "file"
    path.write_bytes(bytes(SIZE))
    assert page_cache.make_warm(path) == 1
    with pytest.raises(RequestError, match="lies on tmpfs, whose files cannot be made cold") as refused:
        page_cache.refuse_memory(in_memory)
    assert "--levels L1,L2,L3,L4" in str(refused.value)
    assert list(in_memory.iterdir()) == [path]


def test_a_folder_on_a_disk_is_accepted_and_nothing_is_left_there(on_disk):
    page_cache.refuse_memory(on_disk)
    assert list(on_disk.iterdir()) == []


def test_a_file_that_does_not_stay_in_memory_is_not_called_warm(file, monkeypatch):
    monkeypatch.setattr(page_cache, "resident_share", lambda path: 0.5)
    with pytest.raises(LaunchError, match=r"50.0 % of it are there after it was read"):
        page_cache.make_warm(file)


def test_an_empty_file_is_resident(on_disk):
    (on_disk / "empty").touch()
    assert page_cache.resident_share(on_disk / "empty") == 1
