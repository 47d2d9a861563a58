"""Plans, points, stores, programs and recordings of somebody who means harm, as they are kept beside the repository:
each folder has a script, and what has to be seen. Nothing of them may be executed or believed."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import needs
from tests.fake_campaigns import begin, make
from tests.sandbox import ROOT

HOSTILE = ROOT.parent / "shared" / "cases" / "hostile"

pytestmark = [pytest.mark.full, needs.shared(HOSTILE)]

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

NEVER = re.compile(r"Traceback|\w*PWNED$|\x1b|^VALID$|ED25519", re.MULTILINE)


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A finished campaign, which the cases copy."""
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
