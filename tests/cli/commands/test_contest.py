"""`train-bench referee CONTEST CHALLENGER`, with runs that take no time."""

import json
import math
import re
import shutil
import statistics
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from scipy import stats

from tests.campaign.test_revisions import in_git
from tests.command_line import typed
from tests.judge.campaigns import at_another_time, campaign, plan
from train_bench.campaign import comparing
from train_bench.cli import contest_runs
from train_bench.errors import RequestError
from train_bench.judge.finding import BREAKS, REVIEW, file_finding
from train_bench.plan import process
from train_bench.plan.process import Ended
from train_bench.referee import contest, ledger

ROOT = Path(__file__).parents[3]
CONTEST = """\
contest: minis
run: benchmark=resnet_mini command='python train.py'
frontier: main
may_change: [train.py]
measured: {global_batch_size: 64}
gain_percent: 1
pairs: 5
aa_pairs: 0
"""
FRONTIER = [60.0, 60.3, 59.8, 60.1, 60.2, 60.0]
FASTER = [50.0, 50.2, 49.9, 50.3, 50.1, 50.0]
NO_FASTER = [60.1, 60.2, 59.9, 60.3, 60.0, 60.1]


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
        seconds, sources, of_frontier = FASTER, ["good"] * 6, ["good"] * 6
        end, dies, moved = staticmethod(lambda: None), None, staticmethod(at_another_time)
        qualities = None

    made, places = Ran(), []

    def carry_out(launch, folder, tick, *, name, cwd, first):
        side, index = name.split("_")
        made.append(name)
        made.end()
        here = folder.parent / side
        here.mkdir(exist_ok=True)
        places.extend({here} - {*places})
        with_itself = here.parent.name.startswith("aa_")
        sources = made.sources if side == "b" and not with_itself else made.of_frontier
        seconds = FRONTIER if side == "a" else NO_FASTER if with_itself else made.seconds
        campaign(here, sources[: int(index) + 1], seconds=seconds)
        if made.qualities is not None:
            at_a_budget(here, made.qualities["a" if with_itself else side])
        plan(here, jobs=[{"index": one, "seed": 1000 + one} for one in range(6)])
        made.moved(here, places.index(here))
        return Ended(exit_code=int(name == made.dies), stderr="")

    monkeypatch.setattr(process, "carry_out", carry_out)
    monkeypatch.setattr(contest_runs, "can_confine", lambda wanted: True)
    return made


def at_a_budget(folder, qualities):
    """The runs of a folder missed the target, and had these qualities at epoch 3, the last one."""
    for index, path in enumerate(sorted(folder.glob("result_*.txt"))):
        text = path.read_text().replace('"value": 0.999', f'"value": {qualities[index]}')
        path.write_text(text.replace('"status": "success"', '"status": "aborted"'))


def referee(*words):
    said = typed("referee", "contest.yaml", *words, "--json")
    return said, json.loads(said.stdout) if said.stdout else None


def entries():
    return ledger.read(Path("ledger.jsonl"))


def events():
    """Lines of the ledger but those of runs and sessions."""
    return [one["event"] for one in entries() if one["event"] not in (ledger.RUN, ledger.SESSION)]


@pytest.mark.parametrize(("of_frontier", "asked"), [(["an unknown one"], 1), ([], 0)])
def test_a_floor_of_times_is_that_of_the_frontiers_machine_or_is_asked_about(place, ran, of_frontier, asked):
    def described(folder, days):
        at_another_time(folder, days)
        names = {"a": of_frontier, "b": [] if of_frontier else ["an unknown one"]}[folder.name]
        (folder / "system.json").write_text(json.dumps({"accelerators": names, "cores": 2}))

    Path("contest.yaml").write_text(f"{CONTEST}flop_per_sample: 1\n")
    ran.moved = described
    _, content = referee("allowed")
    assert sum("no least time of the work" in one for one in content["questions"]) == asked


def branch(name, text="faster", file="train.py"):
    """A further challenger."""
    in_git("checkout", "--quiet", "-b", name, "main")
    Path(file).write_text(text)
    in_git("add", file)
    in_git("commit", "--quiet", "-m", f"train: {text}")
    in_git("checkout", "--quiet", "main")


