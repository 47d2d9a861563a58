"""Control groups of this process that account for or limit its CPU time (cgroup v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

OWN = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")


def cpu_groups() -> Iterator[Path]:
    """Folders of this process's groups, each before its ancestors. A container may see its own group as the root, so
    the mount point itself is the last of them."""
    for line in text(OWN).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        roots = ("cpu", controllers) if controllers else ("", "unified")
        for root in (MOUNTED / name for name in dict.fromkeys(roots)):
            group = root / path.strip("/")
            yield from (group, *group.parents[: len(group.parts) - len(root.parts)])


def text(path: Path) -> str:
    """Content; empty if a process or group is gone or not accessible."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
