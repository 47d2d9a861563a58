"""When a run that goes on reaches its target, and its campaign ends."""

import math
import random
import statistics

import numpy as np
import pytest

from tests import needs
from tests.needs import CORPUS
from tests.run.fakes import job
from train_bench.core.event import Event
from train_bench.forecast import live
from train_bench.forecast.live import Campaign, ObservedRun
from train_bench.forecast.samples import expect
from train_bench.judge import locate, rcp
from train_bench.logs import log
from train_bench.logs.record import number_of
from train_bench.observers import forecast
from train_bench.progress import EvalSchedule
from train_bench.rules import ruleset

RULES = ruleset.load("mini-1.0").benchmark("resnet_mini")
SCHEDULE = EvalSchedule(first=1, period=1, until=40)
BATCH = 64
SPREAD = (16, 17, 18, 18, 19, 19, 20, 20, 20, 20, 21, 21, 22, 22, 23, 24)


def point(values):
    mean = statistics.fmean(values)
    deviation = statistics.pstdev(values)
    return rcp.Point(
        batch_size=BATCH, mean=mean, deviation=deviation, count=len(values), values=tuple(values)
    )


def campaign(values=SPREAD, schedule=SCHEDULE, **options):
    return Campaign(schedule, RULES, [point(values)] if values else [], BATCH, **options)


def seen(evaluations, *, pace=10.0, opening=0.0, stop=False, reached=True, schedule=SCHEDULE, noise=None):
    """A run that has so many evaluations behind it, each `pace` seconds after the one before."""
    run = ObservedRun(schedule=schedule, counted="epoch_num")
    run.event(Event(key="run_start", value=None, time_ms=0))
    seconds = opening
    for epoch in range(1, evaluations + 1):
        seconds += pace * (1 + (noise.gauss(0, 0.03) if noise else 0))
        run.event(Event("eval_accuracy", 0.5, round(seconds * 1000), metadata={"epoch_num": epoch}))
    if stop:
        status = "success" if reached else "aborted"
        run.event(Event("run_stop", None, round(seconds * 1000), metadata={"status": status}))
    return run


def seconds(interval):
    return [value / 1000 for value in interval]


def run_of(known, current):
    return seconds(known.forecast(current.times_ms[-1], current, to_do=0).run)


def test_a_run_of_known_pace_and_need_ends_when_both_say_so():
    expected, low, high = run_of(campaign([20] * 10), seen(5, opening=3.0))
    assert expected == pytest.approx(203.0)
    assert low == pytest.approx(
        193, rel=0.02
    )  # the campaign may need 3 % less, and then ends one epoch earlier
    assert high == pytest.approx(214, rel=0.03)


def test_the_first_block_that_holds_the_opening_of_the_data_is_no_pace():
    assert run_of(campaign([20] * 10), seen(4, opening=60.0))[0] == pytest.approx(260.0)


def test_the_interval_narrows_as_evaluations_come():
    known = campaign()
    widths = []
    for count in (1, 5, 10, 15):
        _, low, high = run_of(known, seen(count))
        widths.append(high - low)
    assert widths[0] > widths[1] > widths[3]
    assert widths[1] > 0.95 * widths[2]


def test_a_run_that_is_past_what_the_reference_needs_is_expected_soon_and_never_before_its_next_evaluation():
    for count in (19, 24, 30):
        expected, low, _ = run_of(campaign(), seen(count))
        assert low >= 10 * (count + 1) - 0.3
        assert expected < 10 * (count + 6)


def test_runs_of_the_reference_that_would_have_ended_already_tell_nothing():
    assert run_of(campaign([10] * 40 + [30] * 20), seen(5))[0] < 150
    assert run_of(campaign([10] * 40 + [30] * 20), seen(14))[0] > 250


def test_what_a_program_does_behind_its_last_evaluation_is_learnt_from_finished_runs():
    known = campaign([20] * 10)
    finished = seen(20, stop=True)
    finished.stopped_ms += 90_000
    known.finished = [finished]
    assert run_of(known, seen(5))[0] == pytest.approx(290)


def test_no_run_is_expected_behind_the_end_of_its_schedule():
    assert run_of(campaign(), seen(39)) == pytest.approx([400, 400, 400], rel=0.001)
    assert run_of(campaign(), seen(40))[2] == pytest.approx(400, rel=0.001)