def test_a_faster_challenger_makes_a_record_and_is_the_next_frontier(place, ran):
    said, content = referee("allowed")
    assert (said.returncode, content["record"]) == (0, True), entries()[-1]["reasons"]
    assert content["time"]["verdict"] == "slower", "the frontier, than the challenger"
    assert content["level"] == pytest.approx(0.01 / 2 * 0.079 * 0.6931, rel=1e-3)
    assert events() == ["opened", "begun", "decided"]
    assert ledger.frontier(entries()) == in_git("rev-parse", "allowed")
    verified, standing = referee()
    assert verified.returncode == 0 and standing["problems"] == []
    assert standing["head"] == content["standing"]["head"]
    assert len(ran) == content["runs"] == 2 * content["time"]["looks"][-1]["runs"]


def no_faster(ran):
    ran.seconds = NO_FASTER


def misses_the_target(ran):
    """The runs that reach it are five times as fast, and show it at a level as large as this."""
    ran.sources, ran.seconds = ["diverged", "diverged", "good", "good", "good"], [12.0] * 6
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


def nothing_confines(monkeypatch):
    monkeypatch.setattr(contest_runs, "can_confine", lambda wanted: False)


def the_contest_gives_the_network(_monkeypatch):
    Path("contest.yaml").write_text(f"{CONTEST}network: true\n")


@pytest.mark.parametrize(
    ("way", "why", "said_then"),
    [
        (nothing_confines, "has no user namespaces", "Nothing confined the runs: they had the network"),
        (the_contest_gives_the_network, "the contest gives its runs the network", "with the network (the"),
    ],
)
def test_foreign_code_that_is_not_confined_needs_trust(place, ran, monkeypatch, way, why, said_then):
    assert "without network, with an empty /dev/shm" in typed("referee", "contest.yaml", "allowed").stdout
    for one in ("ledger.jsonl", "challenges"):
        shutil.rmtree(one) if Path(one).is_dir() else Path(one).unlink()
    ran.clear()
    way(monkeypatch)
    said, _ = referee("allowed")
    one, other = (in_git("rev-parse", name)[:8] for name in ("main", "allowed"))
    assert said.returncode == 2 and why in said.stderr
    assert f"Read git diff {one} {other}, and add --trust" in said.stderr
    assert not ran and ledger.challenges(entries()) == []
    said = typed("referee", "contest.yaml", "allowed", "--trust")
    assert said.returncode == 0 and said_then in said.stdout
    (session,) = [one for one in entries() if one["event"] == ledger.SESSION]
    assert session["network"] and session["confined"] is (way is the_contest_gives_the_network)
    assert typed("referee", "refute", "contest.yaml").returncode == 2
    assert typed("referee", "refute", "contest.yaml", "--trust").returncode == 0


@pytest.mark.parametrize(
    ("shared", "what"), [("repository", "The repository is"), ("shm", "data_dir is"), (None, None)]
)
def test_what_a_confined_run_would_not_find_is_refused(place, ran, monkeypatch, shared, what):
    folder = place.parent / (shared or "elsewhere")
    monkeypatch.setattr(contest_runs, "SHARED_MEMORY", folder)
    data = f"run: data_dir={place.parent / 'shm' / 'data'} "
    Path("contest.yaml").write_text(CONTEST.replace("run: ", data))
    said, _ = referee("allowed")
    if what is None:
        assert said.returncode == 0, said.stderr
        return
    assert said.returncode == 2 and what in said.stderr and "move it to another folder" in said.stderr
    assert not ran and ledger.challenges(entries()) == []


def test_a_session_that_goes_on_less_confined_is_not_said_to_be_confined(place, ran, monkeypatch):
    interrupted(ran, 4)
    nothing_confines(monkeypatch)
    _, content = referee("allowed", "--trust")
    assert (content["confined"], content["network"]) == (False, True)
    sessions = [one for one in entries() if one["event"] == ledger.SESSION]
    assert [(one["session"], one["confined"], one["network"]) for one in sessions] == [
        (0, True, False),
        (0, False, True),
    ]
    assert referee()[1]["problems"] == []


@pytest.mark.parametrize("way", [nothing_confines, the_contest_gives_the_network])
def test_a_frontier_that_was_a_challenger_needs_trust_against_itself(place, ran, monkeypatch, way):
    way(monkeypatch)
    text = Path("contest.yaml").read_text()
    Path("contest.yaml").write_text(text.replace("aa_pairs: 0", "aa_pairs: 3"))
    assert typed("referee", "contest.yaml", "--aa").returncode == 0, "the frontier is the organiser's"
    assert referee("allowed", "--trust")[0].returncode == 0
    ran.clear()
    said = typed("referee", "contest.yaml", "--aa")
    one, other = (in_git("rev-parse", name)[:8] for name in ("main", "allowed"))
    assert said.returncode == 2 and f"Read git diff {one} {other}, and add --trust" in said.stderr
    assert not ran
    assert typed("referee", "contest.yaml", "--aa", "--trust").returncode == 0


