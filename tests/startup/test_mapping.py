"""Mapped weights: those of the file, shared, and not to be written."""

import faulthandler
import os
import re
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from train_bench.errors import RequestError
from train_bench.startup.mapping import map_tensors


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights.safetensors"
    tensors = {
        "values": torch.arange(5000, dtype=torch.float32),
        "matrix": torch.arange(12, dtype=torch.int64).reshape(3, 4),
        "half": torch.tensor([[0.5, -2]], dtype=torch.bfloat16),
        "flag": torch.tensor(True),
        "nothing": torch.empty(0, 3),
    }
    save_file(tensors, path)
    return path, tensors


def test_mapped_tensors_are_those_of_the_file(file):
    path, tensors = file
    mapped = map_tensors(path)
    assert mapped.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (mapped[name].dtype, mapped[name].shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(mapped[name], tensor), name


def test_a_mapping_is_the_file_and_no_copy(file):
    path, _ = file
    mapped = map_tensors(path)["values"]
    content = bytearray(path.read_bytes())
    at = content.index(np.float32(4999).tobytes())
    with path.open("r+b") as writing:
        writing.seek(at)
        writing.write(np.float32(7).tobytes())
    assert mapped[-1] == 7


def kibibytes(kind, path):
    """Of the mappings of a file in this process, by the kernel."""
    maps = Path("/proc/self/smaps").read_text().split("VmFlags")
    (mine,) = (one for one in maps if f"{path}\n" in one)
    return int(re.search(rf"^{kind}: +(\d+) kB$", mine, re.MULTILINE)[1])


def test_processes_share_all_pages_of_a_mapping_from_the_beginning(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"values": torch.ones(1 << 18)}, path)
    mapped = map_tensors(path)
    resident = kibibytes("Rss", path), kibibytes("Pss", path)
    assert resident == pytest.approx((1028, 1028), rel=0.05), "no page is left for the first inference"
    there, ready = os.pipe()
    done, end = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            own = map_tensors(path)
            os.write(ready, b"x")
            os.close(end)
            os.read(done, 1)
            os._exit(int(own["values"][-1]))
        finally:  # never on with the tests
            os._exit(99)
    os.close(ready)
    os.read(there, 1)  # nothing, if the child has failed
    shared = kibibytes("Pss", path)
    for descriptor in (end, done, there):
        os.close(descriptor)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == int(mapped["values"][-1]) == 1
    assert shared == pytest.approx(514, rel=0.05), "each has half of every page"


def test_a_write_into_a_mapping_ends_the_process(file):
    path, _ = file
    mapped = map_tensors(path)["values"]
    pid = os.fork()
    if not pid:
        try:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            mapped[0] = 5
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGSEGV
    assert mapped[0] == 0


def test_a_file_that_is_no_safetensors_is_refused(tmp_path):
    (tmp_path / "text").write_text("no weights at all")
    with pytest.raises(RequestError, match="is not a safetensors file"):
        map_tensors(tmp_path / "text")