def test_the_interval_holds_four_fifths_of_runs_that_are_as_the_reference():
    """Runs of a campaign each, with a factor of the campaign, and evaluations that take 3 % more or less."""
    chance = random.Random(7)
    inside = []
    for _ in range(150):
        factor = math.exp(chance.gauss(0, live.OF_CAMPAIGNS))
        need = math.ceil((chance.choice(SPREAD) - chance.random()) * factor)
        run = seen(need, noise=random.Random(chance.random()))
        current = ObservedRun(schedule=SCHEDULE, counted="epoch_num", started_ms=0)
        current.positions, current.times_ms = run.positions[:4], run.times_ms[:4]
        _, low, high = run_of(campaign(), current)
        inside.append(low <= run.times_ms[-1] / 1000 <= high)
    assert 0.72 <= statistics.fmean(inside) <= 0.95


def slowly(known, run, values, width, log_error, *, pace, finished=()):
    """The run's end in the obvious way: campaigns and runs are made up, and kept if they are as what was seen."""
    chance = random.Random(3)
    spread = max(statistics.pstdev(math.log(value) for value in values), 0.03)
    common = math.hypot(live.OF_CAMPAIGNS, log_error)

    def need(factor):
        value = chance.choice(values)
        if chance.random() >= live.FROM_THE_TAIL:
            return (value + (chance.random() - 0.5) * width) * factor
        uniform = chance.random()
        return value * math.exp(spread * math.sqrt(3) / math.pi * math.log(uniform / (1 - uniform))) * factor

    def is_as(seen_run, needed):
        """Of an odd run anything may be."""
        if chance.random() < live.ODD / (1 + live.ODD):
            return True
        return seen_run.positions[-2] < needed <= seen_run.positions[-1]

    last, passed = run.positions[-1], run.times_ms[-1] / 1000
    period = known.schedule.period
    ends = []
    while len(ends) < 1000:
        usual = chance.random() < 0.9
        factor = math.exp(chance.gauss(0, common if usual else max(common, live.OF_OTHERS)))
        if all(is_as(one, need(factor)) for one in finished):
            needed = need(factor)
            if needed > last:
                ends.append(passed + math.ceil((needed - last) / period) * period * pace)
    return ends


def alike(forecast, ends, period_seconds):
    quantiles = statistics.quantiles(ends, n=10)
    for ours, obvious in zip(forecast, (quantiles[4], quantiles[0], quantiles[8]), strict=True):
        assert abs(ours - obvious) <= period_seconds + 0.04 * obvious


@pytest.mark.parametrize("evaluations", [3, 12, 19])
@pytest.mark.parametrize("others", [(), (24,)])
def test_forecasts_are_those_of_the_slow_and_obvious_way(evaluations, others):
    known, run = campaign(), seen(evaluations)
    known.finished = [seen(count, stop=True) for count in others]
    reference = expect([point(SPREAD)], RULES, BATCH)
    values = list(reference.values)
    ends = slowly(known, run, values, 1.0, reference.log_error, pace=10.0, finished=known.finished)
    alike(run_of(known, run), ends, 10.0)


ENTRIES = (
    "v1.1/NVIDIA/results/dgxa100_ngc21.09_pytorch/rnnt",
    "v2.1/Intel-HabanaLabs/results/HLS-Gaudi2-PT/resnet",
    "v5.1/Quanta_Cloud_Technology/results/D74H-7U/rgat",
)


@needs.corpus
@pytest.mark.parametrize("entry", ENTRIES)
def test_published_logs_are_forecast_as_in_the_slow_and_obvious_way(entry):
    (location,) = locate.find(CORPUS / entry, None).locations
    rules = ruleset.load(location.ruleset).benchmark(location.benchmark)
    events = log.read(min(location.files, key=number_of)).events
    batch_size = next(event.value for event in events if event.key == "global_batch_size")
    points = rcp.load(rules, [])
    reference = expect(points, rules, batch_size)
    known = Campaign(reference.schedule, rules, points, batch_size)
    run, whole = known.new_run(), known.new_run()
    for event in events:
        whole.event(event)
        if len(run.positions) < 3:
            run.event(event)
    trained = run.positions[-1] - run.positions[0]
    pace = (run.times_ms[-1] - run.times_ms[0]) / 1000 / trained
    began = run.started_ms / 1000
    ends = slowly(known, run, list(reference.values), reference.resolution, reference.log_error, pace=pace)
    alike(run_of(known, run), ends, pace * reference.schedule.period)
    assert run_of(known, run)[0] - began == pytest.approx((whole.stopped_ms / 1000) - began, rel=0.12)