def interrupted(ran, number, name="allowed"):
    """A first call, interrupted in this run."""

    def interrupt():
        if len(ran) == number:
            raise KeyboardInterrupt

    ran.end = interrupt
    assert referee(name)[0].returncode == 1
    ran.end = lambda: None


BUDGET = CONTEST.replace("gain_percent: 1", "budget: 3\ngain: 0.01")
LOW, HIGH = [0.60, 0.61, 0.59, 0.60, 0.61, 0.60], [0.70, 0.70, 0.70, 0.69, 0.71, 0.70]


@pytest.fixture
def at_budget(place, ran):
    """A contest of a fixed budget, whose challenger is better and takes 10 % longer."""
    Path("contest.yaml").write_text(BUDGET)
    ran.qualities, ran.seconds = {"a": LOW, "b": HIGH}, [one * 1.1 for one in FRONTIER]
    return ran


def test_a_challenger_of_a_better_quality_at_the_budget_makes_a_record(at_budget):
    said, content = referee("allowed")
    assert (said.returncode, content["record"]) == (0, True), entries()[-1]["reasons"]
    assert (content["time"], content["gained"]["verdict"]) == (None, "better")
    pairs = content["runs"] // 2
    assert entries()[-1]["qualities"] == [LOW[:pairs], HIGH[:pairs]]
    options = json.loads(Path("challenges/1/revisions.json").read_text())["options"]
    assert "benchmark.evaluation.until=3" in options
    assert referee()[1]["problems"] == []
    said = typed("referee", "refute", "contest.yaml")
    assert said.returncode == 0
    assert (
        "At epoch 3 top1 of the challenger is higher than that of the frontier by more than 0.01"
        in said.stdout
    )
    typed("referee", "contest.yaml", "--to", "contest.html")
    page = Path("contest.html").read_text()
    assert "0.602" in page and "0.7" in page, "mean qualities of both sides"


def worse(ran):
    ran.qualities["b"] = [one - 0.01 * at for at, one in enumerate(LOW)]


def too_slow(_ran):
    Path("contest.yaml").write_text(f"{BUDGET}slower_percent: 5\n")


def stops_before(_ran):
    Path("contest.yaml").write_text(BUDGET.replace("budget: 3", "budget: 4"))


@pytest.mark.parametrize(
    ("way", "words"),
    [
        (
            worse,
            "At epoch 3 top1 of the challenger is not higher than that of the frontier by more than 0.01",
        ),
        (too_slow, "It does not hold that the challenger takes at most 5 % longer than the frontier"),
        (stops_before, "a test needs three pairs with a quality that vary"),
    ],
)
def test_a_challenger_that_is_not_better_at_the_budget_and_in_time_makes_none(at_budget, way, words):
    way(at_budget)
    said, content = referee("allowed")
    assert (said.returncode, content["record"]) == (1, False), said.stderr
    assert any(words in one for one in entries()[-1]["reasons"]), entries()[-1]["reasons"]
    assert referee()[1]["problems"] == []


def test_a_challenger_within_the_time_that_a_budget_allows_makes_a_record(at_budget):
    Path("contest.yaml").write_text(f"{BUDGET}slower_percent: 15\n")
    said = typed("referee", "contest.yaml", "allowed")
    assert said.returncode == 0, said.stdout + said.stderr
    assert "It is shown that the challenger takes at most 15 % longer than the frontier" in said.stdout


def test_qualities_of_the_ledger_are_those_of_the_logs(at_budget):
    worse(at_budget)
    referee("allowed")
    rewrite(lambda lines: lines[-1]["qualities"][1].reverse())
    assert referee()[1]["problems"] == ["Challenge 1: its logs have other qualities than the ledger."]


def test_the_least_gain_in_quality_is_measured_once_by_the_frontier_with_itself(at_budget):
    Path("contest.yaml").write_text(BUDGET.replace("aa_pairs: 0", "aa_pairs: 4"))
    said, content = referee("--aa")
    assert said.returncode == 0, said.stderr
    (line,) = [one for one in entries() if one["event"] == ledger.AA]
    assert (line["qualities"], line["metric"]) == ([LOW[:4], LOW[:4]], "top1")
    deviation = math.sqrt(2) * statistics.stdev(LOW[:4])
    level = ledger.level_of([], 1, 0.01)
    due = (stats.t.ppf(1 - level, 4) + stats.t.ppf(0.8, 4)) * deviation / math.sqrt(5)
    assert content["least_gain_of_other_runs"] == pytest.approx(due)
    said = typed("referee", "contest.yaml", "--aa")
    assert f"{due:.3g} more than the gain of 0.01 in top1 at epoch 3" in said.stdout
    assert "That is more than the contest asks for" in said.stdout and len(at_budget) == 8


