"""Readers of other people's runs."""

import json
import math

import pytest

from train_bench.errors import LogError, NoLogs
from train_bench.referee.readers import Names, read_record

SMI = """\
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:8D:00.0 Off |                    0 |
|   1  NVIDIA H100 80GB HBM3          On  |   00000000:91:00.0 Off |                    0 |
|    0   N/A  N/A             105      C   python                                    1534MiB |
"""
LINE = "=" * 40


def written(folder, *, program="lr = 0.1  # val_loss:9.9", loss="3.2784", ms=79684, name="a.txt", steps=1390):
    """A log as speedruns leave it: the program, the machine, a line for each evaluation."""
    folder.mkdir(exist_ok=True)
    lines = [
        program,
        LINE,
        "Running Python 3.12.3 (main)",
        "Running PyTorch 2.10.0+cu128 compiled for CUDA 12.8",
        SMI,
        LINE,
        f"step:0/{steps} val_loss:10.83 train_time:0ms step_avg:0.03ms",
        f"step:250/{steps} val_loss:{4.21 if name == 'a.txt' else 4.22} train_time:9000ms",
        f"step:500/{steps} train_time:19000ms step_avg:38.00ms",
        f"step:1000/{steps} val_loss:3.5 train_time:40000ms",
        f"step:{steps}/{steps} val_loss:{loss} train_time:{ms}ms step_avg:57.33ms",
        "peak memory allocated: 37653 MiB reserved: 39236 MiB",
    ]
    (folder / name).write_text("\n".join(lines))
    return folder


def test_a_log_gives_its_last_quality_the_time_on_that_line_and_what_it_ran_on(tmp_path):
    (run,) = read_record(written(tmp_path / "one"), Names()).runs
    assert (run.quality, run.time) == (3.2784, pytest.approx(79.684))
    assert run.facts["gpus"] == "2 x NVIDIA H100 80GB HBM3"
    assert (run.facts["python"], run.facts["pytorch"], run.facts["steps"]) == (
        "3.12.3",
        "2.10.0+cu128",
        "1390",
    )


def test_what_the_program_above_the_log_says_is_no_quality(tmp_path):
    record = read_record(written(tmp_path / "one", program="print('val_loss: 1.0')"), Names())
    assert record.runs[0].course == (10.83, 4.21, 3.5, 3.2784)


def test_the_evaluation_at_a_step_counts_where_one_is_named(tmp_path):
    (run,) = read_record(written(tmp_path / "one"), Names(at=1000)).runs
    assert (run.quality, run.time) == (3.5, 40.0)


@pytest.mark.parametrize("at", [None, 1000])
def test_a_run_in_two_files_counts_once(tmp_path, at):
    folder = written(tmp_path / "one")
    (folder / "same.stdout").write_text((folder / "a.txt").read_text())
    record = read_record(written(folder, name="b.txt"), Names(at=at))
    assert len(record.runs) == 2
    assert record.repeated == [str(folder / "same.stdout")]


def test_a_summary_of_names_and_numbers_is_a_run(tmp_path):
    (tmp_path / "run.log").write_text(
        "wandb: core_metric 0.25851\nwandb: step 16704\nwandb: total_training_time 10949.46713\n"
    )
    (run,) = read_record(tmp_path / "run.log", Names()).runs
    assert (run.quality, run.time) == (0.25851, 10949.46713)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("runs.csv", "val_loss,train_time_ms,gpu\n3.2791,79536,H100\n3.2773,79740,H100\n"),
        ("runs.tsv", "val_loss\ttime\tgpu\n3.2791\t79.536\tH100\n3.2773\t79.740\tH100\n"),
        (
            "runs.json",
            json.dumps([{"val_loss": 3.2791, "seconds": 79.536}, {"val_loss": 3.2773, "seconds": 79.74}]),
        ),
        ("runs.json", json.dumps({"val_loss": [3.2791, 3.2773], "train_time": [79.536, 79.740]})),
        (
            "runs.json",
            json.dumps(
                {"runs": [{"val_loss": "3.2791", "time": "79.536"}, {"VAL_LOSS": 3.2773, "time": 79.74}]}
            ),
        ),
    ],
)
def test_a_table_of_runs_gives_the_same_runs_in_every_layout(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    runs = read_record(tmp_path / name, Names()).runs
    assert [run.quality for run in runs] == [3.2791, 3.2773]
    assert [run.time for run in runs] == pytest.approx([79.536, 79.740])


def test_lines_of_json_are_one_run(tmp_path):
    (tmp_path / "run.jsonl").write_text('{"val_loss": 4.0}\nnoise\n{"val_loss": 3.27, "minutes": 2}\n')
    (run,) = read_record(tmp_path / "run.jsonl", Names()).runs
    assert (run.quality, run.time) == (3.27, 120.0)


def test_an_mllog_log_gives_its_last_evaluation_and_the_time_of_its_clock(tmp_path):
    lines = [
        ("run_start", None, 1000),
        ("eval_accuracy", 0.5, 2000),
        ("eval_accuracy", 0.76, 60_000),
        ("run_stop", None, 61_000),
    ]
    (tmp_path / "result_0.txt").write_text(
        "".join(
            f':::MLLOG {{"namespace": "", "time_ms": {at}, "event_type": "POINT_IN_TIME", "key": "{key}", "value": '
            f'{json.dumps(value)}, "metadata": {{}}}}\n'
            for key, value, at in lines
        )
    )
    (run,) = read_record(tmp_path, Names()).runs
    assert (run.quality, run.time) == (0.76, 60.0)


def test_a_run_that_diverged_is_kept(tmp_path):
    (run,) = read_record(written(tmp_path / "one", loss="nan"), Names()).runs
    assert math.isnan(run.quality)


def test_files_without_a_quality_are_named(tmp_path):
    folder = written(tmp_path / "one")
    (folder / "died.log").write_text("step:1/1390 train_time:94ms\n")
    assert read_record(folder, Names()).without == ["died.log"]


def test_links_in_a_folder_are_not_followed(tmp_path):
    elsewhere = written(tmp_path / "elsewhere")
    folder = written(tmp_path / "one", name="b.txt")
    (folder / "link.txt").symlink_to(elsewhere / "a.txt")
    assert len(read_record(folder, Names()).runs) == 1


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.json", "[1, 2", "cannot be read as JSON"),
        ("a.json", '{"loss": [1, 2], "time": [1]}', "columns of different lengths (1, 2)"),
        ("a.json", "7", "has no run with a quality"),
        ("a.csv", "speed\n3\n", "has no run with a quality"),
        ("a.txt", "hello", "has no run with a quality"),
    ],
)
def test_a_file_that_has_no_runs_is_refused_in_a_sentence(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(LogError) as refused:
        read_record(tmp_path / name, Names())
    assert sentence in str(refused.value)


def test_a_record_of_different_qualities_asks_for_the_one_that_counts(tmp_path):
    (tmp_path / "a.txt").write_text("val_loss: 3.27\n")
    (tmp_path / "b.txt").write_text("accuracy: 0.94\n")
    with pytest.raises(LogError, match="--quality val_loss"):
        read_record(tmp_path, Names())
    assert len(read_record(tmp_path, Names(quality="accuracy")).runs) == 1


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NoLogs, match="There is no"):
        read_record(tmp_path / "none", Names())
