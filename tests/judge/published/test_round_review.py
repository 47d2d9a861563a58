"""A round reviewed: each planted fault is found in the entry that has it, and clean entries have no question."""

import json
import shutil
from html import unescape

import pytest

from tests import needs
from tests.judge import campaigns
from tests.needs import CORPUS
from train_bench.cli.program import command
from train_bench.judge.published import round_review
from train_bench.judge.tree import judge_tree

INTERVAL = 12_288
"""Samples between two evaluations of llama31_8b."""

SETTINGS = {
    "submission_benchmark": "llama31_8b",
    "submission_division": "closed",
    "submission_status": "onprem",
    "submission_platform": "machine",
    "global_batch_size": 64,
    "gradient_accumulation_steps": 2,
    "micro_batch_size": 1,
    "tensor_parallelism": 2,
    "pipeline_parallelism": 1,
    "context_parallelism": 1,
    "expert_parallelism": 1,
    "lowest_numerical_precision_in_linear": "fp8",
    "lowest_numerical_precision_in_attn": "bfloat16",
    "lowest_numerical_precision_in_comm": "bfloat16",
    "config_filename": "configs/llama.sh",
    "max_sequence_length": 8192,
    "opt_name": "adamw",
    "opt_base_learning_rate": 0.001,
    "opt_end_learning_rate": 0.0001,
    "opt_learning_rate_warmup_steps": 128,
    "opt_learning_rate_decay_steps": 1199872,
    "opt_learning_rate_decay_schedule": "cosine with linear warmup",
    "opt_adamw_beta_1": 0.9,
    "opt_adamw_beta_2": 0.95,
    "opt_adamw_epsilon": 1e-05,
    "opt_adamw_weight_decay": 0.1,
    "opt_gradient_clip_norm": 1.0,
    "max_steps": 1200000,
    "eval_samples": 1024,
}

SYSTEM = {
    "division": "closed",
    "status": "Available on-premise",
    "number_of_nodes": "8",
    "accelerators_per_node": "8",
    "accelerator_model_name": "Some Accelerator",
    "framework": "A framework",
    "sw_notes": "linear layers in FP8, attention in bfloat16",
}