def test_an_interrupted_challenge_goes_on_at_its_level_and_is_not_begun_again(place, ran):
    interrupted(ran, 4)  # a run of the frontier
    said, content = referee("allowed")
    assert content["record"], said.stderr
    assert events() == ["opened", "begun", "decided"]
    assert ran.count("a_1") == 2 and referee()[1]["problems"] == []


def test_a_run_of_the_challenger_that_was_interrupted_counts_as_failed_and_is_not_repeated(place, ran):
    interrupted(ran, 3)
    ran.sources = ["good", "died_at_once", "good", "good", "good"]
    _, content = referee("allowed")
    assert not content["record"] and "but a rank test that counts" in entries()[-1]["reasons"][0]
    assert ran.count("b_1") == 1 and referee()[1]["problems"] == []


def test_a_challenger_that_dies_in_a_run_has_a_failed_run(place, ran):
    ran.sources, ran.dies = ["good", "died_at_once", "good", "good", "good"], "b_1"
    _, content = referee("allowed")
    assert content["record"] is False and content["time"]["failed"] == [[1, 5], [0, 5]]
    assert ran.count("b_1") == 1


def test_a_challenger_all_of_whose_runs_die_makes_no_record_and_the_contest_goes_on(place, ran):
    branch("other")
    ran.sources = ["died_at_once"] * 6
    said, content = referee("allowed")
    assert content is not None, said.stderr
    assert content["record"] is False and referee()[1]["problems"] == []
    ran.sources = ["good"] * 6
    said, content = referee("other")
    assert content is not None and content["number"] == 2, said.stderr


def test_a_log_of_a_run_that_the_ledger_does_not_have_is_refused(place, ran):
    interrupted(ran, 4)
    Path("challenges/1/b/result_3.txt").touch()
    said, _ = referee("allowed")
    assert said.returncode == 2 and "which has not begun" in said.stderr and "--abandon" in said.stderr


@pytest.mark.parametrize("removed", ["b", "b/result_0.txt"])
def test_runs_of_a_challenger_that_were_removed_are_not_made_anew(place, ran, removed):
    interrupted(ran, 4)
    gone = Path("challenges/1", removed)
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    ran.sources = ["died_at_once", *ran.sources[1:]]
    said, content = referee("allowed")
    assert ran.count("b_0") == 1
    if removed == "b":
        assert said.returncode == 2 and "has no campaign; --abandon ends the challenge" in said.stderr
    else:
        assert not content["record"]


@pytest.mark.parametrize(
    ("words", "due"),
    [
        (("other",), ["opened", "begun", "abandoned", "begun", "decided"]),
        (("--abandon",), ["opened", "begun", "abandoned"]),
    ],
)
def test_a_challenge_that_does_not_go_on_is_abandoned_and_its_level_stays_spent(place, ran, words, due):
    branch("other")
    interrupted(ran, 3)
    pending = referee()[1]
    assert pending["pending"]["number"] == 1 and pending["problems"] == []
    referee(*words)
    assert events() == due
    standing = referee()[1]
    assert (standing["problems"], standing["pending"]) == ([], None)
    begun = len(ledger.challenges(entries()))
    assert ledger.level_of(standing["records"], begun + 1, 0.01) == standing["next_level"]


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize(("grade", "record"), [(None, True), (REVIEW, True), (BREAKS, False)])
def test_what_the_judge_says_of_either_campaign_speaks_against_a_record(
    place, ran, monkeypatch, side, grade, record
):
    judge_one = comparing.judge_one

    def judged(path, ruleset):
        found = judge_one(path, ruleset)
        verdicts = tuple(replace(one, findings=()) for one in found.verdicts)
        found = replace(found, findings=(), verdicts=verdicts)
        if path.name != side or grade is None:
            return found
        if grade == BREAKS:
            score = replace(found.score, reasons=(*found.score.reasons, "The clock is wrong."))
            return replace(found, score=score)
        return replace(found, findings=(file_finding(path, "physics", "Is the clock right?"),))

    monkeypatch.setattr(comparing, "judge_one", judged)
    _, content = referee("allowed")
    assert content["record"] is record
    name = {"a": "the frontier", "b": "the challenger"}[side]
    if record:
        asked = [f"{name}: Is the clock right?"] if grade == REVIEW else []
        assert entries()[-1]["questions"] == content["questions"] == asked
        assert referee()[1]["for_review"] == ([1] if asked else [])
    else:
        assert entries()[-1]["reasons"] == [f"The campaign of {name} is not valid: The clock is wrong."]


