"""Messages between ranks. Plain values, arrays and dataclasses of train_bench travel as JSON and bytes, which execute
nothing when they are read; any other object is pickled and signed with the token of its launch, which a stranger on the
network has not."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import secrets
import struct
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.core import files
from train_bench.errors import LaunchError

TOKEN = "launch_token"
"""File of a run's ranks folder: made by the launching process, readable by its user alone."""

SHARED = "TRAIN_BENCH_TOKEN"
"""Environment variable with the token of a campaign whose hosts share no folder."""

PLAIN, SIGNED = b"P", b"S"
LENGTH = struct.Struct("<q")
SIGNATURE_BYTES = hashlib.sha256().digest_size
LARGEST_BYTES = 2**35
"""Above what any evaluation gathers of one rank."""

OWN = "train_bench."
"""Modules whose dataclasses travel as their fields."""

NATIVE = (type(None), bool, int, float, str)


def make_token(ranks_folder: Path) -> None:
    """Write a new token for the ranks of a run."""
    path = ranks_folder / TOKEN
    ranks_folder.mkdir(parents=True, exist_ok=True)
    try:
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except OSError as error:
        raise files.cannot_write(path, error) from error


def read_token(ranks_folder: Path) -> bytes | None:
    """Token of the launch, or of its campaign; None for ranks that were started without one."""
    if SHARED in os.environ:
        return os.environ[SHARED].encode()
    try:
        return files.read_bytes(ranks_folder / TOKEN, largest=1024)
    except OSError:
        return None


def encode(value: Any, token: bytes | None) -> bytes:
    """The message that carries `value`. Raises `LaunchError` for an object that needs a token where there is none."""
    blobs = bytearray()
    try:
        header = json.dumps(_packed(value, blobs), separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        return _signed(value, token)
    return b"".join((PLAIN, LENGTH.pack(len(header)), header, blobs))


def decode(message: bytes, token: bytes | None, sender: str) -> Any:
    """The value that a message carries. Raises `LaunchError` for anything that no rank of this launch has sent."""
    kind, content = message[:1], message[1:]
    if kind == SIGNED and token is not None:
        signature, pickled = content[:SIGNATURE_BYTES], content[SIGNATURE_BYTES:]
        if hmac.compare_digest(signature, hmac.digest(token, pickled, "sha256")):
            return pickle.loads(pickled)
    try:
        if kind == PLAIN:
            (length,) = LENGTH.unpack_from(content)
            header = content[LENGTH.size : LENGTH.size + length]
            return _unpacked(json.loads(header), content[LENGTH.size + length :])
    except (*files.INVALID_CONTENT, struct.error):
        pass
    raise LaunchError(
        f"{sender} has sent a message without the token of this launch, so it is not a rank of this run. Check which "
        "processes reach the ports of this campaign."
    )


def _signed(value: Any, token: bytes | None) -> bytes:
    if token is None:
        raise LaunchError(
            f"Ranks exchange an object of type {type(value).__name__}, but this launch has no token. Exchange numbers, "
            "text, lists, dictionaries or arrays."
        )
    pickled = pickle.dumps(value)
    return SIGNED + hmac.digest(token, pickled, "sha256") + pickled


def _packed(value: Any, blobs: bytearray) -> Any:
    """JSON of `value`; a dictionary is `{"d": [[key, item], ...]}`, and the bytes of arrays go to `blobs`. Raises
    `TypeError` for other types."""
    if type(value) in NATIVE:
        return value
    if type(value) is list:
        return [_packed(item, blobs) for item in value]
    if type(value) is dict:
        return {"d": [[_packed(key, blobs), _packed(item, blobs)] for key, item in value.items()]}
    if type(value) in (tuple, set):
        return {type(value).__name__[0]: [_packed(item, blobs) for item in value]}
    if type(value) is bytes:
        return {"b": _blob(value, blobs)}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc?":
        array = np.ascontiguousarray(value)
        place = [array.dtype.str, list(np.shape(value)), *_blob(array.tobytes(), blobs)]
        return {"n" if isinstance(value, np.generic) else "a": place}
    if is_dataclass(value) and type(value).__module__.startswith(OWN):
        content = [[field.name, _packed(getattr(value, field.name), blobs)] for field in fields(value)]
        return {"o": [type(value).__module__, type(value).__qualname__, content]}
    raise TypeError(type(value).__name__)


def _blob(content: bytes, blobs: bytearray) -> list[int]:
    start = len(blobs)
    blobs += content
    return [start, len(content)]


def _unpacked(value: Any, content: bytes) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, content) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, packed),) = value.items()
    if kind == "d":
        return {_unpacked(key, content): _unpacked(item, content) for key, item in packed}
    if kind in "ts":
        return (tuple if kind == "t" else set)(_unpacked(item, content) for item in packed)
    if kind == "b":
        return content[packed[0] : sum(packed)]
    if kind == "o":
        return _dataclass(packed[0], packed[1])(
            **{name: _unpacked(item, content) for name, item in packed[2]}
        )
    dtype, shape, start, length = packed
    array = np.frombuffer(content[start : start + length], np.dtype(dtype)).reshape(shape).copy()
    return array[()] if kind == "n" else array


def _dataclass(module: str, name: str) -> Any:
    """A dataclass of train_bench in a module that is imported here already."""
    found = getattr(sys.modules.get(module), name, None)
    if not module.startswith(OWN) or not isinstance(found, type) or not is_dataclass(found):
        raise TypeError(f"{module}.{name} is not a dataclass of train_bench.")
    return found


def gather(value: Any, size: int, rank: int, device: Any, token: bytes | None) -> list[Any] | None:
    """All ranks' values on rank 0 of a torch process group, None elsewhere."""
    torch, dist = sys.modules["torch"], sys.modules["torch.distributed"]
    mine = torch.frombuffer(bytearray(encode(value, token)), dtype=torch.uint8).to(device)
    lengths = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([mine.numel()], dtype=torch.int64, device=device))
    sizes = [_bounded(int(length), f"rank {number}") for number, length in enumerate(lengths)]
    padded = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
    padded[: mine.numel()] = mine
    every = [torch.empty_like(padded) for _ in range(size)] if rank == 0 else None
    dist.gather(padded, every, dst=0)
    if every is None:
        return None
    messages = (_bytes(one[:length]) for one, length in zip(every, sizes, strict=True))
    return [decode(message, token, f"rank {number}") for number, message in enumerate(messages)]


def broadcast(value: Any, rank: int, device: Any, token: bytes | None) -> Any:
    """Rank 0's value, on every rank of a torch process group."""
    torch, dist = sys.modules["torch"], sys.modules["torch.distributed"]
    message = encode(value, token) if rank == 0 else b""
    length = torch.tensor([len(message)], dtype=torch.int64, device=device)
    dist.broadcast(length, src=0)
    size = _bounded(int(length), "rank 0")
    if rank == 0:
        content = torch.frombuffer(bytearray(message), dtype=torch.uint8).to(device)
    else:
        content = torch.empty(size, dtype=torch.uint8, device=device)
    dist.broadcast(content, src=0)
    return value if rank == 0 else decode(_bytes(content), token, "rank 0")


def _bytes(content: Any) -> bytes:
    return bytes(content.cpu().numpy())


def _bounded(length: int, sender: str) -> int:
    if not 0 < length <= LARGEST_BYTES:
        raise LaunchError(f"{sender} announces a message of {length} bytes, so it is not a rank of this run.")
    return length