class Entry:
    """Ten runs of llama31_8b on 64 accelerators, which reach the target after 18 or 19 evaluations, where wanted with
    the power logs of eight nodes. `number` makes its times, seeds and qualities its own."""

    def __init__(self, tree, submitter, *, number, round_name="v6.1", system="machine"):
        self.top = tree / round_name / submitter
        self.folder = self.top / "results" / system / "llama31_8b"
        self.folder.mkdir(parents=True)
        source = self.top / "benchmarks" / "llama31_8b" / "implementations"
        source.mkdir(parents=True)
        (source / "llama.sh").write_text(
            "export MICRO_BATCH_SIZE=1  # of a rank\nGLOBAL_BATCH_SIZE=64\nLR=3\n"
        )
        self.submitter, self.number, self.system = submitter, number, dict(SYSTEM)
        self.described = self.top / "systems" / f"{system}.json"
        self.evaluations, self.seconds, self.power = None, 5.0, None
        self.settings = [
            SETTINGS | {"seed": 1000 * number + run, "submission_org": submitter} for run in range(10)
        ]
        self.source = ["train.py"] * 10

    def write(self):
        self.described.parent.mkdir(exist_ok=True)
        self.described.write_text(json.dumps(self.system | {"submitter": self.submitter}))
        for run in range(10):
            self._write_run(run)
        return self

    def _write_run(self, run):
        time_ms = start_ms = 1_790_000_000_000 + 100_000_000 * self.number + 1_000_000 * run
        lines = []

        def log(key, value=None, **metadata):
            event = {"key": key, "value": value, "time_ms": time_ms, "event_type": "POINT_IN_TIME"}
            lines.append(event | {"metadata": {"file": self.source[run], "lineno": 7} | metadata})

        log("cache_clear", True)
        log("init_start")
        for key, value in self.settings[run].items():
            log(key, value)
        time_ms = start_ms + 15_000
        log("init_stop")
        time_ms = start_ms + 20_000
        log("run_start")
        evaluations = self.evaluations or 18 + run % 2
        for at in range(evaluations):
            log("block_start", samples_count=at * INTERVAL)
            time_ms += round(1000 * self.seconds) + 31 * run + self.number + at
            log("block_stop", samples_count=(at + 1) * INTERVAL)
            log("eval_start", samples_count=(at + 1) * INTERVAL)
            time_ms += 500
            quality = 3.28 if at + 1 == evaluations else 5 - 0.05 * at
            quality += 0.0001 * run + 0.00001 * self.number
            log("eval_accuracy", quality, samples_count=(at + 1) * INTERVAL)
            log("eval_stop", samples_count=(at + 1) * INTERVAL)
        log("run_stop", status="success")
        log("train_samples", evaluations * INTERVAL)
        write_events(self.folder / f"result_{run}.txt", lines)
        self._write_power(run, start_ms + 20_000, time_ms)

    def _write_power(self, run, start_ms, stop_ms):
        if self.power is None:
            return
        for node in range(self.power.get("nodes", 8)):
            begun, ended = start_ms - 1000 + self.power.get("late", 0), stop_ms + 2000
            events = [power("power_measurement_start", None, begun)]
            for reading, at in enumerate(range(begun, ended, self.power.get("every", 1000))):
                if not self.power.get("gap") or not 10 <= reading < 15:
                    watts = 5000 + node + (0 if self.power.get("constant") else reading * 37 % 91)
                    events.append(power("power_reading", {"value": watts}, at))
            events.append(power("power_measurement_stop", None, ended))
            name = f"{self.power.get('named', 'result')}_{run}"
            write_events(self.folder / "power" / name / f"node_{node}.txt", events)


def power(key, value, time_ms):
    return {"key": key, "value": value, "time_ms": time_ms, "metadata": {}}


def write_events(path, events):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f":::MLLOG {json.dumps(event)}\n" for event in events))


def every_run(**changes):
    def plant(entry):
        for settings in entry.settings:
            settings.update(changes)

    return plant


def third_run(**changes):
    return lambda entry: entry.settings[3].update(changes)


def measured(**faults):
    return lambda entry: setattr(entry, "power", faults)


def described(**changes):
    return lambda entry: entry.system.update(changes)


def text_for_truth(entry):
    entry.settings[5]["overlap_communication"] = "True"
    entry.settings[6]["overlap_communication"] = "True"


def another_program(entry):
    entry.source[4] = "train_other.py"


def slow(entry):
    entry.seconds = 8.0


def other_configuration(entry):
    (entry.top / "benchmarks" / "llama31_8b" / "implementations" / "llama.sh").write_text(
        "micro_batch_size: 2\n"
    )


FAULTS = {
    "True as text": (text_for_truth, "text_for_truth", 2),
    "a run by another program": (another_program, "runs_differ", 1),
    "a run with another precision": (third_run(lowest_numerical_precision_in_comm="fp8"), "runs_differ", 1),
    "parallelism that no machine has": (every_run(tensor_parallelism=3), "parallelism", 1),
    "a batch that does not add up": (
        every_run(micro_batch_size=4, config_filename="none.sh"),
        "parallelism",
        1,
    ),
    "a local batch that does not": (every_run(local_batch_size=3), "parallelism", 1),
    "a precision that is not described": (
        every_run(lowest_numerical_precision_in_linear="nvfp4"),
        "precision",
        1,
    ),
    "a configuration that is not there": (every_run(config_filename="configs/none.sh"), "configuration", 10),
    "a configuration that says otherwise": (other_configuration, "configuration", 10),
    "power of too few nodes": (measured(nodes=6), "power_nodes", 10),
    "power read too rarely": (measured(every=1600), "power_rate", 80),
    "a gap in the power": (measured(gap=True), "power_gap", 80),
    "power measured too late": (measured(late=2500), "power_window", 80),
    "a constant power": (measured(constant=True), "power_constant", 80),
    "power of no run": (measured(named="result_17-"), "power_missing", 1),
    "few readings": (measured(every=2900), "power_few", 80),
    "slower than its peers": (slow, "peer_outlier", 1),
}
ALSO = {
    "a batch that does not add up": {"configuration"},
    "few readings": {"power_rate"},
}
"""What else a fault makes, by its nature."""

