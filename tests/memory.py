"""How much memory a process has held at most."""

from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_resident(from_now: bool = False) -> int:
    """Bytes of this process since its program began, or since it was asked for `from_now`. `ru_maxrss` would not do:
    a process begins with the peak of the one that started it (getrusage(2)), and keeps it (proc(5))."""
    if from_now:
        RESET.write_text("5")
    (line,) = (text for text in STATUS.read_text().splitlines() if text.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])
