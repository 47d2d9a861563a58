"""Each way in which a log can be bad is found, and told apart from a run that merely failed."""

from dataclasses import replace
from pathlib import Path

import pytest

from train_bench.core.event import Event
from train_bench.judge.checks.review import schedule
from train_bench.judge.compliance import judge_run, judge_together
from train_bench.judge.finding import BREAKS, REVIEW
from train_bench.logs import log
from train_bench.logs.log import Log
from train_bench.logs.record import make_record, read_record
from train_bench.rules import ruleset

LOGS = Path(__file__).parents[1] / "logs" / "examples"
MINI = ruleset.load("mini-1.0").benchmark("resnet_mini")
FULL = ruleset.load("training-1.1.0").benchmark("resnet")
STRICT_SEEDS = ruleset.load("training-4.1.0").benchmark("bert")

# The log -> the kinds of finding of which at least one has to be there.
BAD = {
    "bad_half_a_line": {"parse"},
    "bad_momentum": {"sgd_opt_momentum"},
    "bad_weight_decay": {"sgd_opt_weight_decay"},
    "bad_learning_rate_step": {"sgd_opt_base_learning_rate"},
    "bad_two_learning_rates": {"sgd_opt_base_learning_rate"},
    "bad_both_optimizers": {"lars_epsilon"},
    "bad_no_momentum": {"sgd_opt_momentum"},
    "bad_optimizer": {"opt_name"},
    "bad_division": {"submission_division"},
    "bad_no_organisation": {"submission_org"},
    "bad_other_benchmark": {"benchmark"},
    "bad_unknown_benchmark": {"submission_benchmark"},
    "bad_no_seed": {"seed"},
    "bad_no_weights": {"weights_initialization"},
    "bad_weights_twice": {"weights_initialization"},
    "bad_no_batch_size": {"global_batch_size"},
    "bad_two_batch_sizes": {"global_batch_size"},
    "bad_run_before_init": {"run_start"},
    "bad_slow_init": {"init_stop", "init budget"},
    "bad_clock_steps_back": {"time"},
    "bad_evaluation_left_out": {"schedule"},
    "bad_late_first_evaluation": {"schedule"},
    "bad_evaluated_twice": {"repeated"},
    "bad_evaluated_without_epoch": {"schedule", "eval_accuracy"},
    "bad_success_below_target": {"run_stop"},
    "bad_went_on_after_target": {"stop"},
    "bad_aborted_at_target": {"run_stop"},
    "bad_status": {"run_stop"},
    "bad_block_left_open": {"block_stop", "eval_start", "run_stop", "end"},
    "bad_evaluation_left_open": {"eval_stop", "run_stop", "end"},
    "bad_evaluation_inside_block": {"eval_start", "eval_accuracy", "block_stop", "end"},
    "bad_run_start_twice": {"restarted"},
    "bad_run_stop_twice": {"run_stop", "time"},
}

FAILED = ["not_converged", "diverged", "died_at_once", "died_between_lines", "died_in_a_line"]
FAILED += ["aborted_while_opening_data"]


def verdict_of(name, rules=MINI):
    record, read = read_record(LOGS / f"{name}.txt", rules)
    return judge_run(record, read, rules)


def kinds(verdict):
    return {finding.check for finding in verdict.findings}


def test_every_bad_log_has_its_expectation():
    assert {path.stem for path in LOGS.glob("bad_*.txt")} == set(BAD)


@pytest.mark.parametrize("name", ["good", "good_lars"])
def test_a_good_log_has_no_findings(name):
    verdict = verdict_of(name)
    assert verdict.findings == ()
    assert verdict.converged
    assert verdict.compliant


@pytest.mark.parametrize("name", BAD)
def test_a_bad_log_breaks_the_rules_and_the_finding_says_which(name):
    verdict = verdict_of(name)
    assert not verdict.compliant
    assert kinds(verdict) & BAD[name]
    for finding in verdict.findings:
        assert finding.message.endswith((".", ")")), finding.message
        assert finding.file.endswith(f"{name}.txt")


@pytest.mark.parametrize("name", FAILED)
def test_a_run_that_failed_is_slow_and_not_broken(name):
    verdict = verdict_of(name)
    assert not verdict.converged
    assert kinds(verdict) <= {"target", "died"}, [finding.message for finding in verdict.findings]
    assert verdict.compliant
    assert verdict.findings


