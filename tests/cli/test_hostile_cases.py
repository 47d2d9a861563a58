"""Plans, points, stores, programs, recordings and results of somebody who means harm, as they are kept in two sets
beside the repository: each folder has a script, and what has to be seen. Nothing of them may be executed or believed.
Both sets are here so that the campaign that their cases copy is made once."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import needs
from tests.fake_campaigns import begin, make
from tests.sandbox import ROOT

HOSTILE = needs.CASES / "hostile"
RESULTS_FOLDER = needs.CASES / "hostile2"

pytestmark = [pytest.mark.full, needs.shared(HOSTILE), needs.shared(RESULTS_FOLDER)]

TRUST = r"reaches beyond this process .* Add trust=true to allow it"
SENTENCE = r"train-bench: .*\."

SEEN = {
    "calls-that-kill-the-pipe": r"(?s)(\w+ rc=[12] \d+ s *\n?){7}",
    "clock-of-the-ranks-slowed": r"NOT VALID",
    "damaged-recordings": r"(?s)(train-bench: [^\n]*[Rr]ecord it again[^\n]*\n?){3}",
    "escapes-of-a-variant": r"5 run\(s\) of x\\x1b\[2J\\x1b\]0;pwn\\x07\\nVALID\\n in ",
    "forged-plan-of-nine-logs": r"NOT VALID: .*\nNOT VALID: ",
    "liar-of-an-own-trainer": (
        r"(?s)next to no processor time.*no file of the benchmark's data folder was opened.*\nVALID"
    ),
    "log-that-is-no-file": r"(?s)fifo rc=1 [^\n]*its log .*zero rc=1 [^\n]*its log ",
    "pickle-from-a-peer-of-a-foreign-plan": TRUST,
    "points-for-official-rounds": r"NOT VALID.*(\n.*)*NOT VALID: RCP fail.*do not count: batch size 200000",
    "quality-above-its-best": r"report\(\) gave 88\.0 as AUC, which is at most 1; ",
    "quadratic-weights-lines": r"40000 lines \d+\.\d+ s",
    "rcp-of-a-liar": r"NOT VALID: RCP fail.*did not come with train_bench: batch size 1000 \(.*made by .*liar\.py",
    "reference-folder-of-a-foreign-plan": r"result_1\.txt",
    "slurm-output-of-a-foreign-plan": TRUST,
    "ssh-to-hosts-of-a-foreign-plan": TRUST,
    "store-with-a-view": r"is not a store of train_bench: it has the (table|view)",
    "times-against-processor-wait": r"NOT VALID",
    "tracebacks-of-old-probes": rf"({SENTENCE}\n?)+",
}
"""What each of them has to print."""

RESULTS = {
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

NEVER = re.compile(r"Traceback|\w*PWNED$|\x1b|^VALID$|ED25519", re.MULTILINE)


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A finished campaign, which the cases of both sets copy."""
    folder = tmp_path_factory.mktemp("hostile") / "base"
    words = ("run", "benchmark=dlrm_mini", "launcher.threads_per_rank=1", f"output={folder}")
    subprocess.run([sys.executable, "-m", "train_bench", *words], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def resnet(tmp_path_factory):
    """A campaign of resnet_mini whose plan is there, and none of its runs."""
    folder = tmp_path_factory.mktemp("hostile") / "resnet"
    begin(make("launcher.threads_per_rank=1", f"output={folder}"))
    (folder / "result_4.txt").touch()
    return folder


@pytest.mark.parametrize("name", SEEN)
def test_a_hostile_case_is_answered_in_words(name, base, resnet, tmp_path):
    environment = {"PY": sys.executable, "CLONE": str(ROOT), "BASE": str(base), "CORPUS": str(needs.CORPUS)}
    environment["RESNET"] = str(resnet)
    script = shutil.copytree(HOSTILE / name, tmp_path / "cases" / name) / "cmd.sh"
    shutil.copy(HOSTILE / "_lib.sh", tmp_path / "cases")
    script.write_text(
        script.read_text().replace("-s INT 1", "-s INT 10")
    )  # limits are those of an idle machine
    ended = subprocess.run(
        ["bash", str(script)],
        env=os.environ | environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    said = ended.stdout + ended.stderr
    assert re.search(SEEN[name], said), said
    if name == "liar-of-an-own-trainer":
        assert (
            "Not verifiable: the quality, which the program alone measured, and with it that it trained"
            in said
        )
        assert "the clock is that of train_bench" not in said
    if name == "quadratic-weights-lines":
        few, _, many = (float(seconds) for seconds in re.findall(r"lines (\d+\.\d+) s", said))
        assert many < 8 * few, "four times the lines take sixteen times as long where the rule is quadratic"
    if name == "liar-of-an-own-trainer":  # it breaks no rule that a log can show
        said = said.replace("\nVALID", "\nvalid")
    seen = NEVER.search(said.replace("ls: cannot access", ""))
    assert seen is None or "No such file" in said, said


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """A checkout that may be written to."""
    folder = tmp_path_factory.mktemp("hostile") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def test_every_case_has_its_answer():
    assert {path.parent.name for path in RESULTS_FOLDER.glob("*/cmd.sh")} == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_hostile_result_is_answered_in_words(name, base, clone, tmp_path, tmp_path_factory):
    served = tmp_path_factory.getbasetemp() / "hostile_served"  # made once, by the first case that needs it
    served.mkdir(exist_ok=True)
    environment = {"PY": sys.executable, "CLONE": str(clone), "BASE": str(base), "SERVED": str(served)}
    cases = shutil.copytree(RESULTS_FOLDER, tmp_path / "cases")
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
    seen, never = RESULTS[name]
    assert re.search(seen, said), said
    assert not re.search(never, said, re.MULTILINE), said
