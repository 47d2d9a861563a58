"""Twenty cheats and more: refused, found, or named as unknowable. docs/judging.md has the same table."""

import json
import re
import shutil

import pytest

from tests.judge.checks import test_cheats, test_measured
from tests.judge.checks.test_cheats import (  # noqa: F401
    edit_log,
    edit_plan,
    events,
    faster,
    honest,
    start_of,
    write_records_anew,
)
from tests.judge.checks.test_measured import measured  # noqa: F401
from tests.judge.checks.test_observed import folder, judged, observe, times  # noqa: F401
from tests.own_trainer import test_confined
from tests.sandbox import ROOT
from train_bench.core.job import Command
from train_bench.errors import LaunchError
from train_bench.own_trainer.confined import Confinement
from train_bench.own_trainer.evaluator import Evaluator
from train_bench.referee import contest, ledger
from train_bench.referee.challenge import below_bound
from train_bench.referee.work_bound import WorkBound

REFUSED, FOUND, UNKNOWABLE = "refused", "found", "unknowable"

CONTEST = """\
contest: moons
run: benchmark=./moons
frontier: main
may_change: [moons/train.py]
measured: {train_samples: 100, handed_bytes: 5, left_processes: 0}
"""


class Place:
    """Copies for one cheat, made where they are asked for: a campaign of a reference, one of a program with an
    evaluator, a contest, and its ledger."""

    def __init__(self, campaign, program, work):
        self._campaign, self.program, self.work = campaign, program, work

    def campaign(self):
        return shutil.copytree(self._campaign, self.work / "copy")

    def contest(self):
        path = self.work / "contest.yaml"
        path.write_text(CONTEST)
        return contest.read(path)

    def ledger(self):
        path = self.work / "ledger.jsonl"
        entries = ledger.append(path, [], ledger.OPENED, contest="c", frontier="f0")
        for number in (1, 2):
            level = ledger.next_level(entries, 0.01)
            given = {"frontier": "f0", "challenger": f"f{number}", "level": level}
            entries = ledger.append(path, entries, ledger.BEGUN, number=number, seed=number, **given)
            entries = ledger.append(
                path, entries, ledger.DECIDED, number=number, record=False, logs=[f"log{number}"]
            )
        return path

    def evaluator(self):
        (self.work / "labels.json").write_text("[1, 0]")
        command = Command(argv=("true", "labels.json", "{handed}"), cwd=str(self.work))
        return Evaluator(command, {}, self.work / "copies", lambda: None)


def said(judgement):
    each = [*judgement.findings, *(one for verdict in judgement.verdicts for one in verdict.findings)]
    return "\n".join(f"{one.grade}: {one.message}" for one in each)


def of_logs(cheat, *, anew=True):
    """What the judge says of a campaign of a reference that a cheat has changed."""

    def answer(place):
        copy = place.campaign()
        cheat(copy)
        if anew:
            write_records_anew(copy)
        return said(test_cheats.judge(copy))

    return answer


def of_program(cheat):
    """Likewise of a program with an evaluator."""

    def answer(place):
        cheat(place.program)
        return said(judged(place.program))

    return answer


def of_ledger(cheat):
    """What does not fit in a ledger whose lines a cheat has changed, with its digests made anew."""

    def answer(place):
        path = place.ledger()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        cheat(lines)
        before = ledger.NOTHING
        for line in lines:
            line["previous"], before = before, ""
            before = ledger.digest(line)
        return "\n".join(ledger.problems(lines, "c", 0.01))

    return answer


def every_time(factor):
    def cheat(copy):
        for path in copy.glob("result_*.txt"):
            start = start_of(path)
            edit_log(path, lambda one, start=start: faster(one, start, factor))

    return cheat


def cached_answers_replayed(program):
    test_measured.answers_of_another_run(program)


def lazy_output(program):
    observe_with_evaluator(program, clock_processor_seconds=0.02)


def patched_timer(program):
    started, _ = times(program, 2)
    observe_with_evaluator(program, started_ms=started, ended_ms=started + 9000, seconds=9.0)


def sleeping_partner(program):
    observe_with_evaluator(program, clock_processor_seconds=0.02, data={"opened": 0})


def observe_with_evaluator(program, **changes):
    """The record of run 2 with changes, and with what its evaluator found."""
    path = program / "attempts" / "run_2_1.json"
    before = json.loads(path.read_text())["observed"]["evaluator"]
    observe(program, 2, evaluator=before, **changes)


