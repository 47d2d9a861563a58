"""Published rounds -> rows of the table of published entries. The corpus is found as in `test_corpus`."""

import json
import shutil

import pytest

from tests import needs
from tests.judge.test_corpus import CORPUS
from train_bench.cli.program import command
from train_bench.errors import LogError, RequestError
from train_bench.judge.published import derive, published_entries

LAST_OPEN = {"dgxa100_ngc21.09_merlin_hugectr"}
"""Entries whose runs end within their last evaluation, which the table that is shipped leaves out."""

OVERLAPPED = {"dgxa100_n51_ngc21.09_pytorch"}
"""Entries that evaluate beside training, by the clocks of several processes."""

NODES, GPUS = 2, 8
SYSTEM = {
    "division": "closed",
    "number_of_nodes": str(NODES),
    "accelerators_per_node": f"{GPUS}",
    "accelerator_model_name": "NVIDIA A100-SXM4-80GB (400W)",
}
MINUTES = [9, 10, 11, 12, 30]


def log_of(benchmark, *, batch, evaluations, minutes=10.0, init=0.5, status="success", train_samples=None):
    """A log with its evaluations `(position, whether eval_start and eval_stop are logged)`, of 6 s each."""
    clock = [0]

    def line(key, value=None, *, at, **metadata):
        clock[0] = round(at * 60_000)
        told = {"key": key, "value": value, "time_ms": 10**12 + clock[0], "metadata": metadata}
        return f":::MLLOG {json.dumps({'namespace': '', 'event_type': 'POINT_IN_TIME', **told})}\n"

    lines = [
        line("submission_benchmark", benchmark, at=0),
        line("submission_division", "closed", at=0),
        line("global_batch_size", batch, at=0),
        line("init_start", at=0),
        line("init_stop", at=init),
        line("run_start", at=init),
    ]
    for number, (key, position, told) in enumerate(evaluations, start=1):
        at = init + minutes * number / (len(evaluations) + 1)
        name = {key: position}
        lines += [line("eval_start", at=at, **name)] if told else []
        lines += [line("eval_accuracy", 0.5, at=at + 0.1, **name)]
        lines += [line("eval_stop", at=at + 0.1, **name)] if told else []
    lines += [] if train_samples is None else [line("train_samples", train_samples, at=init + minutes)]
    return "".join([*lines, line("run_stop", at=init + minutes, status=status)])


@pytest.fixture
def entry(tmp_path):
    """What makes an entry of a round, and tells its row."""

    def entry(benchmark, *, number="v1.1", runs=None, system=SYSTEM, **of_log):
        root = tmp_path / number / "Somebody"
        folder = root / "results" / "box" / benchmark
        folder.mkdir(parents=True)
        (root / "systems").mkdir(exist_ok=True)
        if system is not None:
            (root / "systems" / "box.json").write_text(json.dumps(system))
        for index, run in enumerate([{"minutes": minutes} for minutes in MINUTES] if runs is None else runs):
            (folder / f"result_{index}.txt").write_text(log_of(benchmark, **{**of_log, **run}))
        return derive.derive([tmp_path], None).entries[0]

    return entry


def test_a_row_has_what_folders_description_and_logs_say(entry):
    assert entry("resnet", batch=3200, evaluations=[("epoch_num", 32, True), ("epoch_num", 36, True)]) == (
        published_entries.Entry(
            round="v1.1",
            submitter="Somebody",
            system="box",
            benchmark="resnet",
            division="closed",
            accelerators=NODES * GPUS,
            accelerator="NVIDIA A100-SXM4-80GB (400W)",
            global_batch=3200,
            samples_to_target=36 * 1_281_167,
            minutes=11.0,
            eval_share=0.0182,
            init_minutes=0.5,
            runs=5,
        )
    )


def test_a_run_that_did_not_reach_the_target_is_the_slowest_and_says_nothing_of_samples(entry):
    late = [("epoch_num", 80, True)]
    failed = {"minutes": 1, "status": "aborted", "evaluations": late}
    row = entry(
        "resnet",
        batch=3200,
        evaluations=[("epoch_num", 36, True)],
        runs=[{"minutes": minutes} for minutes in MINUTES[:4]] + [failed],
    )
    assert row.minutes == 11.0
    assert row.samples_to_target == 36 * 1_281_167
    assert row.runs == 5


@pytest.mark.parametrize(
    ("number", "benchmark", "of_log", "samples"),
    [
        ("v1.1", "bert", {"evaluations": [("epoch_num", 1, False)], "train_samples": 2_700_000}, 2_700_000),
        ("v1.0", "bert", {"evaluations": [("epoch_num", 2_600_000, False)], "train_samples": 7}, 2_600_000),
        ("v1.0", "dlrm", {"evaluations": [("epoch_num", 1.9, True)]}, 0.9 * 4_195_197_692),
        ("v1.1", "ssd", {"evaluations": [("epoch_num", 50, True)]}, 50 * 117_266),
        ("v2.0", "ssd", {"evaluations": [("epoch_num", 4, True)]}, 4 * 1_170_301),
        ("v1.1", "unet3d", {"evaluations": [("epoch_num", 2000, True)]}, 2000 * 168),
        ("v4.0", "unet3d", {"evaluations": [("epoch_num", 336_000, True)]}, 336_000),
        ("v4.0", "gpt3", {"evaluations": [("epoch_num", 2048 * 600_000, True)]}, 600_000),
        ("v3.1", "stable_diffusion", {"evaluations": [("step_num", 4000, True)]}, 4000 * 512),
        ("v5.1", "llama31_8b", {"evaluations": [("samples_count", 172_032, True)]}, 172_032),
    ],
)
def test_progress_is_counted_in_samples_whatever_the_logs_of_its_round_count(
    entry, number, benchmark, of_log, samples
):
    runs = [{}] * (10 if benchmark != "unet3d" else 40)
    row = entry(benchmark, number=number, batch=512, runs=runs, **of_log)
    assert (row.round, row.benchmark) == (number, benchmark)
    assert row.samples_to_target == pytest.approx(samples, rel=1e-9)


