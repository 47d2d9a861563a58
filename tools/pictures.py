"""Pictures of README.md and docs/: terminals as SVG and the page of a campaign, recorded from runs on this machine,
from a commit without changes, where train_bench is installed.

python tools/pictures.py               # in /tmp/demo, which keeps the campaigns: what is there is not run again
python tools/pictures.py list page     # these alone
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from fcntl import ioctl
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
WORK = Path("/tmp/demo")
PAGE_SIZE = (1200, 1000)
SERVING_SIZE = (1200, 1250)
SAMPLES_WIDTH = 700

REVIEWED = ("PYTHON", "OPENBLAS_", "OMP_")
"""Environment variables of a developer's shell, about which a verdict says something."""

CONTROL = re.compile(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)")
UP, ERASE = re.compile(r"\x1b\[(\d*)A"), "\x1b[2K"


def main(names: Sequence[str]) -> None:
    """Record the pictures of these names, or all."""
    WORK.mkdir(exist_ok=True)
    PICTURES.mkdir(exist_ok=True)
    write_trainer()
    for name, record in PICTURED.items():
        if not names or name in names:
            record()
            print(f"{name} is recorded.", flush=True)


def record_list() -> None:
    """The minis."""
    save("list", ("list", "mini"), recorded(("list", "mini"), 80))