def validation_data_in_training(copy):
    def cheat(one):
        if one["key"] == "data_fingerprint":
            one["value"]["samples_in_common"] = 800
        return one

    edit_log(copy / "result_2.txt", cheat)


def work_before_the_clock(program):
    log = program / "result_2.txt"
    opened = {"files": 3, "folder": "data", "first": ["train_0.npz"], "unknown": None}
    line = events(log)[-1] | {"key": "data_before_run_start", "value": opened}
    log.write_text(f"{log.read_text()}:::MLLOG {json.dumps(line)}\n")


def another_learning_rate(copy):
    edit_log(
        copy / "result_2.txt",
        lambda one: one | {"value": 0.1} if one["key"] == "sgd_opt_base_learning_rate" else one,
    )


def one_run_five_times(copy):
    planned = [job["seed"] for job in json.loads((copy / "plan.json").read_text())["jobs"]]
    for index, seed in enumerate(planned):
        path = copy / f"result_{index}.txt"
        path.write_text((copy / "result_0.txt").read_text())
        later = 3_600_000 * index
        edit_log(
            path,
            lambda one, later=later, seed=seed: (
                one | {"time_ms": one["time_ms"] + later} | ({"value": seed} if one["key"] == "seed" else {})
            ),
        )


def bigger_model(place):
    return "\n".join(contest.beyond(place.contest(), judged(place.program)))


def process_left_running(place):
    observe_with_evaluator(place.program, left_processes=1)
    return bigger_model(place)


def impossible_time(_place):
    bound = WorkBound(file="result_1.txt", flop=9e15, least_seconds=9, seconds=1, of_accelerators=True)
    return "\n".join(below_bound(bound)[0])


def confined(*attempts):
    """What becomes of attempts in a confined process."""

    def answer(place):
        top = place.work / "repository"
        for name in (".git", "other", "own"):
            (top / name).mkdir(parents=True)
        wanted = Confinement(read_only=(top,), writable=(top / "own",))
        return f"refused: {[test_confined.happens(wanted, attempt) for attempt in attempts]}"

    return answer


def frozen_file(place):
    return f"frozen: {place.contest().frozen(['moons/evaluation/labels.npy', 'moons/train.py'])}"


def labels_handed_over(place):
    evaluator = place.evaluator()
    (place.work / "answers.json").symlink_to(place.work / "labels.json")
    with pytest.raises(LaunchError) as error:
        evaluator.evaluate(str(place.work / "answers.json"))
    return str(error.value)


def nothing(_place):
    """An honest campaign and an honest one look alike."""


def record_forged(lines):
    lines[2]["record"] = True


def log_again(lines):
    lines[4]["logs"] = ["log1"]


def challenge_left_out(lines):
    del lines[1:3]


def said_with_a_contest(_place):
    from train_bench.report.contest import UNKNOWABLE as SENTENCE

    return SENTENCE