def test_words_for_people_say_what_is_shown_and_what_cannot_be(place, ran):
    said = typed("referee", "contest.yaml", "allowed")
    assert (
        "RECORD, for review: challenge 1" in said.stdout
        and "the frontier is slower than the challenger" in said.stdout.lower()
    )
    assert "What a challenge cannot show" in said.stdout and "Head of the ledger" in said.stdout


def rewrite(change):
    """Change lines of the ledger, and make its digests anew."""
    lines = entries()
    change(lines)
    before = ledger.NOTHING
    for line in lines:
        line["previous"] = before
        before = ledger.digest(line)
    Path("ledger.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def edit(path, before, after):
    text = Path("challenges", path).read_text()
    assert before in text
    Path("challenges", path).write_text(text.replace(before, after, 1))


def record_forged(_ran):
    rewrite(lambda lines: lines[-1].update(record=True))


def times_forged(_ran):
    rewrite(lambda lines: lines[-1].update(minutes=[[1.0] * 5, [0.8] * 5]))


def log_edited(_ran):
    edit("1/b/result_1.txt", '"seed", "value": 1001', '"seed", "value": 1011')


def logs_of_another(_ran):
    shutil.copy("challenges/1/a/result_1.txt", "challenges/1/b/result_1.txt")


def attempt_edited(_ran):
    edit("1/b/plan.json", '"world_size": 2', '"world_size": 1')


def other_seed(_ran):
    edit("1/revisions.json", "seed=", "seed=9")


def other_revision(_ran):
    edit("1/revisions.json", in_git("rev-parse", "allowed"), in_git("rev-parse", "cheat"))


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (record_forged, "the ledger has a record, and its logs make no record"),
        (times_forged, "its logs have other times than the ledger"),
        (log_edited, "the logs in .*challenges/1 are not those of the ledger"),
        (logs_of_another, "the logs in .*challenges/1 are not those of the ledger"),
        (attempt_edited, "plans, systems or attempts in .* are not those of the ledger"),
        (other_seed, "were begun with another seed than that of the ledger"),
        (other_revision, "holds runs of other revisions than those of the ledger"),
    ],
)
def test_a_ledger_is_decided_again_from_the_logs(place, ran, cheat, words):
    no_faster(ran)
    referee("allowed")
    said, standing = referee()
    assert (said.returncode, standing["problems"], standing["replayed"]) == (0, [], [1])
    cheat(ran)
    said, standing = referee()
    assert said.returncode == 1
    assert any(re.search(words, one) for one in standing["problems"]), standing["problems"]


@pytest.mark.parametrize(
    ("event", "name", "value", "words"),
    [
        ("begun", "level", None, "it lacks level"),
        ("begun", "level", 0, "its level is '0'"),
        ("begun", "level", 1.0, "its level is '1.0'"),
        ("begun", "level", "x", "its level is 'x'"),
        ("begun", "seed", None, "it lacks seed"),
        ("begun", None, None, "Challenge 1 was decided, and the ledger has no beginning of it"),
        ("decided", "number", None, "it lacks number"),
        ("decided", "number", 9, "Line 2 begins|which is not the one that is under way"),
        ("decided", "minutes", "x", "its minutes is 'x'"),
        ("decided", "minutes", [["x"], [1]], "its minutes is"),
        ("decided", "logs", 3, "its logs is '3'"),
        ("decided", "record", 1, "its record is '1'"),
        ("opened", "frontier", None, "it lacks frontier"),
        ("opened", None, None, "a ledger begins with 'opened'"),
        ("opened", "event", [], "its event is"),
    ],
)
@pytest.mark.parametrize("challengers", [(), ("other",)])
def test_an_edited_ledger_ends_in_a_sentence(place, ran, event, name, value, words, challengers):
    branch("other")
    no_faster(ran)
    referee("allowed")

    def change(lines):
        line = next(one for one in lines if one["event"] == event)
        if name is None:
            lines.remove(line)
        elif value is None:
            del line[name]
        else:
            line[name] = value

    rewrite(change)
    said, standing = referee(*challengers)
    assert said.returncode in (1, 2) and "Traceback" not in said.stderr
    told = said.stderr + "\n".join(standing["problems"] if standing else [])
    if not challengers:
        assert re.search(words, told), told
    assert told.strip()


