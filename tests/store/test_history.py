"""What a store answers: lines of scores, and queries that change nothing."""

import base64
import csv
import gzip
import io
import json
import re
import subprocess
import sys

import pytest

from tests.judge import campaigns
from tests.judge.published.test_derive import SYSTEM, log_of
from tests.store.test_store import campaign, index, judged
from train_bench.cli.program import command
from train_bench.compare import gate
from train_bench.errors import RequestError, UnknownName
from train_bench.store import history


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three nights of one campaign, of which the second broke off and the third has another torch, one that says
    it had two ranks more, a copy, and one with other hyperparameters."""
    root = tmp_path_factory.mktemp("store") / "results"

    def of(number, *, torch="2.11", other=1, **plan):
        shared = {"precision": "fp32", "config": {"hyperparameters": {"of_nobody": other}}}
        software = {"python": "3.11.7", "packages": {"torch": torch}}
        created = f"2020-11-{10 + number}T02:00:00+02:00"
        told = {"created": created, "revision": f"{number}abc", "shared": shared, "software": software}
        folder = campaign(root / str(number), **told | plan)
        campaigns.at_another_time(folder, number)
        (folder / "attempts").mkdir()
        for run in range(5):
            record = told | {"run": run, "attempt": 1, "outcome": "finished"}
            (folder / "attempts" / f"run_{run}_1.json").write_text(json.dumps(record))
        return folder

    first = of(1)
    (of(2) / "result_4.txt").unlink()
    of(3, torch="2.12")
    of(4, world_size=4)
    of(5, other=2)
    copy = of(6)
    (copy / "result_0.txt").write_text((first / "result_0.txt").read_text())
    index(root.parent / "a.db", root)
    return root.parent / "a.db"


def by_folder(told):
    return [{point["folder"].rpartition("/")[2]: point for point in line["points"]} for line in told["lines"]]


def test_a_line_is_of_one_task_on_one_system_and_joins_no_copy_and_nothing_that_is_not_valid(store):
    lines = sorted(by_folder(history.history(store, [])), key=len)
    assert [sorted(line) for line in lines[:2]] in ([["4"], ["5"]], [["5"], ["4"]])
    nights = lines[2]
    assert list(nights) == ["1", "2", "3", "6"]  # by date
    assert {number for number, point in nights.items() if point["joined"]} == {"1", "3"}
    assert nights["2"]["reasons"] == ["Incomplete: 4 of 5 runs."]
    assert nights["6"]["copy_of"] == nights["1"]["folder"]
    assert nights["1"]["began"] == "2020-11-11T00:00:00+00:00"
    assert nights["3"]["other_versions"] == ["torch 2.12 instead of 2.11"]
    assert nights["6"]["other_versions"] == ["torch 2.11 instead of 2.12"]
    assert nights["1"]["low_minutes"] < nights["1"]["score_minutes"] < nights["1"]["high_minutes"]


def test_a_campaign_that_was_moved_in_time_and_has_other_seeds_is_a_copy_in_history_and_gate(tmp_path):
    first = campaign(tmp_path / "results" / "as_run")
    jobs = [{"index": index, "seed": 7000 + index} for index in range(campaigns.MINI.runs)]
    moved = campaign(tmp_path / "results" / "moved", created="2020-11-21T01:02:03+00:00", jobs=jobs)
    for log in moved.glob("result_*.txt"):
        later = re.sub(
            r'("time_ms": )(\d+)', lambda found: f"{found[1]}{int(found[2]) + 86_400_000}", log.read_text()
        )
        log.write_text(re.sub(r'("key": "seed", "value": )1', r"\g<1>7", later))
    index(tmp_path / "a.db", tmp_path / "results")
    (points,) = by_folder(history.history(tmp_path / "a.db", []))
    assert (points["moved"]["valid"], points["moved"]["copy_of"]) == (True, str(first))
    assert {name for name, point in points.items() if point["joined"]} == {"as_run"}
    campaigns.at_another_time(campaign(tmp_path / "after"), 9)
    stored = history.earlier(tmp_path / "a.db", judged(tmp_path / "after")[0], last=2)
    assert [len({run.times_digest for run in entry.runs} - {None}) for _, entry in stored] == [5, 5]
    with pytest.raises(RequestError, match="The history has 1 valid campaign"):
        gate.against_history(stored, "after", judged(tmp_path / "after")[0].score, 0.03)


def test_logs_whose_clock_runs_backwards_have_a_page(tmp_path):
    folder = campaign(tmp_path / "results" / "backwards")
    for log in folder.glob("result_*.txt"):
        log.write_text(re.sub(r'("time_ms": )', r"\g<1>-", log.read_text()))
    index(tmp_path / "a.db", tmp_path / "results")
    page = tmp_path / "history.html"
    assert command("history")(["--to", str(page), "--store", str(tmp_path / "a.db")]) == 0
    assert page.exists()


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([f"benchmark={campaigns.MINI.name}", "ranks=4"], {"4"}),
        (["since=2020-11-14"], {"4", "5", "6"}),
        (["until=2020-11-12"], {"1", "2"}),
        (["since=2020-11", "until=2020-11"], {"1", "2", "3", "4", "5", "6"}),
        (["revision=3a"], {"3"}),
        (["valid=false", "launcher=torchrun"], {"2", "4"}),
        (["precision=bf16"], set()),
        (["system=' OR 1=1 --"], set()),
    ],
)
def test_filters_leave_what_they_say(store, filters, found):
    assert {name for line in by_folder(history.history(store, filters)) for name in line} == found


def test_filters_that_are_none_are_refused(store):
    with pytest.raises(UnknownName, match="Did you mean 'benchmark'"):
        history.history(store, ["benchmrak=x"])
    for wrong in ("resnet", "valid=yes", "since=yesterday"):
        with pytest.raises(RequestError):
            history.history(store, [wrong])


def test_published_entries_share_a_line_by_submitter_accelerator_number_and_target_only(tmp_path):
    def entry(number, *, benchmark="resnet", submitter="Somebody", system="box", accelerators=16, share=0.0):
        root = tmp_path / "rounds" / f"v{number}" / submitter
        described = {**SYSTEM, "number_of_nodes": str(accelerators // 8)}
        (root / "systems").mkdir(parents=True, exist_ok=True)
        (root / "systems" / f"{system}.json").write_text(json.dumps(described))
        folder = root / "results" / system / benchmark
        folder.mkdir(parents=True)
        for run in range(5):
            minutes = 9 + run + share + len(list(tmp_path.rglob("result_*"))) / 100
            evaluations = [("epoch_num", 32, True), ("epoch_num", 36, True)]
            text = log_of(benchmark, batch=3200, evaluations=evaluations, minutes=minutes)
            (folder / f"result_{run}.txt").write_text(text)

    entry("1.0")
    entry("1.1", system="box_of_another_name")
    entry("2.1", submitter="Other")
    entry("2.0", accelerators=64)
    entry("4.0", benchmark="ssd")
    entry("1.1", benchmark="ssd")
    index(tmp_path / "a.db", tmp_path / "rounds")
    lines = history.history(tmp_path / "a.db", [])["lines"]
    joined = sorted([point["ruleset"] for point in line["points"]] for line in lines)
    assert joined == [
        ["training-1.0.0", "training-1.1.0"],
        ["training-1.1.0"],
        ["training-2.0.0"],
        ["training-2.1.0"],
        ["training-4.0.0"],
    ]
    assert {line["kind"] for line in lines} == {"published"}


def test_the_command_tells_the_same_as_table_csv_and_json(store, capsys):
    tell = command("history")
    assert tell([f"benchmark={campaigns.MINI.name}", "--store", str(store)]) == 0
    table = capsys.readouterr().out
    assert "INCOMPLETE: 4 of 5 runs" in table
    assert "COPY" in table
    assert "torch 2.12 instead of 2.11" in table
    assert tell(["--json", "--store", str(store)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == history.history(store, [])
    assert tell(["--csv", "--store", str(store)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    scores = {point["folder"]: point["score_minutes"] for line in told["lines"] for point in line["points"]}
    assert {row["folder"]: row["score_minutes"] for row in rows} == {
        folder: "" if score is None else str(score) for folder, score in scores.items()
    }
    assert sum(row["joined"] == "true" for row in rows) == 3
    assert tell(["benchmark=none", "--store", str(store)]) == 0
    assert "has no result for these filters" in capsys.readouterr().out


def test_the_page_has_the_same_points_and_their_runs_with_findings(store, tmp_path, capsys):
    page = tmp_path / "history.html"
    assert command("history")(["--to", str(page), "--price-per-hour", "60", "--store", str(store)]) == 0
    packed = re.search(r'<script type="application/gzip" id="history">([^<]*)<', page.read_text())[1]
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    told = [point for line in history.history(store, [])["lines"] for point in line["points"]]
    for name in ("folder", "began", "score_minutes", "low_minutes", "joined", "copy_of", "joules"):
        assert data["points"][name] == [point[name] for point in told]
    assert data["points"]["cost"] == [point["score_minutes"] for point in told]
    assert [len(data["runs"][str(at)]) for at in range(len(told))] == [point["runs"] for point in told]
    first = next(at for at, point in enumerate(told) if point["folder"].endswith("/1"))
    number, seed, status, minutes, standing, findings, file = data["runs"][str(first)][1]
    assert (number, seed, status, standing, file) == (1, "1001", "success", "kept", "result_1.txt")
    assert minutes == pytest.approx(61 / 60, abs=1e-4)
    assert data["texts"][findings].startswith("for review [")


@pytest.mark.parametrize(
    "words",
    [
        ["--to", "{folder}"],
        ["--to", "x.html", "--sql", "SELECT 1"],
        ["--price-per-hour", "3"],
        ["--to", "x.html", "--price-per-hour", "nobody=3"],
        ["--to", "x.html", "--price-per-hour", "much"],
    ],
)
def test_a_page_that_cannot_be_made_is_refused(store, tmp_path, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequestError):
        command("history")(
            [*(word.replace("{folder}", str(tmp_path)) for word in words), "--store", str(store)]
        )
    assert list(tmp_path.iterdir()) == []


def test_a_query_is_answered_in_three_forms(store, capsys):
    tell = command("history")
    query = ["--sql", "SELECT ranks, count(*) AS n, NULL FROM entries GROUP BY 1", "--store", str(store)]
    assert tell([*query, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"columns": ["ranks", "n", "NULL"], "rows": [[2, 5, None], [4, 1, None]]}
    assert tell([*query, "--csv"]) == 0
    assert capsys.readouterr().out == "ranks,n,NULL\n2,5,\n4,1,\n"
    assert tell(query) == 0
    assert capsys.readouterr().out.split() == ["ranks", "n", "NULL", "2", "5", "4", "1"]
    with pytest.raises(RequestError, match="filters"):
        tell([*query, "benchmark=x"])


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM logs",
        "UPDATE entries SET valid = 1",
        "DROP TABLE logs",
        "CREATE TEMP TABLE mine (x)",
        "ATTACH '{other}' AS other",
        "VACUUM INTO '{other}'",
        "PRAGMA query_only = 0",
        "BEGIN",
        "SELECT load_extension('{other}')",
        "SELECT 1; DELETE FROM logs",
        "SELEC",
        "SELECT none FROM entries",
        "",
        "-- a remark",
        "SELECT '\udcff'",
        "SELECT abs(-9223372036854775808)",
    ],
)
def test_a_query_that_is_no_right_select_is_a_sentence_and_nothing_is_written(store, tmp_path, query):
    before = store.read_bytes()
    with pytest.raises(RequestError):
        history.select(store, query.replace("{other}", str(tmp_path / "other.db")))
    assert store.read_bytes() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT zeroblob(1000000000)", "A value of the query is larger than 64 MiB"),
        ("SELECT zeroblob(40000000) FROM logs, logs AS other", "The answer is larger than 256 MiB"),
        (
            "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 100000) "
            "SELECT x FROM c ORDER BY hex(zeroblob(1000000)), x",
            "takes more than 512 MiB of memory",
        ),
    ],
)
def test_a_query_asks_for_no_more_memory_than_is_allowed(store, query, said):
    with pytest.raises(RequestError, match=said):
        history.select(store, query)


ENDLESS = (
    "printf('%.*c', 2000000000, 'x')",
    "printf('%2$.*c', 1) || format('%.*c', 2000000000, 'x')",
    "instr(hex(zeroblob(30000000)), hex(zeroblob(10000000)) || '1')",
    "replace(hex(zeroblob(30000000)), hex(zeroblob(10000000)) || '1', 'a')",
    "hex(zeroblob(30000000)) LIKE '%' || hex(zeroblob(10000)) || '1%'",
    "hex(zeroblob(30000000)) GLOB '*' || hex(zeroblob(10000)) || '1*'",
    "(WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c)",
    "(WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT group_concat(randomblob(9)) FROM c)",
)


def asked_elsewhere(store, expression, before):
    """The end of a process that asks, because a thread of SQLite goes on until its process ends."""
    script = (
        "import signal, sys; from pathlib import Path; from train_bench.store import history, schema\n"
        f"{before}\n"
        "history.select(Path(sys.argv[1]), sys.argv[2])"
    )
    words = [sys.executable, "-c", script, str(store), f"SELECT {expression}"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("expression", ENDLESS)
def test_a_function_of_sql_that_takes_minutes_ends_at_the_limit_of_time_or_size(store, expression):
    ended = asked_elsewhere(store, expression, "schema.QUERY_SECONDS = history.FINISHING_SECONDS = 0.2")
    assert ended.returncode == 1
    assert re.search(r"RequestError: .*(takes more than 0.2 s|larger than 64 MiB|Invalid SQL)", ended.stderr)


def test_a_signal_ends_a_query_that_asks_no_progress_handler(store):
    soon = (
        "signal.signal(signal.SIGALRM, signal.default_int_handler); signal.setitimer(signal.ITIMER_REAL, 0.2)"
    )
    ended = asked_elsewhere(store, ENDLESS[0], soon)
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


def test_the_tables_of_names_from_logs_move_no_cursor_and_are_no_formulas(tmp_path, capsys):
    name = "=1+1\x1b[2J"
    folder = campaign(tmp_path / "campaign", variant=name)
    index(tmp_path / "a.db", folder)
    for form in (
        [],
        ["--csv"],
        ["--sql", "SELECT variant FROM entries", "--csv"],
        ["--sql", "SELECT variant FROM entries"],
    ):
        assert command("history")([*form, "--store", str(tmp_path / "a.db")]) == 0
        printed = capsys.readouterr().out
        assert ("\n=1" if "--csv" in form else "\x1b") not in printed
        assert ",=1" not in printed


def test_index_puts_folders_into_the_store_of_the_user_and_names_logs_that_changed(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    folder = campaign(tmp_path / "campaign")
    assert command("index")([str(folder)]) == 0
    store = tmp_path / "home" / "train_bench" / "results.db"
    assert f"{store} has entries of these folders: 1, from 5 log(s)." in capsys.readouterr().out
    (folder / "result_2.txt").write_text("")
    assert command("index")([str(folder)]) == 1
    assert f"changed: {folder}/result_2.txt changed since" in capsys.readouterr().out
    assert command("index")([str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 1
    assert command("history")(["valid=true"]) == 0
    with pytest.raises(RequestError, match="takes folders"):
        command("index")([str(folder / "result_0.txt")])