CLEAN = ("clean", "clean with power", "clean with memory in its description")


def of_a_tree(folder, capsys, *options):
    """The exit code, what is told of each entry by its submitter, and all of it."""
    code = command("review")([str(folder), "--json", *options])
    told = json.loads(capsys.readouterr().out)
    return code, {entry["submitter"]: entry for entry in told["entries"]}, told


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory):
    """The whole round, reviewed once."""
    tree = tmp_path_factory.mktemp("round")
    plants = {
        **{name: plant for name, (plant, _, _) in FAULTS.items()},
        CLEAN[0]: lambda entry: None,
        CLEAN[1]: measured(),
        CLEAN[2]: described(host_memory_capacity="2 TB", accelerator_memory_configuration="FP64"),
    }
    for number, (name, plant) in enumerate(plants.items()):
        entry = Entry(tree, name, number=number)
        plant(entry)
        entry.write()
    judged = judge_tree(tree, ruleset_name=None, rcp_folders=[], judge=round_review.judge_closely)
    assert not judged.unjudged
    return {entry.location.submitter: entry for entry in judged.entries}


@pytest.mark.parametrize("name", CLEAN)
def test_an_entry_without_a_fault_is_valid_and_has_no_question(name, reviewed):
    assert reviewed[name].score.valid, reviewed[name].score.reasons
    assert round_review.questions(reviewed[name]) == ()


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_asked_about_once_with_its_count(name, reviewed):
    _, check, count = FAULTS[name]
    asked = {question.first.check: question for question in round_review.questions(reviewed[name])}
    assert set(asked) == {check} | ALSO.get(name, set())
    assert asked[check].findings == count


def test_degrees_of_parallelism_that_do_not_divide_the_accelerators_are_named(reviewed):
    (question,) = round_review.questions(reviewed["parallelism that no machine has"])
    assert "tensor_parallelism 3" in question.first.message
    assert "does not divide the 64 accelerators" in question.first.message


def test_what_changed_since_the_round_before_is_asked_where_the_minutes_differ(tmp_path, capsys):
    for number, (submitter, rate, seconds) in enumerate(
        [("changed", 0.002, 8.0), ("equally fast", 0.002, 5.0), ("unchanged", 0.001, 8.0)]
    ):
        Entry(tmp_path, submitter, number=number, round_name="v6.0").write()
        after = Entry(tmp_path, submitter, number=10 + number)
        every_run(opt_base_learning_rate=rate)(after)
        after.seconds = seconds
        after.write()
    told = of_a_tree(tmp_path, capsys)[2]["entries"]
    asked = [
        (entry["ruleset"], entry["submitter"], question["message"])
        for entry in told
        for question in entry["questions"]
        if question["check"] == "round_before"
    ]
    assert [where for *where, _ in asked] == [["training-6.1.0", "changed"]]
    assert asked[0][2].endswith("Changed: opt_base_learning_rate 0.001 -> 0.002.")


def test_a_copied_log_and_the_times_of_another_run_are_asked_about(tmp_path, capsys):
    first = Entry(tmp_path, "first", number=1).write()
    second = Entry(tmp_path, "second", number=2).write()
    shutil.copy(first.folder / "result_0.txt", second.folder)
    text = (first.folder / "result_1.txt").read_text().replace('"seed", "value": 1001', '"seed", "value": 77')
    (second.folder / "result_1.txt").write_text(text)
    _, entries, _ = of_a_tree(tmp_path, capsys)
    assert {question["check"] for question in entries["second"]["questions"]} >= {"duplicate", "same_times"}
    assert entries["first"]["questions"] == []