CHEATS = {
    "aggregator underflow: times that average to 0.000": (
        FOUND,
        of_logs(every_time(0.0)),
        "run_start and run_stop have the same time",
    ),
    "replay of cached answers: bytes that another run handed over": (
        FOUND,
        of_program(cached_answers_replayed),
        "handed over the bytes of result_1.txt; are they replayed?",
    ),
    "lazy output: next to nothing computed on the clock": (
        FOUND,
        of_program(lazy_output),
        "used next to no processor time on the clock",
    ),
    "patched timer: a clock longer than the program lived": (
        FOUND,
        of_program(patched_timer),
        "the clock ran 62.0 s, but its program ran 9.0 s",
    ),
    "validation data in training": (
        FOUND,
        of_logs(validation_data_in_training),
        "of 10 compared evaluation samples are training samples",
    ),
    "chosen seeds": (
        FOUND,
        of_logs(lambda copy: edit_plan(copy, test_cheats.other_seeds)),
        "in the plan of the run",
    ),
    "stop by own quality: an evaluation that no evaluator made": (
        FOUND,
        of_program(test_measured.asked_less_often),
        "each of its answers belongs to one",
    ),
    "asking the evaluator more often than the log says": (
        FOUND,
        of_program(test_measured.asked_more_often),
        "each of its answers belongs to one",
    ),
    "forged quality": (
        FOUND,
        of_program(test_measured.forged_quality),
        "the quality was not measured by it",
    ),
    "patched evaluation: labels edited meanwhile": (
        FOUND,
        of_program(test_measured.labels_edited_meanwhile),
        "/secret/labels.npy changed while the program ran",
    ),
    "labels handed over by a link": (REFUSED, labels_handed_over, "leads to a file of the evaluator"),
    "bigger model than the contest allows": (
        REFUSED,
        bigger_model,
        "handed_bytes is 9; the contest allows 5",
    ),
    "more training data than the contest allows": (
        REFUSED,
        bigger_model,
        "train_samples is 897; the contest allows 100",
    ),
    "frozen file changed": (REFUSED, frozen_file, "frozen: ['moons/evaluation/labels.npy']"),
    "work before the clock: data read before it": (
        FOUND,
        of_program(work_before_the_clock),
        "were opened before run_start",
    ),
    "sleeping partner: a run that waits and reads nothing": (
        FOUND,
        of_program(sleeping_partner),
        "In 1 of these runs no file of the benchmark's data folder was opened",
    ),
    "shortened clock": (FOUND, of_logs(every_time(0.01), anew=False), "edited after its run"),
    "edited log": (FOUND, of_logs(another_learning_rate), "is 0.1 in this log and 0.2 in the plan"),
    "copied runs": (FOUND, of_logs(one_run_five_times), "have the same times, to the millisecond"),
    "edited ledger": (REFUSED, of_ledger(record_forged), "was tested at level"),
    "replayed record: logs that count twice": (REFUSED, of_ledger(log_again), "its runs were replayed"),
    "the best of many challenges, the others left out": (
        REFUSED,
        of_ledger(challenge_left_out),
        "the next one is 1",
    ),
    "answers or weights that the program had before": (
        UNKNOWABLE,
        of_program(nothing),
        "that it trained (answers or weights that it had before look alike)",
    ),
    "state kept between runs in shared memory or in the repository": (
        REFUSED,
        confined(test_confined.keeps_shared_memory, test_confined.edits_git),
        "refused: [False, False]",
    ),
    "the frontier's logs edited by the challenger": (
        REFUSED,
        confined(test_confined.edits_the_logs_of_another_run),
        "refused: [False]",
    ),
    "answers fetched from the network": (
        REFUSED,
        confined(test_confined.reaches_the_network),
        "refused: [False]",
    ),
    "a process that lives on": (
        REFUSED,
        process_left_running,
        "left_processes is 1; the contest allows 0",
    ),
    "a time below that of the claimed work": (
        REFUSED,
        impossible_time,
        "claims 9e+15 operations in 1 s; they take 9 s at the peak of its accelerators",
    ),
    "state kept between runs in other files of the user": (
        UNKNOWABLE,
        said_with_a_contest,
        "keeps between runs outside of the repository",
    ),
}
"""By cheat: what becomes of it, how it is tried, and words of the sentence."""


@pytest.fixture
def place(honest, measured, tmp_path):  # noqa: F811
    work = tmp_path / "place"
    work.mkdir()
    return Place(honest, measured, work)


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_refused_or_found_or_named(cheat, place):
    kind, attempt, words = CHEATS[cheat]
    (line, *_) = [line for line in attempt(place).splitlines() if words in line]
    if kind == FOUND:
        (how,) = [how for name, _, how in rows() if name == cheat]
        assert how.startswith({"breaks": "breaks a rule", "review": "for review"}[line.partition(":")[0]])


def rows():
    """The table of the documentation."""
    text = (ROOT / "docs" / "judging.md").read_text()
    return re.findall(r"^\| (.+?) \| (refused|found|unknowable) \| (.+) \|$", text, re.MULTILINE)


def test_of_honest_campaigns_none_of_it_is_said(place):
    copy = place.campaign()
    of_honest = said(test_cheats.judge(copy)) + said(judged(place.program))
    found = [cheat for cheat, (kind, _, words) in CHEATS.items() if kind == FOUND and words in of_honest]
    assert found == []
    assert list(ledger.problems(ledger.read(place.ledger()), "c", 0.01)) == []


def test_the_table_of_the_documentation_has_them_all():
    assert [row[:2] for row in rows()] == [(cheat, kind) for cheat, (kind, _, _) in CHEATS.items()]
    kinds = [kind for kind, _, _ in CHEATS.values()]
    assert len(kinds) >= 20 and kinds.count(UNKNOWABLE) <= 2
