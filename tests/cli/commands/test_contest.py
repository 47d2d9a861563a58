"""`train-bench referee CONTEST CHALLENGER`, with runs that take no time."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.campaign.test_revisions import in_git
from tests.command_line import typed
from tests.judge.campaigns import at_another_time, campaign, plan
from train_bench.errors import RequestError
from train_bench.plan import process
from train_bench.plan.process import Ended
from train_bench.referee import contest, ledger

CONTEST = """\
contest: minis
run: benchmark=resnet_mini command='python train.py'
frontier: main
may_change: [train.py]
measured: {global_batch_size: 64}
gain_percent: 1
pairs: 5
"""
FRONTIER = [60.0, 60.3, 59.8, 60.1, 60.2]
FASTER = [50.0, 50.2, 49.9, 50.3, 50.1]
NO_FASTER = [60.1, 60.2, 59.9, 60.3, 60.0]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A contest in a repository, with one challenger that changes what it may, and one that does not."""
    top = tmp_path / "repository"
    top.mkdir()
    monkeypatch.chdir(top)
    in_git("init", "--quiet", "--initial-branch=main")
    Path("contest.yaml").write_text(CONTEST)
    for branch, name in (("main", "train.py"), ("allowed", "train.py"), ("cheat", "evaluate.py")):
        if branch != "main":
            in_git("checkout", "--quiet", "-b", branch, "main")
        Path(name).write_text(branch)
        in_git("add", ".")
        in_git("commit", "--quiet", "-m", f"train: {branch}")
    in_git("checkout", "--quiet", "main")
    return top


@pytest.fixture
def ran(monkeypatch):
    """Runs of both sides: `ran.seconds` of the challenger, `ran.end` ends the next one."""

    class Ran(list):
        seconds, end, sources = FASTER, staticmethod(lambda: None), ["good"] * 5

    made = Ran()

    def carry_out(launch, folder, tick, *, name, cwd):
        side, index = name.split("_")
        made.append(name)
        made.end()
        here = folder.parent / side
        here.mkdir(exist_ok=True)
        sources = made.sources if side == "b" else ["good"] * 5
        campaign(here, sources[: int(index) + 1], seconds=made.seconds if side == "b" else FRONTIER)
        plan(here, jobs=[{"index": one, "seed": 1000 + one} for one in range(5)])
        at_another_time(here, len(ledger.challenges(ledger.read(Path("ledger.jsonl")))) * 2 + (side == "b"))
        return Ended(exit_code=0, stderr="")

    monkeypatch.setattr(process, "carry_out", carry_out)
    return made


def referee(*words):
    said = typed("referee", "contest.yaml", *words, "--json")
    return said, json.loads(said.stdout) if said.stdout else None


def entries():
    return ledger.read(Path("ledger.jsonl"))


def test_a_faster_challenger_makes_a_record_and_is_the_next_frontier(place, ran):
    said, content = referee("allowed")
    assert (said.returncode, content["record"]) == (0, True), entries()[-1]["reasons"]
    assert content["time"]["verdict"] == "slower", "the frontier, than the challenger"
    assert content["level"] == pytest.approx(0.01 / 2 * 0.079 * 0.6931, rel=1e-3)
    assert [one["event"] for one in entries()] == ["opened", "begun", "decided"]
    assert ledger.frontier(entries()) == in_git("rev-parse", "allowed")
    verified, standing = referee()
    assert verified.returncode == 0 and standing["problems"] == []
    assert standing["head"] == content["standing"]["head"]
    assert len(ran) == content["runs"] == 2 * content["time"]["looks"][-1]["runs"]


def no_faster(ran):
    ran.seconds = NO_FASTER


def misses_the_target(ran):
    """The runs that reach it are five times as fast, and show it at a level as large as this."""
    ran.sources, ran.seconds = ["diverged", "diverged", "good", "good", "good"], [12.0] * 5
    Path("contest.yaml").write_text(CONTEST.replace("measured: {global_batch_size: 64}", "error: 0.5"))