def test_finished_runs_of_a_campaign_that_needs_more_move_what_is_expected():
    known = campaign()
    before = run_of(known, seen(4))
    known.finished = [seen(count, stop=True) for count in (25, 26, 25, 27)]
    after = run_of(known, seen(4))
    assert after[0] > before[0] + 20
    assert after[1] > before[1]


def test_one_run_that_never_reaches_its_target_moves_little():
    known = campaign()
    before = run_of(known, seen(4))[0]
    known.finished = [seen(40, stop=True, reached=False)]
    assert run_of(known, seen(4))[0] <= before + 20


def test_the_pace_of_finished_runs_counts_until_a_run_has_one_of_its_own():
    known = campaign([20] * 10)
    known.finished = [seen(20, pace=10.0, opening=30.0, stop=True) for _ in range(3)]
    begun = seen(0)
    expected = seconds(known.forecast(0, begun, to_do=0).run)[0]
    assert expected == pytest.approx(230, rel=0.01)
    slower = seen(12, pace=15.0, opening=30.0)
    assert run_of(known, slower)[0] == pytest.approx(330, rel=0.02)


def test_a_campaign_ends_after_all_its_runs_and_what_is_around_their_clocks():
    known = campaign([20] * 10)
    known.finished = [seen(20, stop=True)]
    forecast = known.forecast(50_000, seen(5), to_do=3, around_seconds=7.0)
    expected, low, high = seconds(forecast.campaign)
    assert expected == pytest.approx(4 * 200 + 3 * 7, rel=0.01)
    assert low < expected < high < 1.2 * expected


def test_between_two_runs_the_rest_is_expected_from_now_on():
    known = campaign([20] * 10)
    known.finished = [seen(20, stop=True)]
    forecast = known.forecast(1_000_000, None, to_do=2)
    assert forecast.run is None
    assert seconds(forecast.campaign)[0] == pytest.approx(1000 + 400, rel=0.01)
    assert known.forecast(1_000_000, None, to_do=0) is None


def test_without_points_nothing_is_expected_until_a_run_has_reached_the_target():
    known = campaign(values=())
    assert known.forecast(0, seen(5), to_do=4) is None
    known.finished = [seen(12, stop=True, reached=False)]
    assert known.forecast(0, seen(5), to_do=3) is None
    known.finished = [seen(count, stop=True) for count in (12, 13, 12)]
    forecast = known.forecast(50_000, seen(5), to_do=0)
    expected, low, high = seconds(forecast.run)
    assert 109 <= low < expected <= 130 < high < 200
    assert forecast.passes is None


def test_before_anything_tells_how_fast_runs_are_nothing_is_expected():
    assert campaign().forecast(0, seen(0), to_do=4) is None


def test_a_budget_ends_every_run():
    known = campaign(limit_minutes=1.0)
    forecast = known.forecast(50_000, seen(5), to_do=1)
    assert seconds(forecast.run) == pytest.approx([60, 60, 60])
    assert seconds(forecast.campaign) == pytest.approx([120, 120, 120])


def chance(counts, current):
    known = campaign()
    known.finished = [seen(count, stop=True, reached=count < 40) for count in counts]
    forecast = known.forecast(10**6, current, to_do=RULES.runs - len(counts) - 1)
    return forecast.passes


def test_the_chance_of_the_reference_check_follows_the_finished_runs():
    typical, early = chance((20, 19, 21), seen(3)), chance((12, 12, 11), seen(3))
    assert typical > 0.85
    assert early < 0.1
    assert chance((20, 40, 40), seen(3)) == 0  # one run may fail, two may not


def test_the_chance_is_whether_the_judge_passes_it():
    """With one evaluation left, a run can end in one way only."""
    for last in (38, 12):
        counts = [last] * (RULES.runs - 1)
        verdict = rcp.verdict([point(SPREAD)], RULES, BATCH, [*counts, 40])
        assert chance(counts, seen(39)) == (1.0 if verdict.verdict == rcp.PASS else 0.0)


def test_a_log_whose_positions_stand_still_is_read_by_its_schedule():
    schedule = EvalSchedule(first=150_000, period=150_000, until=math.inf)
    run = ObservedRun(schedule=schedule, counted="train_samples")
    run.event(Event(key="run_start", value=None, time_ms=0))
    for minute in (1, 2, 3):
        run.event(Event("eval_accuracy", 0.5, minute * 60_000, metadata={"epoch_num": 1}))
    assert run.positions == [150_000, 300_000, 450_000]