def missed_with(folder, last, rules=MINI):
    """What is said of a run whose last evaluation has the value `last`; None: that was never evaluated."""
    lines = (LOGS / "not_converged.txt").read_text().splitlines(keepends=True)
    evaluated = [line for line in lines if '"eval_accuracy"' in line]
    if last is None:
        lines = [line for line in lines if line not in evaluated]
    else:
        lines[lines.index(evaluated[-1])] = evaluated[-1].replace('"value": 0.7', f'"value": {last}')
        lines = [line for line in lines if line not in evaluated[:-1]]
    path = folder / "result_0.txt"
    path.write_text("".join(lines))
    record, read = read_record(path, rules)
    (message,) = [one.message for one in judge_run(record, read, rules).findings if one.check == "target"]
    return message.partition("was not reached; ")[2]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("0.6766666666666666", "last quality 0.6767."),
        ("0.7", "last quality 0.7."),
        ("0.729999", "last quality 0.729999."),
        ("0.7299949", "last quality 0.72999."),
        ("6.195306298319796e-05", "last quality 0.0001."),
        ('"much"', "the last quality is not a number."),
        ("NaN", "the last quality is not a number."),
        (None, "there was no evaluation."),
    ],
)
def test_a_missed_target_is_told_with_four_digits_or_as_many_as_set_it_apart(tmp_path, last, said):
    assert missed_with(tmp_path, last) == said


def test_a_missed_target_of_two_metrics_names_them(tmp_path):
    rules = ruleset.load("mini-1.0").benchmark("maskrcnn_mini")
    last = '{"BBOX": 0.0034103810747256043, "SEGM": 0.4999999}'
    assert missed_with(tmp_path, last, rules) == "last quality BBOX 0.0034, SEGM 0.5."


def test_a_finding_names_the_line():
    (finding,) = [one for one in verdict_of("bad_momentum").findings if one.key == "sgd_opt_momentum"]
    text = (LOGS / "bad_momentum.txt").read_text().splitlines()[finding.line - 1]
    assert '"sgd_opt_momentum"' in text


def test_a_value_that_breaks_a_rule_of_a_cut_off_run_still_breaks_it():
    text = (LOGS / "bad_momentum.txt").read_text().splitlines()
    from train_bench.logs.log import parse_line

    events = tuple(parse_line(line, number) for number, line in enumerate(text[:30], start=1))
    read = Log(path=Path("result_0.txt"), events=events, problems=(), sha256="0")
    verdict = judge_run(make_record(read, index=0, rules=MINI), read, MINI)
    assert not verdict.compliant


def together(*names, rules=MINI):
    logs = [later(log.read(LOGS / f"{name}.txt"), index) for index, name in enumerate(names)]
    records = [make_record(read, index=index, rules=rules) for index, read in enumerate(logs)]
    verdicts = [judge_run(record, read, rules) for record, read in zip(records, logs, strict=True)]
    return judge_together(records, verdicts, rules)