def test_what_no_log_tells_is_not_known(entry):
    row = entry("bert", batch=448, evaluations=[("epoch_num", 1, False)], train_samples=1000, runs=[{}] * 10)
    assert row.eval_share is None


@pytest.mark.parametrize(
    ("system", "count"),
    [
        (None, None),
        ({**SYSTEM, "accelerators_per_node": "8 (of two boards)"}, 16),
        ({**SYSTEM, "accelerators_per_node": "N/A"}, None),
        ({**SYSTEM, "number_of_nodes": 4}, 32),
    ],
)
def test_accelerators_are_those_of_all_nodes_or_not_known(entry, system, count):
    assert (
        entry("resnet", batch=1, evaluations=[("epoch_num", 36, True)], system=system).accelerators == count
    )


def test_values_that_no_row_may_have_are_not_known_so_that_the_table_can_be_read(entry, tmp_path):
    row = entry(
        "resnet",
        batch=0,
        evaluations=[("epoch_num", -36, True)],
        runs=[{"minutes": 1 / 60_000, "init": -1}] * 5,
        system={**SYSTEM, "accelerator_model_name": " = A\x1b100 " + 300 * "x"},
    )
    assert (row.global_batch, row.samples_to_target, row.init_minutes) == (None, None, None)
    assert row.minutes == pytest.approx(1 / 60_000, rel=1e-5)
    assert row.accelerator.startswith("= A\\x1b100 xxx")
    published_entries.write(tmp_path / "table.csv", [row])
    assert published_entries.read(tmp_path / "table.csv") == (row,)


def test_what_has_no_score_or_is_no_submission_is_left_out_with_its_reason(entry, tmp_path):
    entry("resnet", batch=1, evaluations=[("epoch_num", 36, True)])
    folder = tmp_path / "v1.1" / "Slow" / "results" / "box" / "resnet"
    folder.mkdir(parents=True)
    for index in range(5):
        text = log_of("resnet", batch=1, evaluations=[], status="aborted")
        (folder / f"result_{index}.txt").write_text(text)
    loose = tmp_path / "v1.1" / "loose"
    loose.mkdir()
    (loose / "result_0.txt").write_text(log_of("resnet", batch=1, evaluations=[]))
    left_out = derive.derive([tmp_path], None).left_out
    assert sorted(left_out) == [
        f"{folder} has no score: 0 of 5 runs reached the target; the round requires 5.",
        f"{loose} does not have the layout SUBMITTER/results/SYSTEM/BENCHMARK of published results.",
    ]


def test_one_round_given_twice_is_read_once_and_a_copy_of_it_is_refused(entry, tmp_path):
    made = entry("resnet", batch=1, evaluations=[("epoch_num", 36, True)])
    assert derive.derive([tmp_path, tmp_path / "v1.1"], None).entries == (made,)
    shutil.copytree(tmp_path / "v1.1", tmp_path / "copy" / "v1.1")
    with pytest.raises(RequestError, match=r"v1\.1 Somebody box resnet is in two of the folders"):
        derive.derive([tmp_path], None)


def test_the_command_writes_the_same_table_every_time(entry, tmp_path, capsys):
    made = entry("resnet", batch=1, evaluations=[("epoch_num", 36, True)])
    index = command("index")
    table = tmp_path / "table.csv"
    assert index(["published", str(tmp_path), "--to", str(table)]) == 0
    assert capsys.readouterr().out == f"{table} holds entries of v1.1: 1, from 5 log(s).\n"
    before = table.read_bytes()
    assert index(["published", str(tmp_path), "--to", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 1
    assert table.read_bytes() == before
    (read,) = published_entries.read(table)
    assert read.minutes == made.minutes
    with pytest.raises(RequestError, match="give the name of a file"):
        index(["published", str(tmp_path), "--to", str(tmp_path)])
    (tmp_path / "none").mkdir()
    with pytest.raises(LogError, match=r"has no result_\*\.txt yet"):
        index(["published", str(tmp_path / "none"), "--to", str(table)])


@needs.corpus
def test_rows_of_published_logs_are_those_of_the_shipped_table():
    derived = derive.derive([CORPUS], None)
    assert (len(derived.entries), derived.logs) == (19, 188)
    shipped = {
        (row.round, row.submitter, row.system, row.benchmark): row for row in published_entries.shipped()
    }
    compared = 0
    for row in derived.entries:
        known = shipped.get((row.round, row.submitter, row.system, row.benchmark))
        if known is None:
            continue
        compared += 1
        for name in ("division", "accelerators", "accelerator", "global_batch", "runs"):
            assert getattr(row, name) == getattr(known, name), (row, name)
        assert row.samples_to_target == pytest.approx(known.samples_to_target, abs=1)
        assert row.minutes == pytest.approx(known.minutes, abs=1e-4)
        assert row.init_minutes == pytest.approx(known.init_minutes, abs=0.01)
        if known.eval_share is None:
            assert row.eval_share is None
        else:
            off = 0.006 if row.system in LAST_OPEN else 0.031 if row.system in OVERLAPPED else 1e-4
            assert row.eval_share == pytest.approx(known.eval_share, abs=off), row
    assert compared == 11