@pytest.mark.parametrize(
    ("way", "words"),
    [(no_faster, "the frontier is not slower"), (misses_the_target, "but a rank test that counts")],
)
def test_a_challenger_that_is_not_shown_to_be_faster_makes_none(place, ran, way, words):
    way(ran)
    said, content = referee("allowed")
    assert content is not None, said.stderr
    assert (said.returncode, content["record"]) == (1, False)
    assert ledger.frontier(entries()) == in_git("rev-parse", "main")
    assert words in entries()[-1]["reasons"][0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            ("{global_batch_size: 64}", "{global_batch_size: 32}"),
            "Global_batch_size is 64; the contest allows 32.",
        ),
        (
            ("{global_batch_size: 64}", "{parameters: 9}"),
            "Parameters is not known of every run of the challenger.",
        ),
        (("pairs: 5", "pairs: 5\nquality: {metric: top1, above: 0.5}"), "have the same quality"),
    ],
)
def test_a_faster_challenger_beyond_what_is_frozen_makes_none(place, ran, changed, words):
    Path("contest.yaml").write_text(CONTEST.replace(*changed))
    said, content = referee("allowed")
    assert (said.returncode, content["record"]) == (1, False)
    assert any(words in one for one in entries()[-1]["reasons"]), entries()[-1]["reasons"]


def test_a_challenger_that_changes_a_frozen_file_is_refused_and_spends_nothing(place, ran):
    said, _ = referee("cheat")
    assert said.returncode == 2
    assert "The challenger changes evaluate.py, and may change train.py alone" in said.stderr
    assert not ran and ledger.challenges(entries()) == []


def test_an_edited_contest_is_refused(place, ran):
    referee("allowed")
    Path("contest.yaml").write_text(CONTEST.replace("gain_percent: 1", "gain_percent: 0"))
    said, _ = referee("main")
    assert said.returncode == 2 and "its file was edited" in said.stderr
    assert referee()[0].returncode == 1


def test_an_interrupted_challenge_goes_on_at_its_level_and_is_not_begun_again(place, ran):
    def interrupt():
        if len(ran) == 4:
            raise KeyboardInterrupt

    ran.end = interrupt
    assert referee("allowed")[0].returncode == 1
    ran.end = lambda: None
    said, content = referee("allowed")
    assert content["record"], said.stderr
    assert [one["event"] for one in entries()] == ["opened", "begun", "decided"]


def test_words_for_people_say_what_is_shown_and_what_cannot_be(place, ran):
    said = typed("referee", "contest.yaml", "allowed")
    assert (
        "RECORD: challenge 1" in said.stdout
        and "the frontier is slower than the challenger" in said.stdout.lower()
    )
    assert "What a challenge cannot show" in said.stdout and "Head of the ledger" in said.stdout


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("contest: minis\n", ""), "lacks contest"),
        (("pairs: 5", "pairs: 2"), "pairs of contest.yaml is 2; give a number from 3 to 100"),
        (("pairs: 5", "pears: 5"), "has pears"),
        (("[train.py]", "train.py"), "may_change of contest.yaml is 'train.py'; give a list of paths"),
        (
            ("pairs: 5", "quality: 0.5"),
            "quality of contest.yaml is 0.5; give its metric and a threshold",
        ),
        (
            ("pairs: 5", "outside: [labels.npy]"),
            "outside of contest.yaml names labels.npy, which cannot be read",
        ),
        (("contest: minis", "contest: ["), "is not valid YAML"),
    ],
)
def test_what_is_no_contest_is_a_sentence(tmp_path, monkeypatch, changed, words):
    monkeypatch.chdir(tmp_path)
    Path("contest.yaml").write_text(CONTEST.replace(*changed))
    with pytest.raises(RequestError) as refused:
        contest.read(Path("contest.yaml"))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("qualities", "shown"), [((0.81, 0.80, 0.82, 0.81), True), ((0.81, 0.79, 0.80, math.nan), False)]
)
def test_the_mean_quality_has_to_be_beyond_the_threshold(tmp_path, qualities, shown):
    Path(tmp_path, "contest.yaml").write_text(f"{CONTEST}quality: {{metric: top1, above: 0.75}}\n")
    records = [SimpleNamespace(file=f"result_{at}.txt", quality=one) for at, one in enumerate(qualities)]
    claim = contest.quality_claim(
        contest.read(Path(tmp_path, "contest.yaml")), SimpleNamespace(records=records), 0.001
    )
    assert claim.shown is shown


def test_files_outside_of_the_repository_are_part_of_the_contest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digests = []
    for labels in ("1", "2"):
        Path("labels.npy").write_text(labels)
        Path("contest.yaml").write_text(f"{CONTEST}outside: [labels.npy]\n")
        digests.append(contest.read(Path("contest.yaml")).digest)
    assert digests[0] != digests[1]
