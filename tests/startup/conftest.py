"""Folders on a disk and in shared memory."""

import tempfile
from pathlib import Path

import pytest

from train_bench.startup import page_cache


@pytest.fixture
def on_disk(tmp_path):
    """A folder whose files can be made cold."""
    kind = page_cache.file_system(tmp_path)
    if kind in page_cache.IN_MEMORY:
        pytest.skip(
            f"the folder of the tests is on {kind}, where no file can be made cold (pytest --basetemp DIR)"
        )
    return tmp_path


@pytest.fixture
def in_memory():
    """A folder in shared memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
