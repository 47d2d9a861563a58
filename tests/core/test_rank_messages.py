"""Messages between ranks: values come back as they were, and nothing of a stranger is executed."""

import json
import math
import os
import pickle
import stat
import struct

import numpy as np
import pytest

from train_bench.core import rank_messages
from train_bench.errors import LaunchError
from train_bench.task import SamplesTaken

TOKEN = b"of this launch"


class Evil:
    """An object whose unpickling makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


class Own:
    """An object of a benchmark of somebody's own."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return self.number == other.number

    __hash__ = None


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**200,
        0.1,
        -math.inf,
        "\ud800 x",
        b"\x00\xff",
        (1, [2, (3,)], {"a": {4: None}, (5, 6): {7}}),
        [],
        {"samples": 3, "d": 1},
    ],
)
def test_a_plain_value_comes_back_as_it_was(value):
    found = rank_messages.decode(rank_messages.encode(value, None), None, "rank 1")
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("dtype", ["<f8", "<f4", "<f2", "<i8", "|u1", "?"])
def test_an_array_comes_back_bit_for_bit(dtype):
    sent = {
        "of": [np.arange(6).reshape(2, 3).T.astype(dtype), np.zeros((0, 7), dtype), np.dtype(dtype).type(1)]
    }
    found = rank_messages.decode(rank_messages.encode(sent, None), None, "rank 1")
    for here, there in zip(found["of"], sent["of"], strict=True):
        assert (here.dtype, here.shape, here.tobytes()) == (there.dtype, there.shape, there.tobytes())


def test_an_object_of_another_type_needs_the_token():
    message = rank_messages.encode(Own(3), TOKEN)
    assert rank_messages.decode(message, TOKEN, "rank 1") == Own(3)
    with pytest.raises(LaunchError, match="an object of type Own"):
        rank_messages.encode(Own(3), None)


@pytest.mark.parametrize("token", [None, TOKEN])
def test_what_a_stranger_sends_is_not_executed(tmp_path, token):
    pickled = pickle.dumps(Evil(tmp_path / "PWNED"))
    for message in (pickled, b"S" + bytes(32) + pickled, b"P" + pickled, b"", b"S", b"P" + bytes(8) + b"{}"):
        with pytest.raises(LaunchError, match="rank 1 has sent a message without the token"):
            rank_messages.decode(message, token, "rank 1")
    for other in (b"of another launch", b""):
        with pytest.raises(LaunchError, match="without the token"):
            rank_messages.decode(rank_messages.encode(Evil(tmp_path / "PWNED"), other), token, "rank 1")
    assert not (tmp_path / "PWNED").exists()


def test_a_dataclass_of_train_bench_travels_as_its_fields():
    taken = SamplesTaken(trained=4, order=[np.arange(3)], evaluated=(1, 2))
    found = rank_messages.decode(rank_messages.encode(taken, None), None, "rank 1")
    assert (found.trained, found.evaluated, found.order[0].tolist()) == (4, (1, 2), [0, 1, 2])


@pytest.mark.parametrize(
    "named",
    [
        ["os", "system"],
        ["train_bench.core.files", "write"],
        ["train_bench.core.files", "Path"],
        ["train_bench"],
    ],
)
def test_only_dataclasses_of_train_bench_are_made(named):
    header = json.dumps({"o": [*named, [["command", "true"]]]}).encode()
    with pytest.raises(LaunchError, match="without the token"):
        rank_messages.decode(b"P" + struct.pack("<q", len(header)) + header, TOKEN, "rank 1")


def test_a_token_is_new_in_each_launch_and_readable_by_its_user_alone(tmp_path):
    tokens = set()
    for _ in range(2):
        rank_messages.make_token(tmp_path)
        tokens.add(rank_messages.read_token(tmp_path))
    assert len(tokens) == 2
    assert stat.S_IMODE((tmp_path / rank_messages.TOKEN).stat().st_mode) == 0o600
    assert rank_messages.read_token(tmp_path / "none") is None


def test_hosts_that_share_no_folder_have_the_token_of_their_campaign(tmp_path, monkeypatch):
    assert rank_messages.read_token(tmp_path) is None
    monkeypatch.setenv(rank_messages.SHARED, "of the campaign")
    assert rank_messages.read_token(tmp_path) == b"of the campaign"
