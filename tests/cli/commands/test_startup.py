"""`train-bench startup`: what it refuses before any process is started, and whole ladders of synthetic models."""

import tempfile
from pathlib import Path

import pytest
from safetensors.numpy import save, save_file

from tests.command_line import train_bench
from tests.command_line import typed as typed_words
from tests.fake_campaigns import Diary, FakeLauncher, begin, keep_weights, make, run_all, verify
from train_bench.campaign import data
from train_bench.cli.exit_codes import say
from train_bench.core import files
from train_bench.startup import measurement, page_cache, started, synthetic, verified_run
from train_bench.startup.ladder import Subject


def typed(*words):
    return typed_words(*map(str, words))


@pytest.fixture(autouse=True)
def no_process(monkeypatch):
    monkeypatch.setattr(started, "MODULE", "no.such.module")


@pytest.fixture
def in_memory():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def kept(tmp_path):
    """A campaign of two runs; the log of the first names its weights, which are not verified."""
    folder, data = tmp_path / "campaign", tmp_path / "data"
    plan = make(f"output={folder}", "runs=2", f"data_dir='{data}'")
    begin(plan)
    run_all(plan, FakeLauncher(), Diary(), retry_failed=False)
    keep_weights(folder, save({}))
    return folder


def verified(folder, agree):
    verify(folder / "result_0.txt", agree=agree)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "startup takes a campaign with kept weights, or --synthetic SIZE"),
        (["kept", "--synthetic", "10MB"], "give one of them."),
        (["--synthetic", "10MB", "--rounds", "0"], "--rounds is 0; it is a number from 1 to 1000."),
        (["--synthetic", "10MB", "--levels", "L1,L7"], "There is no level 'L7'."),
        (["--synthetic", "10MB", "--levels", ""], "There is no level ''."),
        (["--synthetic", "10", "--levels", "L1"], "'10' is not a valid size of a synthetic model"),
        (["--synthetic", "1MB"], "'1MB' is not a valid size of a synthetic model; give 2MB to 1000GB"),
        (["synthetic=10MB,1e3GB"], "'1e3GB' is not a valid size of a synthetic model"),
        (["--synthetic", "1001GB"], "'1001GB' is not a valid size of a synthetic model"),
        (["nothing"], "nothing is not a campaign (no plan.json)"),
        (["--synthetic", "10MB", "--to", "x.html"], "give a name that ends in .json"),
    ],
)
def test_what_is_refused_is_named_with_what_is_allowed(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = typed("startup", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert sentence in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_a_disk_that_is_in_memory_is_refused_and_nothing_is_left(in_memory):
    answer = typed("startup", "--synthetic", "10MB", "--disk", in_memory)
    assert answer.returncode == 2
    assert "lies on tmpfs, whose files cannot be made cold" in answer.stderr
    assert list(in_memory.iterdir()) == []


def test_a_memory_tier_on_a_disk_is_refused(tmp_path):
    if page_cache.file_system(tmp_path) in page_cache.IN_MEMORY:
        pytest.skip("the folder of the tests is in memory")
    answer = typed("startup", "--synthetic", "10MB", "--disk", tmp_path, "--memory", tmp_path)
    assert answer.returncode == 2
    assert "weights are mapped from shared memory: give a folder on tmpfs" in answer.stderr
    answer = typed("startup", "--synthetic", "10MB", "--disk", tmp_path, "--memory", tmp_path / "none")
    assert "which is not a folder; give one in shared memory" in answer.stderr


def test_a_disk_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    answer = typed("startup", "--synthetic", "10MB", "--disk", tmp_path / "file")
    assert answer.returncode == 2
    assert "cannot be written" in answer.stderr


def test_a_model_for_which_there_is_no_room_is_refused(tmp_path, monkeypatch):
    words = ("--synthetic", "10MB,100GB", "--levels", "L1,L2", "--disk", tmp_path)
    monkeypatch.setattr(synthetic, "available_memory", lambda: 10**9)
    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**13}))
    answer = typed("startup", *words)
    assert answer.returncode == 2
    assert "takes 199,999 MB of the memory of this machine, where 1,000 MB are free" in answer.stderr
    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**9}))
    assert f"takes 199,999 MB of {tmp_path}" in typed("startup", *words).stderr
    assert list(tmp_path.iterdir()) == []