def later(read, index):
    """An hour later, and a little slower: no two runs have the same times."""
    begin = read.events[0].time_ms
    return replace(
        read,
        events=tuple(
            event._replace(time_ms=begin + 3_600_000 * index + (event.time_ms - begin) * (100 + index) // 100)
            for event in read.events
        ),
    )


def test_different_runs_do_not_disturb_each_other():
    assert all(verdict.findings == () for verdict in together("good", "good_lars"))


def test_a_copy_of_a_log_counts_once():
    first, second = together("good", "good")
    assert first.compliant
    assert kinds(second) == {"duplicate"}
    assert not second.compliant


def test_a_copy_of_a_log_without_a_seed_is_a_copy_too():
    _, second = together("bad_no_seed", "bad_no_seed")
    assert "duplicate" in kinds(second)


def campaign_of_two(second):
    good = read_record(LOGS / "good.txt", MINI)
    events = tuple(second(event) for event in good[1].events)
    read = later(Log(path=Path("result_1.txt"), events=events, problems=(), sha256="other"), 1)
    other = make_record(read, index=1, rules=MINI)
    verdicts = [judge_run(good[0], good[1], MINI), judge_run(other, read, MINI)]
    return judge_together([good[0], other], verdicts, MINI)


def with_value(key, value):
    def change(event):
        if event.key != key:
            return event
        return Event(
            key=key, value=value, time_ms=event.time_ms, metadata=dict(event.metadata), line=event.line
        )

    return change


def test_a_seed_is_used_once():
    _, second = campaign_of_two(lambda event: event)
    assert kinds(second) == {"seed"}
    assert not second.compliant


def test_runs_of_different_batch_sizes_are_no_campaign():
    verdicts = campaign_of_two(
        lambda event: with_value("global_batch_size", 128)(with_value("seed", 99)(event))
    )
    assert any("global_batch_size" in kinds(verdict) for verdict in verdicts)


def without_seed(rules):
    read = read_record(LOGS / "good.txt", rules)[1]
    events = tuple(event for event in read.events if event.key != "seed")
    changed = Log(path=read.path, events=events, problems=(), sha256="0")
    verdict = judge_run(make_record(changed, index=0, rules=rules), changed, rules)
    return {finding.check: finding.grade for finding in verdict.findings}


def test_an_official_log_without_a_seed_breaks_the_rules():
    """The rule files of the rounds do not ask for it; the seed rule of the closed division does."""
    assert without_seed(STRICT_SEEDS)["seed"] == "breaks"


def test_a_log_without_a_seed_of_a_round_that_accepted_such_is_for_review():
    assert without_seed(FULL)["seed"] == "review"


def test_an_official_log_of_a_run_with_warm_caches_is_for_review():
    """Rules, "Data state at start of run": caches are flushed; `cache_clear: false` says they were not."""
    assert verdict_of("good").compliant, "the mini round allows it"
    grades = {finding.check: finding.grade for finding in verdict_of("good", FULL).findings}
    assert grades["cache_clear"] == "review"


def test_a_check_of_ours_is_a_rule_in_a_strict_round_and_for_review_in_an_official_one():
    for rules, grade in ((MINI, "breaks"), (FULL, "review")):
        findings = verdict_of("bad_clock_steps_back", rules).findings
        assert {finding.grade for finding in findings if finding.check == "time"} == {grade}


def test_a_waived_rule_is_told_with_its_erratum_and_broken_in_the_official_verdict_only():
    read = read_record(LOGS / "bad_no_weights.txt", FULL)[1]
    named = with_value("submission_benchmark", FULL.name)
    official = Log(path=read.path, events=tuple(map(named, read.events)), problems=(), sha256="0")
    verdict = judge_run(make_record(official, index=0, rules=FULL), official, FULL)
    (waived,) = {finding.erratum for finding in verdict.findings if finding.grade == "waived"}
    assert waived == "weights-not-demanded"
    assert not verdict.officially_compliant
    assert "weights_initialization" not in {
        finding.check for finding in verdict.findings if finding.grade == "breaks"
    }


def test_a_finding_says_what_was_seen_what_is_allowed_where_it_stands_and_what_to_do():
    (finding,) = [one for one in verdict_of("bad_momentum").findings if one.key == "sgd_opt_momentum"]
    assert finding.value is not None
    assert finding.allowed == "only 0.9"
    assert "Hyperparameters" in finding.paragraph
    assert finding.next_step


def bert_log(positions, used):
    """A run of 256 samples per batch that counts what training took behind its last evaluation."""
    values = [("submission_benchmark", "bert", {}), ("global_batch_size", 256, {}), ("run_start", None, {})]
    values += [("eval_accuracy", 0.5, {"epoch_num": position}) for position in positions]
    values += [("train_samples", used, {}), ("run_stop", None, {"status": "success"})]
    return Log(
        path=Path("result_0.txt"),
        events=tuple(
            Event(key=key, value=value, time_ms=line, metadata=metadata, line=line)
            for line, (key, value, metadata) in enumerate(values)
        ),
        problems=(),
        sha256="0",
    )


@pytest.mark.parametrize(
    ("positions", "used", "said"),
    [
        ((150_000, 300_000), 300_032, None),
        ((1, 1), 300_032, None),
        ((150_000, 450_000), 450_048, "Evaluation 2 is at sample 450000, due at 300000"),
        ((150_000, 300_000), 150_016, "is 150016, but the last evaluation was due at 300000 samples"),
    ],
)
def test_samples_behind_the_last_evaluation_are_held_against_the_schedule(positions, used, said):
    rules = ruleset.load("training-1.1.0").benchmark("bert")
    read = bert_log(positions, used)
    record = make_record(read, index=0, rules=rules)
    assert (record.convergence, record.counted) == (used, "train_samples")
    messages = [finding.message for finding in schedule(record, rules)]
    assert len(messages) == (said is not None)
    assert all(said in message for message in messages)


def timed(change, rules):
    """The verdict on the good log with its events changed."""
    read = log.read(LOGS / "good.txt")
    changed = replace(read, events=tuple(change(read.events)))
    return judge_run(make_record(changed, index=0, rules=rules), changed, rules)


def at(events, key):
    return next(event.time_ms for event in events if event.key == key)


def moved(events, key, time_ms):
    return [event._replace(time_ms=time_ms) if event.key == key else event for event in events]


def stop_before_start(events):
    return moved(events, "run_stop", at(events, "run_start") - 60_000)


def stop_at_the_start(events):
    return moved(events, "run_stop", at(events, "run_start"))


def all_at_one_time(events):
    return [event._replace(time_ms=at(events, "run_start")) for event in events]


def stop_at_once(events):
    return moved(events, "run_stop", at(events, "run_start") + 1)


def start_again_at_the_end(events):
    *body, stop = events[: 1 + [event.key for event in events].index("run_stop")]
    return [*body, Event("run_start", None, stop.time_ms - 1, line=stop.line), stop._replace(line=99_999)]


def start_late(events):
    return moved(events, "run_start", at(events, "run_stop") - 1)


def start_after_the_stop(events):
    start = next(event for event in events if event.key == "run_start")
    return [*(event for event in events if event.key != "run_start"), start._replace(line=99_999)]


def trained_before_the_start(events):
    return moved(events, "block_start", at(events, "run_start") - 60_000)


@pytest.mark.parametrize("rules", [MINI, FULL], ids=lambda rules: rules.ruleset)
@pytest.mark.parametrize(
    "change",
    [
        *(stop_before_start, stop_at_the_start, all_at_one_time, stop_at_once, start_again_at_the_end),
        *(start_late, start_after_the_stop, trained_before_the_start),
    ],
)
def test_a_run_without_time_or_with_training_before_it_is_no_result_in_any_round(change, rules):
    assert timed(list, MINI).compliant
    findings = [
        finding
        for finding in timed(change, rules).findings
        if finding.check in ("no_time", "outside", "restarted")
    ]
    assert any(finding.grade == BREAKS for finding in findings)


def evaluated_after_the_stop(events):
    return [
        event._replace(time_ms=event.time_ms + 10**6) if event.key.startswith("eval_") else event
        for event in events
    ]


@pytest.mark.parametrize(("rules", "grade"), [(MINI, BREAKS), (FULL, REVIEW)])
def test_what_lies_after_run_stop_is_for_review_in_official_rounds(rules, grade):
    findings = [
        finding for finding in timed(evaluated_after_the_stop, rules).findings if finding.check == "outside"
    ]
    assert [finding.grade for finding in findings] == [grade]
    assert "after run_stop" in findings[0].message


def in_a_blink(events):
    start = at(events, "run_start")
    return [event._replace(time_ms=start + (event.time_ms - start) // 1000) for event in events]


@pytest.mark.parametrize(("rules", "asked"), [(FULL, [REVIEW]), (MINI, [])])
def test_a_run_of_milliseconds_is_for_review_in_official_rounds_alone(rules, asked):
    findings = timed(in_a_blink, rules).findings
    assert [finding.grade for finding in findings if finding.check == "short"] == asked
    assert "clock" in {finding.check for finding in findings}  # its ranks measured more


def test_clocks_of_several_processes_may_differ_a_little_in_official_rounds():
    def a_little_early(events):
        return moved(events, "block_start", at(events, "run_start") - 5)

    grades = {finding.check: finding.grade for finding in timed(a_little_early, FULL).findings}
    assert grades["outside"] == REVIEW
