"""The installed checkers beside the official verdict as we work it out, on published results and on logs of our own."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests import needs
from tests.judge.campaigns import campaign
from tests.needs import CORPUS
from train_bench.judge.official import cross_check
from train_bench.judge.tree import judge_folder, judge_tree

NOWHERE = Path("/nowhere")

# Entries on which the tools accept, refuse and crash.
PUBLISHED = [
    "v1.0/Google/results/tpu-v4-128-TF/resnet",
    "v1.1/Graphcore/results/ipu-pod16-POPART-open/bert",
    "v1.1/NVIDIA/results/dgxa100_ngc21.09_merlin_hugectr/dlrm",
    "v1.1/NVIDIA/results/dgxa100_ngc21.09_pytorch/bert",
    "v5.1/NVIDIA/results/theia_ngpu512_ngc25.09_nemo/llama31_405b",
    "v5.1/Quanta_Cloud_Technology/results/D75T-7U/llama2_70b_lora",
]


@needs.corpus
@pytest.mark.parametrize("entry", PUBLISHED)
def test_the_tools_say_what_we_say_they_say(entry):
    judgement = judge_folder(CORPUS / entry, ruleset_name=None, rcp_folders=[NOWHERE])
    opinions = cross_check.compare(judgement)
    checkers = ["compliance", "RCP"] if judgement.score.division == "open" else ["compliance", "RCP", "seeds"]
    assert [opinion["checker"] for opinion in opinions] == checkers
    assert all(opinion["agrees"] for opinion in opinions), opinions


@needs.corpus
def test_a_difference_is_told_with_the_files():
    judgement = judge_folder(CORPUS / PUBLISHED[0], ruleset_name=None, rcp_folders=[NOWHERE])
    runs = [replace(run, officially_compliant=run.index > 0) for run in judgement.score.runs]
    wrong = replace(judgement, score=replace(judgement.score, runs=tuple(runs)))
    compliance = cross_check.compare(wrong)[0]
    assert compliance["agrees"] is False
    assert compliance["message"].endswith("our official verdict differs on result_0.txt")


def test_a_round_of_ours_is_unknown_to_the_tools(tmp_path):
    (opinion,) = cross_check.compare(
        judge_folder(campaign(tmp_path, ["good"] * 5), ruleset_name="mini-1.0", rcp_folders=[NOWHERE])
    )
    assert (opinion["verdict"], opinion["agrees"]) == ("none", None)


def test_a_log_alone_is_asked_about_its_compliance_only(tmp_path):
    file = campaign(tmp_path, ["good"]) / "result_0.txt"
    file.write_text(file.read_text().replace('"resnet_mini"', '"resnet"'))
    judged = judge_tree(file, ruleset_name="training-1.1.0", rcp_folders=[NOWHERE])
    assert [opinion["checker"] for opinion in cross_check.compare(judged.entries[0])] == ["compliance"]