def test_synthetic_models_name_the_package_that_they_need(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic.importlib.util, "find_spec", lambda name: None)
    answer = typed("startup", "--synthetic", "10MB", "--disk", tmp_path)
    assert answer.returncode == 2
    assert "need a package that is not installed (torch): pip install '" in answer.stderr


def test_a_campaign_without_kept_weights_is_refused(begun, tmp_path):
    answer = typed("startup", begun.jobs[0].folder, "--disk", tmp_path / "disk")
    assert (answer.returncode, "has no result yet" in answer.stderr) == (2, True)


def test_weights_that_were_not_verified_are_refused(kept, tmp_path):
    answer = typed("startup", str(kept), "--disk", tmp_path / "disk")
    assert answer.returncode == 2
    assert f"were not verified; run train-bench verify {kept} first." in answer.stderr
    verified(kept, agree=False)
    answer = typed("startup", str(kept), "--disk", tmp_path / "disk")
    assert answer.returncode == 2
    assert "do not have the quality that it logs" in answer.stderr


def test_changed_weights_unknown_runs_and_missing_data_are_refused(kept, tmp_path):
    verified(kept, agree=True)
    disk = ("--disk", tmp_path / "disk")
    answer = typed("startup", str(kept), "--run", "3", *disk)
    assert (answer.returncode, "has no finished run 3; it has 0" in answer.stderr) == (2, True)
    answer = typed("startup", str(kept), *disk)
    assert (answer.returncode, "are not on this host" in answer.stderr) == (2, True)
    save_file({}, kept / "weights" / "run_0.safetensors", metadata={"x": "y"})
    answer = typed("startup", str(kept), *disk)
    assert (answer.returncode, "is not what" in answer.stderr) == (2, True)


def test_a_process_that_cannot_be_started_leaves_nothing(tmp_path):
    answer = typed("startup", "--synthetic", "2MB", "--levels", "L1", "--disk", tmp_path)
    assert answer.returncode == 1
    assert "died by exit code 1" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_answers_that_do_not_depend_on_the_weights_are_refused(kept, tmp_path, monkeypatch):
    verified(kept, agree=True)
    monkeypatch.setattr(started, "MODULE", "tests.startup.fake_process")
    monkeypatch.setattr(data, "refuse_missing", lambda campaign: None)
    monkeypatch.setattr(verified_run, "description", lambda *_: {"behaviour": "always right"})
    answer = typed("startup", str(kept), "--levels", "L1", "--disk", tmp_path / "disk")
    assert answer.returncode == 1
    assert "The start weights of resnet_mini, run 0 of " in answer.stderr
    assert "give the same first answer" in answer.stderr


def test_progress_names_a_campaign_on_one_line_of_text(capsys):
    subject = Subject(name="run 0 of c\x1b[2J\nVALID", described={}, weights=[], answer="")
    measurement._say_round(say, subject, 5, 1)
    assert capsys.readouterr().err == "train-bench: run 0 of c\\x1b[2J\\nVALID: round 1 of 5\n"


@pytest.mark.full
def test_synthetic_models_start_at_every_level_with_the_right_answer(tmp_path, in_memory):
    disk, file = tmp_path / "disk", tmp_path / "starts.json"
    cold = [] if page_cache.file_system(tmp_path) not in page_cache.IN_MEMORY else ["--levels=L1,L2,L3,L4"]
    answer = train_bench(
        "startup", "synthetic=2MB,4MB", "rounds=1", f"disk={disk}", f"memory={in_memory}", f"to={file}", *cold
    )
    assert answer.returncode == 0, answer.stderr
    assert "All answers are right, and equal bit by bit at all levels." in answer.stdout
    content = files.read_json(file)
    assert [
        model["bytes"] > size for model, size in zip(content["models"], (2 << 20, 4 << 20), strict=True)
    ] == [1, 1]
    for model in content["models"]:
        assert {one["answer"] for each in model["rounds"] for one in each.values()} == {model["answer"]}
        assert all(level["right"] == 1 for level in model["levels"])
    assert list(disk.iterdir()) == []
    assert list(in_memory.iterdir()) == []