def test_a_record_whose_logs_are_gone_is_not_shown_and_a_challenge_without_one_is_named(place, ran):
    branch("other")
    referee("allowed")
    no_faster(ran)
    referee("other")
    shutil.rmtree("challenges/2")
    said, standing = referee()
    assert (said.returncode, standing["without_logs"], standing["replayed"]) == (0, [2], [1])
    shutil.rmtree("challenges")
    words = CONTEST.replace("benchmark=resnet_mini", "benchmark=./gone")
    Path("contest.yaml").write_text(words)
    digest = contest.read(Path("contest.yaml")).digest
    rewrite(lambda lines: lines[0].update(contest=digest))
    said, standing = referee()
    assert said.returncode == 1 and "does not have its logs; nothing shows it" in standing["problems"][0]


def test_runs_that_were_replayed_in_another_challenge_are_found_though_they_moved(place, ran):
    def by_days(folder, days):
        for file in folder.glob("result_*.txt"):
            text = re.sub(
                r'("time_ms": )(\d+)',
                lambda found: f"{found[1]}{int(found[2]) + days * 86_400_000}",
                file.read_text(),
            )
            file.write_text(text)

    branch("other")
    no_faster(ran)
    referee("allowed")
    assert referee()[1]["problems"] == []
    ran.moved = by_days
    referee("other")
    problems = referee()[1]["problems"]
    assert problems == [], "the logs of the first challenge were shaken"
    for side in "ab":
        for log in Path("challenges/1", side).glob("result_*.txt"):
            shutil.copy(log, Path("challenges/2", side))
        by_days(Path("challenges/2", side), 3)
    assert "Challenge 2 has the times of runs of challenge 1; they were replayed." in referee()[1]["problems"]


def test_the_frontier_runs_against_itself_before_the_first_challenge_on_a_host(place, ran):
    Path("contest.yaml").write_text(CONTEST.replace("aa_pairs: 0", "aa_pairs: 3"))
    branch("other")
    said = typed("referee", "contest.yaml", "allowed")
    assert events() == ["opened", "aa", "begun", "decided"] and ran[:6].count("b_0") == 1
    assert "A/A on " in said.stdout and "(3 pairs of the frontier with itself)" in said.stdout
    no_faster(ran)
    ran.clear()
    referee("other")
    assert events()[-3:] == ["aa", "begun", "decided"], "the frontier is another one"
    ran.clear()
    known = events()
    measured = json.loads(typed("referee", "contest.yaml", "--aa", "--json").stdout)
    assert not ran and measured["pairs"] == 3 and events() == known, "once for a frontier and a host"
    differences = [math.log(one / other) for one, other in zip(FRONTIER, NO_FASTER, strict=True)][:3]
    level, error = measured["level"], statistics.stdev(differences) / 5**0.5
    due = 1 - math.exp(-(stats.t.ppf(1 - level, 4) + stats.t.ppf(0.8, 4)) * error)
    assert measured["least_gain"] == pytest.approx(due, rel=0.02)
    assert (
        measured["least_gain_of_other_runs"]
        > measured["least_gain"]
        > contest.read(place / "contest.yaml").gain
    )


def test_a_frontier_that_misses_the_target_against_itself_spends_nothing(place, ran):
    Path("contest.yaml").write_text(CONTEST.replace("aa_pairs: 0", "aa_pairs: 3"))
    ran.of_frontier = ["diverged"] * 6
    said, _ = referee("allowed")
    assert said.returncode == 2 and "0 of 3 pairs of the frontier reach the target" in said.stderr
    assert ledger.challenges(entries()) == []
    (folder,) = Path("challenges").iterdir()
    assert f"Remove {folder.resolve()} to run them again." in said.stderr
    shutil.rmtree(folder)
    ran.of_frontier = ["good"] * 6
    assert referee("allowed")[0].returncode == 0


def of_patch(change="train.py"):
    Path(change).write_text("faster")
    in_git("add", "--intent-to-add", change)
    patch = in_git("diff") + "\n"
    in_git("reset", "--quiet", "--hard")
    Path("alice.patch").write_text(patch)
    return "alice.patch"


def of_folder(change="train.py"):
    Path("entries/alice").mkdir(parents=True)
    Path("entries/alice", change).write_text("faster")
    return "entries/alice"


def of_another_checkout(change="train.py"):
    """A folder that is a worktree or a submodule: its `.git` is a file."""
    name = of_folder(change)
    Path(name, ".git").write_text("gitdir: elsewhere\n")
    return name