def record_run() -> None:
    """A campaign while it runs, and its end."""
    words = ("run", "benchmark=dlrm_mini", "output=before")
    if (WORK / "before").exists():
        shutil.rmtree(WORK / "before")
    frames = list(screens(recorded_stream(words, 100)))
    running = [frame for frame in frames if "left (" in frame[-1] and "run 3 (4 of 5)" in frame[-1]]
    if not running:
        sys.exit("No screen has the fourth run and the time left; is progress printed in other words now?")
    save("progress", words, running[len(running) // 2], 100)
    save("run", words, frames[-1], 100)


def record_compare() -> None:
    """Two campaigns of the trainer that take turns, of which the second has the change of docs/tutorials/my-trainer.md,
    which makes a difference."""
    text = (WORK / "moons" / "train.py").read_text(encoding="utf-8")
    changed = text.replace("rng.normal(0, 0.1, 16)", "rng.normal(0, 1, 16)")
    if changed == text:
        sys.exit("The trainer has no longer the line that the second campaign changes.")
    (WORK / "changed.py").write_text(changed, encoding="utf-8")
    if not (WORK / "pair").exists():
        against = "against=command='python changed.py'"
        words = (
            "run",
            "benchmark=./moons",
            "seed=1",
            against,
            "output=pair",
            "--",
            "python",
            "moons/train.py",
        )
        recorded(words, 100)
    save("compare", ("compare", "pair"), recorded(("compare", "pair"), 90), 90)


def record_trainer() -> None:
    """A campaign of the trainer of docs/tutorials/my-trainer.md."""
    if (WORK / "mine").exists():
        shutil.rmtree(WORK / "mine")
    words = ("run", "benchmark=./moons", "output=mine", "--", "python", "moons/train.py")
    save("trainer", words, recorded(words, 100), 100)


def record_page() -> None:
    """The first screen of a campaign's page, in chromium."""
    photograph(WORK / "before" / "report.html", PICTURES / "page.png", PAGE_SIZE)


def record_serving() -> None:
    """The page of served weights."""
    if not (WORK / "kept_serving").exists():
        recorded(("run", "benchmark=resnet_mini", "keep_weights=true", "output=kept"), 100)
        recorded(("verify", "kept"), 100)
        recorded(("serve", "kept"), 100)
    photograph(WORK / "kept_serving" / "serving.html", PICTURES / "serving.png", SERVING_SIZE)


def record_samples() -> None:
    """Samples of flux1_mini on the page of its campaign."""
    if not (WORK / "generated").exists():
        recorded(("run", "benchmark=flux1_mini", "output=generated"), 100)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": SAMPLES_WIDTH, "height": 900})
        page.goto((WORK / "generated" / "report.html").as_uri())
        page.locator("table.samples").screenshot(path=PICTURES / "samples.png")
        browser.close()
    compress(PICTURES / "samples.png")


def photograph(page: Path, picture: Path, sides: tuple[int, int]) -> None:
    """The top of a page in a window of so many pixels."""
    size = ",".join(map(str, sides))
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--virtual-time-budget=20000")
    words = ("chromium", *options, f"--window-size={size}", f"--screenshot={picture}", page.as_uri())
    subprocess.run(words, check=True, capture_output=True)
    compress(picture)


def compress(picture: Path) -> None:
    """Write a picture with a palette of 128 colours, a third of its size."""
    from PIL import Image

    with Image.open(picture) as image:
        image.convert("RGB").quantize(128).save(picture, optimize=True)


def write_trainer() -> None:
    """The trainer of docs/tutorials/my-trainer.md, in WORK."""
    if (WORK / "moons").exists():
        shutil.rmtree(WORK / "moons")
    recorded(("new", "trainer", "moons", "--plain"), 100)


def recorded(words: Sequence[str], columns: int) -> list[str]:
    """Last screen of a command."""
    *_, last = screens(recorded_stream(words, columns))
    return last


def recorded_stream(words: Sequence[str], columns: int) -> Iterator[str]:
    """Output of a command on a terminal of so many columns, as it comes. `python` is this interpreter."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    argv = [
        sys.executable,
        "-m",
        "train_bench",
        *(sys.executable if one == "python" else one for one in words),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(REVIEWED)}
    environment = kept | {"TERM": "xterm-256color"}
    process = subprocess.Popen(argv, cwd=WORK, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    pending = b""
    while chunk := read_chunk(ours):
        pending += chunk
        text, pending = split_characters(pending)
        yield text
    process.wait()


def read_chunk(terminal: int) -> bytes:
    """Bytes of a terminal; none at its end."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def split_characters(data: bytes) -> tuple[str, bytes]:
    """Complete characters of UTF-8, and the bytes of one that is cut."""
    for cut in range(len(data), max(-1, len(data) - 4), -1):
        try:
            return data[:cut].decode(), data[cut:]
        except UnicodeDecodeError:
            continue
    return data.decode(errors="replace"), b""


def screens(stream: Iterator[str]) -> Iterator[list[str]]:
    """Lines of the screen after each piece of output: rich moves the cursor up and erases whole lines."""
    lines, row = [""], 0
    for piece in stream:
        for token in CONTROL.split(piece):
            up = UP.fullmatch(token)
            if token == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif up:
                row = max(0, row - int(up[1] or 1))
            elif token == ERASE:
                lines[row] = ""
            elif token != "\r" and not token.startswith("\x1b[?"):
                lines[row] += token
        yield list(lines)


def save(name: str, words: Sequence[str], lines: Sequence[str], columns: int = 80) -> None:
    """Write a screen below its command as SVG, with the fonts of the reader's machine."""
    console = Console(
        record=True, width=columns, file=io.StringIO(), force_terminal=True, legacy_windows=False
    )
    typed = [re.sub(r"^against=(.*)$", r"against='\1'", word) for word in words]
    console.print(Text(f"$ train-bench {' '.join(map(str, typed))}", style="bold"))
    for line in "\n".join(lines).strip("\n").split("\n"):
        console.print(Text.from_ansi(line), highlight=False)
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    console.save_svg(str(PICTURES / f"{name}.svg"), title="train-bench", code_format=form, unique_id=name)


PICTURED: dict[str, Callable[[], None]] = {
    "list": record_list,
    "run": record_run,
    "trainer": record_trainer,
    "compare": record_compare,
    "page": record_page,
    "serving": record_serving,
    "samples": record_samples,
}

if __name__ == "__main__":
    main(sys.argv[1:])