def test_points_that_all_entries_beat_are_a_question_to_the_round_and_to_no_entry(tmp_path, capsys):
    for number, submitter in enumerate(("one", "two", "three")):
        entry = Entry(tmp_path, submitter, number=number)
        entry.evaluations = 15
        entry.write()
    code, entries, told = of_a_tree(tmp_path, capsys)
    assert code == 1
    assert [(one["benchmark"], one["entries"], one["earlier"]) for one in told["points"]] == [
        ("llama31_8b", 3, 3)
    ]
    assert not any(entry["questions"] for entry in entries.values())


def test_entries_of_one_name_are_told_apart_by_folder_and_date(tmp_path, capsys):
    for name in ("first", "second"):
        (tmp_path / "nights" / name).mkdir(parents=True)
        campaigns.campaign(tmp_path / "nights" / name, ["good"])
        campaigns.plan(tmp_path / "nights" / name)
    command("review")([str(tmp_path / "nights"), "--json", "--to", str(tmp_path / "page.html")])
    told = json.loads(capsys.readouterr().out)
    assert {entry["began"] for entry in told["entries"]} == {"2023-11-14 22:13"}
    for text in (told["kinds"][0]["first"], (tmp_path / "page.html").read_text()):
        assert "(first, 2023-11-14 22:13)" in text
    command("review")([str(tmp_path / "nights")])
    assert "(second, 2023-11-14 22:13)" in " ".join(capsys.readouterr().out.split())


def test_the_page_has_a_row_for_each_entry_in_the_order_of_the_folders_and_no_markup_of_theirs(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    for number, (submitter, plant) in enumerate([("b<b>", text_for_truth), ("a", text_for_truth)]):
        entry = Entry(tmp_path / "round", submitter, number=number)
        plant(entry)
        entry.write()
    page = tmp_path / "page.html"
    assert command("review")([str(tmp_path / "round"), "--to", str(page)]) == 0
    printed, html = capsys.readouterr().out, page.read_text().replace("<wbr>", "")
    assert "[text_for_truth] 4 in 2 entries, first a/machine/llama31_8b" in printed
    assert "text_for_truth overlap_communication (2)" in printed
    assert "<b>" not in html
    assert html.index("a/machine/llama31_8b</th>") < html.index("b&lt;b&gt;/machine/llama31_8b</th>")
    assert "script-src 'sha256-" in unescape(html)
    assert html.count("<script") == 2


@pytest.mark.parametrize("name", ["../../secret.sh", "/etc/passwd", "configs/llama.sh/../llama.sh"])
def test_no_file_outside_the_submission_is_read_for_a_name_in_a_log(name, tmp_path, capsys):
    (tmp_path / "secret.sh").write_text("micro_batch_size=9\n")
    entry = Entry(tmp_path, "one", number=1)
    every_run(config_filename=name)(entry)
    entry.write()
    questions = of_a_tree(tmp_path, capsys)[1]["one"]["questions"]
    assert all("sets" not in question["message"] for question in questions)
    assert bool(questions) == (not name.endswith("llama.sh"))


@needs.corpus
def test_of_the_corpus_no_verdict_changes_and_each_kind_of_question_is_told_once(capsys):
    code, _, told = of_a_tree(CORPUS, capsys)
    kinds = {kind["check"]: (kind["entries"], kind["findings"]) for kind in told["kinds"]}
    assert code == 1
    assert len(told["entries"]) == 20
    assert sum(entry["valid"] for entry in told["entries"]) == 18
    assert kinds == {
        "slower": (4, 4),
        "time": (1, 20),
        "schedule": (2, 10),
        "repeated": (1, 10),
        "seed": (4, 25),
        "block": (2, 10),
        "system": (2, 2),
        "outside": (1, 10),
        "samples": (2, 9),
    }
    assert sum(not entry["questions"] for entry in told["entries"]) == 9