def test_a_page_has_the_challenges_with_their_ends_and_reasons(place, ran):
    branch("other")
    referee("allowed")
    interrupted(ran, 12, "other")
    typed("referee", "contest.yaml", "--abandon", "--to", "contest.html")
    page = Path("contest.html").read_text()
    assert "<h1>Contest minis</h1>" in page and "The ledger verifies." in page
    assert "RECORD, for review" in page and "ABANDONED" in page and "it was given up" in page
    assert in_git("rev-parse", "other")[:8] in page and ledger.head(entries()) in page


@pytest.mark.parametrize("source", [of_patch, of_folder, of_another_checkout])
def test_a_patch_or_a_folder_is_a_challenger_and_the_same_one_again(place, ran, source):
    name = source()
    interrupted(ran, 4, name)
    said, content = referee(name)
    assert content["record"], said.stderr
    assert events() == ["opened", "begun", "decided"]
    assert in_git("show", f"{content['challenger']}:train.py") == "faster"
    assert in_git("rev-parse", f"{content['challenger']}^") == in_git("rev-parse", "main")
    assert in_git("status", "--porcelain", "--untracked-files=no") == ""
    assert ledger.frontier(entries()) == content["challenger"]


@pytest.mark.parametrize("source", [of_patch, of_folder])
def test_a_source_is_looked_for_where_the_user_stands(place, ran, monkeypatch, source):
    source()
    Path("mine").mkdir()
    shutil.move("alice.patch" if source is of_patch else "entries", "mine")
    monkeypatch.chdir("mine")
    name = "alice.patch" if source is of_patch else "./entries/alice"
    said = typed("referee", "../contest.yaml", name, "--json")
    assert said.returncode == 0, said.stderr
    assert in_git("show", f"{json.loads(said.stdout)['challenger']}:train.py") == "faster"


@pytest.mark.parametrize("words", [("allowed",), ("--aa",)])
def test_a_page_of_what_is_not_verified_is_refused(place, ran, words):
    said = typed("referee", "contest.yaml", *words, "--to", "contest.html")
    assert said.returncode == 2 and "--to writes a page of a ledger that is verified" in said.stderr
    assert not ran and not Path("contest.html").exists()


@pytest.mark.parametrize("source", [of_patch, of_folder])
def test_a_source_that_was_renamed_is_the_same_challenger(place, ran, source):
    name = Path(source())
    interrupted(ran, 4, str(name))
    said, content = referee(str(name.rename(name.with_name("bob"))))
    assert content is not None and content["record"], said.stderr
    assert events() == ["opened", "begun", "decided"]


def linked(_change):
    Path("train.py").unlink()
    Path("train.py").symlink_to("/etc/passwd")
    in_git("checkout", "--quiet", "-b", "linked")
    in_git("commit", "--quiet", "-am", "train: elsewhere")
    in_git("checkout", "--quiet", "main")
    return "linked"


def linked_in_a_folder(_change):
    of_folder()
    Path("entries/alice/data").symlink_to("/etc/passwd")
    return "entries/alice"


def folder_for_a_file(_change):
    Path("entries/alice/train.py").mkdir(parents=True)
    Path("entries/alice/train.py/x").write_text("faster")
    return "entries/alice"


def two_meanings(_change):
    Path("allowed").mkdir()
    return "allowed"


def no_patch(_change):
    Path("no.patch").write_text("train faster")
    return "no.patch"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (of_patch, "The challenger changes evaluate.py"),
        (of_folder, "The challenger changes evaluate.py"),
        (linked, "has links or submodules: train.py"),
        (linked_in_a_folder, "is a link or no file"),
        (two_meanings, "is a revision and a file or folder; write ./allowed"),
        (folder_for_a_file, "entries/alice/train.py/x cannot be train.py/x of"),
        (no_patch, "no.patch does not apply to"),
        (lambda _change: "nowhere", "There is no revision nowhere in .*, and no patch or folder"),
    ],
)
def test_a_source_that_is_none_or_changes_what_is_frozen_is_refused(place, ran, source, words):
    said, _ = referee(source("evaluate.py"))
    assert said.returncode == 2 and re.search(words, said.stderr), said.stderr
    assert not ran and ledger.challenges(entries()) == []


