"""Files of a campaign as lines of text, by which they leave a host that shares no folder: the log of a pod has them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from train_bench.core import files

SENT = (
    *("system.json", "result_*.txt", "record_*.json", "failed/result_*.txt", "attempts/run_*.json"),
    *("power/*/*.txt", "ranks/run_*/*.json", "ranks/run_*/launcher*.stderr"),
)
"""Files that are sent: of what a campaign writes, all that is judged, and the words with which a run has failed."""

LARGEST_BYTES = 64 * 2**20
PART = 8000
"""Characters of a file in a line; logs of containers keep 16 KiB of a line together."""

LINE = re.compile(
    r"^:::TRAIN_BENCH_FILE (\S+) ([0-9a-f]{64}) (\d+)/(\d+) ([\w+/=]*)$", re.MULTILINE | re.ASCII
)


Version = tuple[int, ...]
"""Of a file: when it was written, its size and its inode, which is another one where it was replaced."""


def changed(
    folder: Path, patterns: Sequence[str], known: Mapping[str, Version]
) -> Iterator[tuple[str, Version, bytes]]:
    """Files of a campaign with names of these patterns whose version is not the known one."""
    for path in sorted({path for pattern in patterns for path in folder.glob(pattern)}):
        name = str(path.relative_to(folder))
        with contextlib.suppress(OSError):  # too large, no file, or gone
            status = path.stat()
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if known.get(name) != version:
                yield name, version, files.read_bytes(path, largest=LARGEST_BYTES)


def lines_of(name: str, content: bytes) -> Iterator[str]:
    """The lines of a file: its name, its digest, the number of the line, and a part of its compressed content."""
    text = base64.b64encode(zlib.compress(content, 9)).decode()
    parts = [text[start : start + PART] for start in range(0, len(text), PART)]
    for number, part in enumerate(parts, 1):
        yield f":::TRAIN_BENCH_FILE {name} {digest_of(content)} {number}/{len(parts)} {part}"


def received(text: str) -> dict[str, bytes]:
    """Complete files among the lines of a text, by their names; of several versions of a file, the last counts. One
    with a name that is not sent, or another content than its digest says, is left out."""
    parts: dict[tuple[str, str], dict[int, str]] = {}
    found = {}
    for name, digest, number, count, part in LINE.findall(text):
        if not matches(name, SENT):
            continue
        own = parts.setdefault((name, digest), {})
        own[int(number)] = part
        if len(own) == int(count):
            content = _content("".join(own[one] for one in sorted(own)))
            if content is not None and digest_of(content) == digest:
                found[name] = content
    return found


def digest_of(content: bytes) -> str:
    """sha256 of a content."""
    return hashlib.sha256(content).hexdigest()


def matches(name: str, patterns: Sequence[str]) -> bool:
    """True for the name of a file below a folder that has one of these patterns, part by part."""
    words = name.split("/")
    return ".." not in words and any(
        len(words) == len(own) and all(map(fnmatchcase, words, own))
        for own in (pattern.split("/") for pattern in patterns)
    )


def _content(text: str) -> bytes | None:
    inflate = zlib.decompressobj()
    try:
        content = inflate.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
    except (ValueError, zlib.error):
        return None
    return content if inflate.eof else None
