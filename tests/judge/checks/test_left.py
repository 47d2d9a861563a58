"""The table of what a campaign leaves, from both sides: a real campaign leaves every row, and the judge misses each row
that was removed."""

import json
import shutil

import pytest

from tests.command_line import train_bench
from tests.fake_campaigns import laid_out
from tests.judge.campaigns import plan
from tests.judge.checks.test_campaign_checks import PLANNED, findings_of, folder, judged
from tests.judge.checks.test_cheats import edit_log
from train_bench.core.job import KEPT_WEIGHTS
from train_bench.judge.checks import left
from train_bench.judge.checks.left import ATTEMPT, LOG, RANKS, RECORD, SYSTEM, TABLE, Promise

assert folder  # a fixture

NOW = Promise(version=left.THIS, program=False, keeps_weights=True, exported=False)
END = ", which a campaign of train_bench 0.2.0 leaves. Was it removed? Judge the folder in which the campaign ran."
ROWS = [row for row in TABLE if row.when(NOW)]
NAMES = [f"{row.file}:{row.key}" for row in ROWS]
PLACES = {
    ATTEMPT: "attempts/run_0_1.json",
    RANKS: "ranks/run_0",
    RECORD: "record_0.json",
    LOG: "result_0.txt",
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A finished campaign of a benchmark as `train-bench new` lays it out, that has kept its weights."""
    scratch = tmp_path_factory.mktemp("left")
    with laid_out(scratch / "code"):
        ran = train_bench(
            "run",
            "benchmark=waves",
            "runs=1",
            "seed=1",
            "keep_weights=true",
            f"output={scratch / 'campaign'}",
        )
        assert (scratch / "campaign" / "score.json").is_file(), ran.stderr
        yield scratch / "campaign"


def checks_of(path):
    judgement = judged(path)
    listed = [*judgement.findings, *(one for verdict in judgement.verdicts for one in verdict.findings)]
    return {(one.check, one.message) for one in listed}


def without(path, key):
    """Take a key out of a JSON file, at any level of it."""
    content = json.loads(path.read_text())
    *above, last = key.split(".")
    inner = content
    for name in above:
        inner = inner[name]
    del inner[last]
    path.write_text(json.dumps(content))


def remove(path, row):
    place = path / PLACES.get(row.file, row.file)
    if row.file == LOG:
        edit_log(place, lambda one: None if one["key"] == row.key else one)
        (path / "record_0.json").unlink()
    elif row.key is not None:
        without(place, row.key)
    elif place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()


@pytest.mark.slow
def test_a_real_campaign_leaves_every_row(real):
    assert [message for check, message in checks_of(real) if check == left.LEFT] == []
    for row in ROWS:
        place = real / PLACES.get(row.file, row.file)
        assert place.exists(), row
        if row.file == LOG:
            assert f'"key": "{row.key}"' in place.read_text(), row
        elif row.key is not None:
            assert left._has(json.loads(place.read_text()), row.key), row


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_judge_misses_each_row_that_was_removed(real, row, tmp_path):
    copied = shutil.copytree(real, tmp_path / "campaign")
    before = checks_of(copied)
    remove(copied, row)
    found = {check for check, _ in checks_of(copied) - before}
    assert (row.asked or left.LEFT) in found


def finished(folder, **changes):
    """The campaign of the fixture as one of this version, with a system and folders of its ranks."""
    software = PLANNED["software"]
    plan(folder, **PLANNED | {"train_bench": "0.2.0", "shared": {"python": None}, **changes})
    for index in range(5):
        (folder / "ranks" / f"run_{index}").mkdir(parents=True, exist_ok=True)
        path = folder / "attempts" / f"run_{index}_1.json"
        state = json.loads(path.read_text()) | {
            "host": "a",
            "started": "x",
            "ended": "y",
            "clock_seconds": None,
        }
        path.write_text(json.dumps(state | {"software": software}))
    system = {row.key: "x" for row in TABLE if row.file == SYSTEM and row.key}
    (folder / "system.json").write_text(json.dumps(system))
    return folder


def messages(folder):
    return [message for _, message in findings_of(judged(folder), left.LEFT)]


def test_what_is_absent_is_asked_about_once_for_each_file(folder):
    said = messages(finished(folder))
    assert said == [
        f"plan.json lacks created, request{END}",
        f"attempts/run_0_1.json and 4 more lack clock_seconds{END}",
    ]
    (folder / "system.json").unlink()
    shutil.rmtree(folder / "ranks" / "run_3")
    assert f"There is no system.json{END}" in messages(folder)
    assert f"There is no ranks/run_3{END}" in messages(folder)


def test_promised_weights_that_no_log_names_are_asked_about(folder):
    jobs = [{"index": index, "seed": 1000 + index, "keep_weights": True} for index in range(5)]
    finished(folder, jobs=jobs)
    assert f"result_0.txt and 4 more lack {KEPT_WEIGHTS}{END}" in messages(folder)


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"train_bench": "0.1.0"}, False),
        ({"train_bench": "0.1.0", "software": PLANNED["software"] | {"sources": left.own_sources()}}, True),
        ({"train_bench": "0.1.0", "shared": {"python": None}}, True),
        ({"train_bench": None}, True),
        ({"train_bench": "1.0.0"}, True),
    ],
)
def test_a_campaign_is_held_to_what_its_version_left(folder, changes, asked):
    plan(folder, **PLANNED | changes)
    assert bool(messages(folder)) is asked


def test_an_export_has_no_output_of_ranks(folder):
    finished(folder)
    shutil.rmtree(folder / "ranks")
    assert any("ranks/run_0" in one for one in messages(folder))
    exported = folder.parent / f"{folder.name}_crate" / "results"
    shutil.copytree(folder, exported)
    (exported.parent / left.CRATE).write_text("{}")
    assert not any("ranks/run_0" in one for one in messages(exported))