@pytest.mark.parametrize(
    ("seconds", "verdict", "code"),
    [(FASTER, "holds", 0), (NO_FASTER, "refuted", 1), ([50.0, 70.0, 52.0, 68.0, 60.0, 60.0], "undecided", 3)],
)
def test_a_record_is_run_anew(place, ran, seconds, verdict, code):
    referee("allowed")
    ran.seconds = seconds
    said = typed("referee", "refute", "contest.yaml", "--json")
    assert (said.returncode, json.loads(said.stdout)["verdict"]) == (code, verdict)
    _, standing = referee()
    assert standing["problems"] == [] and standing["frontier"] == in_git("rev-parse", "allowed")
    assert [one["verdict"] for one in standing["refutations"]] == [verdict]
    assert standing["next_level"] == ledger.level_of([1], 2, 0.01), "no error is spent"
    seeds = {
        json.loads(Path("challenges", one, "revisions.json").read_text())["options"][-1]
        for one in ("1", "1_again_1")
    }
    assert len(seeds) == 2
    refused = typed("referee", "refute", "contest.yaml", "2")
    assert refused.returncode == 2 and "Challenge 2 made no record; minis has records 1" in refused.stderr


def test_pairs_are_spread_over_sessions_of_other_hosts_or_days(place, ran, monkeypatch):
    Path("contest.yaml").write_text(CONTEST.replace("pairs: 5", "pairs: 6\nsessions: 3"))
    where = SimpleNamespace(host="one", day=1)
    monkeypatch.setattr(contest_runs.platform, "node", lambda: where.host)
    monkeypatch.setattr(contest_runs, "now", lambda: datetime(2026, 12, where.day, tzinfo=UTC))
    said, content = referee("allowed")
    assert (said.returncode, content["sessions"], len(ran)) == (3, [1, 3], 4)
    said, _ = referee("allowed")
    assert said.returncode == 2 and "Session 2 of challenge 1 has to be on another host or day" in said.stderr
    where.host = "two"
    assert referee("allowed")[0].returncode == 3
    where.host, where.day = "one", 2
    said, content = referee("allowed")
    (look,) = content["time"]["looks"]
    assert (content["end"], content["time"]["verdict"], look["runs"]) == ("decided", "slower", 3)
    of_all = statistics.fmean(math.log(one / other) for one, other in zip(FRONTIER, FASTER, strict=True))
    assert math.log(look["value"]) == pytest.approx(of_all, rel=1e-4), "three sessions of two pairs each"
    assert referee()[1]["problems"] == []


def test_a_session_goes_on_where_it_began(place, ran, monkeypatch):
    monkeypatch.setattr(contest_runs.platform, "node", lambda: "one")
    interrupted(ran, 4)
    monkeypatch.setattr(contest_runs.platform, "node", lambda: "two")
    said, _ = referee("allowed")
    assert said.returncode == 2 and "goes on on one, where its session began; this is two" in said.stderr


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("contest: minis\n", ""), "lacks contest"),
        (
            ("pairs: 5", "budget: 3"),
            "has budget and gain_percent; a contest of times to a target has gain_percent",
        ),
        (("gain_percent: 1", "budget: 0"), "budget of contest.yaml is 0; give a number from 1e-06"),
        (("gain_percent: 1", "budget: 3\nquality: {metric: top1, above: 0.7}"), "has budget and quality;"),
        (("gain_percent: 1", "gain: 0.1"), "has gain and no budget; a contest"),
        (("gain_percent: 1", "slower_percent: 5"), "has slower_percent and no budget; a contest"),
        (
            (
                CONTEST[CONTEST.index(" command=") : CONTEST.index("pairs")],
                " benchmark.evaluation.until=9\nfrontier: main\nmay_change: []\nbudget: 3\n",
            ),
            "run of contest.yaml has benchmark.evaluation.until=9, which budget sets",
        ),
        (("pairs: 5", "pairs: 5\nsessions: 2"), "sessions of contest.yaml is 2; give a number from 3 to 20"),
        (
            ("pairs: 5", "pairs: 5\nsessions: 3"),
            "pairs of contest.yaml is 5; give a multiple of its 3 sessions",
        ),
        (("aa_pairs: 0", "aa_pairs: 2"), "aa_pairs of contest.yaml is 2; give a number from 3 to 100"),
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


EXAMPLES = re.findall(r"```yaml\n(contest: .*?)```", (ROOT / "docs" / "referee.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("example", "budget"), list(zip(EXAMPLES, (None, 3.0), strict=True)))
def test_contests_of_the_page_are_contests(tmp_path, example, budget):
    Path(tmp_path, "contest.yaml").write_text(example)
    assert contest.read(Path(tmp_path, "contest.yaml")).budget == budget


def test_files_outside_of_the_repository_are_part_of_the_contest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digests = []
    for labels in ("1", "2"):
        Path("labels.npy").write_text(labels)
        Path("contest.yaml").write_text(f"{CONTEST}outside: [labels.npy]\n")
        digests.append(contest.read(Path("contest.yaml")).digest)
    assert digests[0] != digests[1]
