"""Results and stores of somebody who means harm, a second set beside the repository: what each may claim."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import needs
from tests.sandbox import ROOT

HOSTILE = needs.CASES / "hostile2"

pytestmark = [pytest.mark.full, needs.shared(HOSTILE)]

SEEN = {
    "a-lost-machine-stretches-the-slack": (r"lost=0\.95, times x 0\.55: valid=False", r"valid=True"),
    "benchmark-folder-with-links": (r"(?s)real\t0m[0-3]?\d\.\d.*real\t0m[0-3]?\d\.\d", r"Traceback"),
    "bytecode-under-the-source": (  # the digest is the same, and ranks name the module in their log
        r"edited code runs: (?:True|False)\n\['train_bench\.references\.parts\.recommendation\.training'\]",
        r"Traceback",
    ),
    "other-sources-under-a-revision": (
        r"(?m)(?:^[^\n:]+: valid=\w+ [^\n]*'(?!processor_wait|record)\w+', '(?:review|breaks)'\)[^\n]*\n){8}",
        r"Traceback",
    ),
    "paths-from-python": (r"(?s)with space -> /tmp/with space.*#5 -> /tmp/#5.*it's -> /tmp/it's", r"Error"),
    "secrets-in-variables": (r"\[\]\n0\n$", r"SECRET"),
    "server-latency-percentile": (r"valid=? ?False|NOT VALID", r"valid=? ?True"),
    "serving-one-run-five-times": (r"one run copied five times: valid=False", r"valid=True"),
    "serving-result-beside-a-campaign": (r"(?s)alone rc 1.*folder above rc 1.*\n[1-9]", r"folder above rc 0"),
    "startup-removes-a-folder": (r"train_bench_startup_notes[\s\S]*thesis\.txt", r"Traceback"),
    "store-of-weights-that-others-fill": (
        r"(?s)planted content[^\n]*RequestError.*near tier, fetch[^\n]*RequestError.*fifo[^\n]*fetch[^\n]*RequestError",
        r"Traceback|OSError|IsADirectoryError|hangs",
    ),
    "verdict-of-a-file": (r"NOT VALID", r"0\.0100 min *valid|^\['0\.0100'"),
    "web-of-a-foreign-store": (r"(?m)^\d s$", r"\d\d s$"),
}
"""What each has to print, and what not."""

MORE = {
    "bytecode-under-the-source": "\nPYTHONPATH=$W/k $PY -c '"
    "from train_bench.references.parts.recommendation import training; "
    "from train_bench.run.loaded_code import changed_bytecode; print(changed_bytecode())'\n"
}
"""What is done after the commands of a case."""


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A finished campaign of resnet_mini, which the cases copy."""
    folder = tmp_path_factory.mktemp("hostile") / "base"
    words = ("run", "benchmark=resnet_mini", "launcher.threads_per_rank=1", f"output={folder}")
    subprocess.run([sys.executable, "-m", "train_bench", *words], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """A checkout that may be written to."""
    folder = tmp_path_factory.mktemp("hostile") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def test_every_case_has_its_answer():
    assert {path.parent.name for path in HOSTILE.glob("*/cmd.sh")} == set(SEEN)


@pytest.mark.parametrize("name", SEEN)
def test_a_hostile_result_is_answered_in_words(name, base, clone, tmp_path, tmp_path_factory):
    served = tmp_path_factory.getbasetemp() / "hostile_served"  # made once, by the first case that needs it
    served.mkdir(exist_ok=True)
    environment = {"PY": sys.executable, "CLONE": str(clone), "BASE": str(base), "SERVED": str(served)}
    cases = shutil.copytree(HOSTILE, tmp_path / "cases")
    for path in (cases, *cases.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    library = cases / "_lib.sh"
    library.write_text(
        library.read_text().replace("nice -n 19 ", "")
    )  # a busy machine would not come to them
    script = cases / name / "cmd.sh"
    script.write_text(script.read_text() + MORE.get(name, ""))
    ended = subprocess.run(
        ["bash", str(script)],
        env=os.environ | environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = ended.stdout + ended.stderr
    seen, never = SEEN[name]
    assert re.search(seen, said), said
    assert not re.search(never, said, re.MULTILINE), said
