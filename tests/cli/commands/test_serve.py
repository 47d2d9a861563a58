"""What `train-bench serve` refuses before any rank is started."""

import os
import platform
import shutil
from dataclasses import replace

import pytest

from tests.command_line import typed
from tests.fake_campaigns import make, verify
from tests.serving.serve_fake import campaign
from train_bench.campaign import data
from train_bench.campaign.opened import Campaign
from train_bench.cli.commands import serve
from train_bench.core import files
from train_bench.core.job import Device
from train_bench.errors import LaunchError, RequestError
from train_bench.serving import session
from train_bench.serving.batching import Batching
from train_bench.startup.weight_store import Tier


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("scenario=web", "--scenario is web; give all, or some of offline"),
        ("scenario=offline,offline", "each once"),
        ("scenario=", "give all"),
        ("batch_size=0", "allowed are 1 to 4096"),
        ("window=-1", "allowed are 0 to 1000 ms"),
        ("window=nan", "allowed are 0 to 1000 ms"),
        ("seed=3", "'seed=3' is not an option of serve"),
    ],
)
def test_an_option_that_is_none_is_refused(begun, word, sentence):
    with pytest.raises(RequestError, match=sentence):
        serve.main([str(begun.jobs[0].folder), word])


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A campaign whose one run has kept weights, verified as `agree` says; no data are asked for."""
    monkeypatch.setattr(data, "refuse_missing", lambda campaign: None)
    _, (run,) = campaign(tmp_path / "campaign")
    plan = make(f"output={tmp_path / 'planned'}", "runs=1")
    job = replace(plan.jobs[0], folder=run.job.folder)

    def verified(agree):
        verify(run.job.folder / "result_0.txt", agree=agree)
        return Campaign.of(replace(plan, jobs=(job,)))

    return verified


def with_plan(campaign, **changes):
    return replace(campaign, plan=replace(campaign.plan, **changes))


def request(tmp_path, **changes):
    values = {
        "scenarios": ("offline",),
        "batching": Batching(),
        "quantisation": "none",
        "output": tmp_path / "served",
    }
    return session.ServeRequest(**(values | changes))


def test_only_weights_whose_verification_holds_are_served(kept, tmp_path):
    with pytest.raises(RequestError, match="run 0 is not that of its log"):
        session.refuse(kept(False), request(tmp_path))
    plan = kept(True)
    (run,) = session.refuse(plan, request(tmp_path))
    assert run.job.index == 0
    (run.job.folder / "verified_0.json").unlink()
    with pytest.raises(RequestError, match="is not verified; run train-bench verify"):
        session.refuse(plan, request(tmp_path))


def in_log(plan, old, new):
    """Edit the log of the only run; its verification is kept up to date."""
    folder = plan.folder
    path = folder / "result_0.txt"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    verify(path)


def test_a_run_that_was_trained_on_evaluation_samples_is_refused(kept, tmp_path):
    plan = kept(True)
    in_log(plan, '"samples_in_common": 0', '"samples_in_common": 500')
    with pytest.raises(RequestError, match=r"Run 0 was trained on 500 of the \d+ evaluation samples"):
        session.refuse(plan, request(tmp_path))


def test_a_log_with_another_fingerprint_names_no_evaluation_set(kept, tmp_path):
    plan = kept(True)
    in_log(plan, '"evaluation": {', '"others": {')
    runs = session.refuse(plan, request(tmp_path))
    (weights,) = session.assignment_of("Offline", runs, request(tmp_path)).weights
    assert weights.evaluation_digest is None


def test_changed_weights_are_refused(kept, tmp_path):
    plan = kept(True)
    (plan.folder / "weights" / "run_0.safetensors").write_bytes(b"others")
    with pytest.raises(RequestError, match="is not what"):
        session.refuse(plan, request(tmp_path))


def test_an_output_that_exists_and_several_ranks_are_refused(kept, tmp_path):
    plan = kept(True)
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "something").touch()
    with pytest.raises(RequestError, match="exists; give another place with --output"):
        session.refuse(plan, request(tmp_path))
    with pytest.raises(RequestError, match=r"has 2 ranks; give launcher=inline"):
        session.refuse(with_plan(plan, world_size=2), request(tmp_path, output=tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_benchmarks_and_scenarios_without_rules_are_refused(kept, tmp_path):
    plan = with_plan(kept(True), benchmark="minigo_mini")
    with pytest.raises(RequestError, match="no rules for minigo_mini; it has some for resnet_mini"):
        session.refuse(plan, request(tmp_path))
    plan = with_plan(kept(True), benchmark="unet3d_mini")
    with pytest.raises(
        RequestError, match=r"not served in the scenario server .*; choose among offline, single"
    ):
        session.refuse(plan, request(tmp_path, scenarios=("server",)))


def test_a_missing_load_generator_is_told_before_anything_else(kept, tmp_path, monkeypatch):
    plan = kept(True)
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RequestError, match=r"load generator of MLPerf, which is not installed: pip install"):
        session.refuse(plan, request(tmp_path))


def test_an_output_that_cannot_be_written_is_refused(kept, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"--output=.*file/served cannot be written \(Not a directory\)"):
        session.refuse(kept(True), request(tmp_path, output=tmp_path / "file" / "served"))


def test_int8_on_a_gpu_is_refused(kept, tmp_path, monkeypatch):
    monkeypatch.setattr(session.rank_job, "refuse", lambda plan, work: None)
    plan = kept(True)
    plan = plan.with_job(replace(plan.first, device=Device.cuda))
    wanted = request(tmp_path, quantisation="int8_dynamic")
    with pytest.raises(RequestError, match="int8_dynamic is for the CPU, and device is cuda; add device=cpu"):
        session.refuse(plan, wanted)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"energy_command": "touch /tmp/x"},
            r"serve would measure energy as the campaign in .*energy_command=touch",
        ),
        (
            {"energy_idle": "86400 s"},
            r"serve would measure energy as the campaign in .*energy_idle='86400 s'",
        ),
        ({"energy_idle": "much"}, "energy_idle='much' is not an idle power"),
    ],
)
def test_energy_is_not_measured_as_somebody_else_says(kept, tmp_path, options, sentence):
    plan = kept(True)
    files.write_json(plan.folder / "plan.json", {})
    asking = with_plan(plan, request={**plan.plan.request, "energy": "auto", **options})
    with pytest.raises(RequestError, match=sentence):
        session.refuse(asking, request(tmp_path))
    files.write_json(plan.folder / "plan.json", {})
    session.refuse(with_plan(plan, request={**plan.plan.request, "energy": "auto"}), request(tmp_path))


class FakeMeter:
    """Meter that notes what is to be written."""

    def __init__(self):
        self.options, self.written, self.reads, self.ended = None, [], True, False

    def start(self, options, folder, say):
        """Stand in for `Meter` with these arguments."""
        self.options = options
        return self

    def begin(self):
        pass

    def write_log(self, path, begin_ms, end_ms, measured):
        self.written.append((path, begin_ms, end_ms, measured))

    def end(self):
        self.ended = True


@pytest.fixture
def meter(monkeypatch):
    """The meter of `serve`."""
    made = FakeMeter()
    monkeypatch.setattr(session, "Meter", made.start)
    return made


def test_fewer_runs_than_the_rules_ask_for_are_announced_before_the_first_process(
    kept, tmp_path, monkeypatch, meter
):
    plan, said = kept(True), []

    def started(*arguments):
        raise LaunchError(f"started after {said}")

    monkeypatch.setattr(session.rank_job, "carry_out", started)
    wanted = request(tmp_path)
    with pytest.raises(LaunchError, match="asks for the weights of 5 runs, and 1 of this campaign reached"):
        session.carry_out(plan, session.refuse(plan, wanted), wanted, tell=said.append)
    assert meter.ended


HERE, ELSEWHERE = platform.node(), "elsewhere"


def carried_out(kept, tmp_path, monkeypatch, *, host=HERE, **options):
    """Serve one scenario on a host, measured as the options say. Returns the lines and the folder of the result."""
    plan, lines = kept(True), []
    plan = with_plan(plan, request={**plan.plan.request, "energy": "auto", **options})
    wanted = request(tmp_path)
    tests = {
        f"run_0/Offline/{name}": {"run": 0, "mode": mode, "window_ms": window}
        for name, mode, window in (
            ("accuracy", "AccuracyOnly", [1, 2]),
            ("performance/run_1", "PerformanceOnly", [3, 4]),
        )
    }

    def served(plan, work, options, folder):
        files.write_json(folder / "served.json", {"scenario": "Offline", "host": host, "tests": tests})
        for name in tests:
            (wanted.output / name).mkdir(parents=True)
        return replace(plan.first, folder=folder)

    monkeypatch.setattr(session.rank_job, "carry_out", served)
    session.carry_out(plan, session.refuse(plan, wanted), wanted, tell=lines.append)
    return "\n".join(lines), wanted.output


def test_performance_tests_have_power_logs_where_the_campaign_measured_its_energy(
    kept, tmp_path, monkeypatch, meter
):
    _, output = carried_out(kept, tmp_path, monkeypatch)
    assert meter.options.command is None
    path = output / "run_0" / "Offline" / "performance" / "power" / "node_0.txt"
    assert meter.written == [(path, 3, 4, "the test run_0/Offline/performance/run_1")]
    copied = files.read_json(output / "serving.json")["tests"]["run_0/Offline/performance/run_1"]
    assert "window_ms" not in copied


def test_what_becomes_of_the_logs_of_training_meanwhile_costs_no_result(kept, tmp_path, monkeypatch, meter):
    plan = kept(True)
    power = plan.folder / "power" / "result_0"
    power.mkdir(parents=True)
    (power / "node_0.txt").write_text("read")
    os.mkfifo(power / "node_1.txt")
    wanted = request(tmp_path)
    runs = session.refuse(plan, wanted)

    def served(plan, work, options, folder):
        shutil.rmtree(runs[0].job.folder)
        files.write_json(folder / "served.json", {"scenario": "Offline", "host": HERE, "tests": {}})
        return replace(plan.first, folder=folder)

    monkeypatch.setattr(session.rank_job, "carry_out", served)
    session.carry_out(plan, runs, wanted, tell=lambda line: None)
    run = wanted.output / "run_0"
    assert [path.name for path in (run / "power" / "training").iterdir()] == ["node_0.txt"]
    assert (run / "training.log").is_file() and (run / "verified_training.json").is_file()
    assert files.read_json(wanted.output / "serving.json")["runs"][0]["index"] == 0


def test_a_log_that_is_gone_before_the_start_is_refused(kept, tmp_path, meter):
    plan, wanted = kept(True), request(tmp_path)
    runs = session.refuse(plan, wanted)
    (runs[0].job.folder / "result_0.txt").unlink()
    with pytest.raises(
        RequestError, match=r"result_0\.txt cannot be copied to .*training\.log \(No such file"
    ):
        session.carry_out(plan, runs, wanted, tell=lambda line: None)


def trained_on(tmp_path, host):
    files.write_json(tmp_path / "campaign" / "system.json", {"host": host})


def test_a_process_on_another_host_than_the_meter_has_no_energy(kept, tmp_path, monkeypatch, meter):
    lines, _ = carried_out(kept, tmp_path, monkeypatch, host=ELSEWHERE)
    assert (
        f"not measured in offline, because its process ran on the host elsewhere, and the meter reads {HERE}"
        in (lines.replace("this one, ", ""))
    )
    assert meter.written == []


def test_the_energy_command_of_another_host_measures_nothing_here(kept, tmp_path, monkeypatch, meter):
    monkeypatch.setattr(session.command_trust, "refuse_energy", lambda plan, work: None)
    trained_on(tmp_path, ELSEWHERE)
    lines, _ = carried_out(kept, tmp_path, monkeypatch, energy_command="ipmi")
    assert "energy: not measured, because energy_command is that of the host elsewhere" in lines
    assert meter.options is None
    trained_on(tmp_path, HERE)
    carried_out(kept, tmp_path / "again", monkeypatch, energy_command="ipmi")
    assert meter.options.command == "ipmi"


def test_counters_of_another_host_than_that_of_training_are_named(kept, tmp_path, monkeypatch, meter):
    trained_on(tmp_path, ELSEWHERE)
    lines, _ = carried_out(kept, tmp_path, monkeypatch)
    assert f"energy: measured is this host, {HERE}; the campaign was trained on elsewhere." in lines
    assert len(meter.written) == 1


@pytest.mark.parametrize("words", [("score",), ("report", "to=x.html")])
def test_verbs_of_training_results_name_the_page_of_a_served_folder(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    test = tmp_path / "served" / "run_0" / "Offline" / "accuracy"
    test.mkdir(parents=True)
    (test / "mlperf_log_detail.txt").touch()
    (tmp_path / "served" / "serving.html").touch()
    verb, *more = words
    answer = typed(verb, "served", *more)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "judge them with train-bench judge served; their page is served/serving.html." in answer.stderr


@pytest.mark.parametrize("verb", ["judge", "score"])
def test_a_broken_plan_is_told_although_there_are_tests_of_serving(tmp_path, verb):
    test = tmp_path / "served"
    test.mkdir()
    (test / "mlperf_log_detail.txt").touch()
    (tmp_path / "result_0.txt").touch()
    (tmp_path / "plan.json").write_text("[")
    answer = typed(verb, str(tmp_path))
    assert answer.returncode == 1
    assert "plan.json" in answer.stderr
    assert "LoadGen" not in answer.stderr


def test_processes_serve_copies_of_the_store_that_nobody_evicts_until_they_have_ended(
    kept, tmp_path, monkeypatch
):
    plan, wanted, seen = kept(True), request(tmp_path), {}
    runs = session.refuse(plan, wanted)

    def served(plan, work, options, folder):
        (digest,) = runs[0].digests.values()
        tier = Tier(wanted.output / session.STORE)
        seen.update(files=options["weights"][0]["files"], expected=(str(tier.path(digest)),))
        seen["evicted"] = tier.evict(digest)
        raise LaunchError("died")

    monkeypatch.setattr(session.rank_job, "carry_out", served)
    with pytest.raises(LaunchError, match="died"):
        session.carry_out(plan, runs, wanted, tell=lambda line: None)
    assert seen["files"] == seen["expected"]
    assert not seen["evicted"]
    assert not (wanted.output / session.STORE).exists()


def test_weights_that_change_between_the_check_and_the_start_are_not_served(kept, tmp_path, monkeypatch):
    plan, wanted = kept(True), request(tmp_path)
    runs = session.refuse(plan, wanted)
    monkeypatch.setattr(session.rank_job, "carry_out", lambda *arguments: pytest.fail("it was started"))
    runs[0].paths[0].write_bytes(b"others")
    with pytest.raises(RequestError, match="is not the weights that were asked for"):
        session.carry_out(plan, runs, wanted, tell=lambda line: None)
    assert not (wanted.output / session.STORE).exists()