def test_metrics_that_are_logged_one_by_one_are_one_evaluation():
    run = seen(1)
    for name in ("BBOX", "SEGM"):
        run.event(Event("eval_accuracy", 0.5, 20_000, metadata={"epoch_num": 2, "metric": name}))
    assert run.positions == [1, 2]


class Wall:
    def __init__(self):
        self.now_ms = 0

    def __call__(self):
        return self.now_ms


def watching(tmp_path, runs=3, **options):
    config = {"hyperparameters": {"global_batch_size": BATCH}}
    jobs = [job(tmp_path, index=index, config=config, schedule=SCHEDULE) for index in range(runs)]
    wall = Wall()
    return forecast.ForecastObserver(jobs, RULES, [point([20] * 10)], now_ms=wall, **options), jobs, wall


def carry_out(told, one, wall, evaluations):
    """A run that is launched for 5 s, and takes 10 s for each evaluation."""
    told.run_started(one)
    wall.now_ms += 5000
    told.event(Event("run_start", None, wall.now_ms))
    for epoch in range(1, evaluations + 1):
        wall.now_ms += 10_000
        told.event(Event("eval_accuracy", 0.5, wall.now_ms, metadata={"epoch_num": epoch}))
    if evaluations == 20:
        told.event(Event("run_stop", None, wall.now_ms, metadata={"status": "success"}))
        told.run_ended(one, failure=None)


def test_a_watcher_knows_after_each_evaluation_when_the_campaign_ends(tmp_path):
    told, jobs, wall = watching(tmp_path)
    told.campaign_started(total=3, done=0)
    assert told.latest is None
    carry_out(told, jobs[0], wall, 20)
    assert told.latest.campaign.expected == pytest.approx(3 * 205_000, rel=0.01)
    carry_out(told, jobs[1], wall, 3)
    assert told.latest.campaign.expected == pytest.approx(3 * 205_000, rel=0.01)
    assert told.latest.run.expected == pytest.approx(2 * 205_000, rel=0.01)
    told.campaign_ended()
    assert told.latest is None


def test_runs_that_other_processes_carry_out_are_not_waited_for(tmp_path):
    told, jobs, wall = watching(tmp_path, runs=5, only=[0, 1])
    told.campaign_started(total=5, done=0)
    carry_out(told, jobs[0], wall, 20)
    assert told.latest.campaign.expected == pytest.approx(2 * 205_000, rel=0.01)


def test_results_of_a_campaign_that_goes_on_are_evidence(tmp_path):
    lines = [("run_start", 0, {})]
    lines += [("eval_accuracy", 10_000 * epoch, {"epoch_num": epoch}) for epoch in range(1, 21)]
    lines += [("run_stop", 200_000, {"status": "success"})]
    text = "".join(
        f':::MLLOG {{"key": "{key}", "value": 0.5, "time_ms": {when}, "metadata": {replaced(metadata)}}}\n'
        for key, when, metadata in lines
    )
    (tmp_path / "result_0.txt").write_text(text)
    told, _, _ = watching(tmp_path)
    told.campaign_started(total=3, done=1)
    assert told.latest.campaign.expected == pytest.approx(2 * 200_000, rel=0.01)


def replaced(metadata):
    return str(metadata).replace("'", '"')


def test_a_forecast_that_goes_wrong_is_none_and_ends_no_campaign(tmp_path, monkeypatch):
    told, jobs, wall = watching(tmp_path)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(Campaign, "forecast", broken)
    told.campaign_started(total=3, done=0)
    carry_out(told, jobs[0], wall, 20)
    assert told.latest is None


def test_a_forecast_takes_a_few_milliseconds():
    import time

    known = campaign(values=[*SPREAD] * 4)
    known.finished = [seen(20, stop=True) for _ in range(20)]
    best = math.inf
    for _ in range(5):
        began = time.process_time()
        known.forecast(0, seen(5), to_do=19)
        best = min(best, time.process_time() - began)
    assert best < 0.05


def test_likely_factors_are_as_often_as_they_are_likely():
    crossing = live.Crossing(np.array([20.0]), 1.0, 0.05, 0.1)
    shifts = crossing.likely_shifts(2000)
    assert float(np.mean(shifts)) == pytest.approx(0, abs=0.005)
    assert float(np.std(shifts)) == pytest.approx(math.sqrt(0.9 * 0.1**2 + 0.1 * 0.15**2), rel=0.05)
