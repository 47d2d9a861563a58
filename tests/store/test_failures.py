"""Failed runs of a history, and the campaigns of a machine in it."""

import json
import sqlite3

from tests.command_line import typed
from tests.compare.test_verdict import recorded
from train_bench.judge.tree import judge_folder
from train_bench.report.page import history as page
from train_bench.store import history


def judged(folder):
    return judge_folder(folder, ruleset_name=None, rcp_folders=[folder])


def test_a_history_says_which_points_leave_failed_runs_out_of_their_interval(tmp_path):
    recorded(tmp_path / "whole", ["good"] * 5)
    recorded(tmp_path / "failing", ["good"] * 4 + ["not_converged"], seeds=2000, day=2)
    store = ("--store", str(tmp_path / "results.db"))
    assert typed("index", str(tmp_path), *store).returncode in (0, 1)
    [line] = json.loads(typed("history", *store, "--json").stdout)["lines"]
    assert [point["failed"] for point in line["points"]] == [0, 1]
    said = typed("history", *store).stdout
    assert said.count("1 run(s) failed; the interval is of the others") == 1
    content = history.history(tmp_path / "results.db", ())
    data = page.data(content, lambda folders: [[] for _ in folders], {}, {})
    assert data["points"]["failed"] == [0, 1]


def test_the_history_of_a_machine_has_its_other_campaigns_of_the_plan_and_one_of_a_pair(tmp_path):
    places = {"first": "m1", "second": "m1", "elsewhere": "m2", "pair/a": "m1", "pair/b": "m1", "own": "m1"}
    for number, (name, host) in enumerate(places.items()):
        recorded(
            tmp_path / name,
            ["good"] * 5,
            factor=1 + number / 100,
            seeds=1000 * number,
            day=number + 1,
            host=host,
        )
    recorded(tmp_path / "other plan", ["good"] * 5, seeds=9000, day=9, host="m1", launcher="inline")
    store = tmp_path / "results.db"
    typed("index", str(tmp_path), "--store", str(store), "--ruleset", "mini-1.0")
    with sqlite3.connect(store) as connection:  # the good log is too good for the points
        connection.execute("UPDATE entries SET valid = 1")
    found = history.campaigns_like(store, judged(tmp_path / "own"))
    assert len(found) == 3
    assert all(len(logs) == 5 for logs in found)
    assert history.campaigns_like(store, judged(tmp_path / "elsewhere")) == []
