"""The store of results: derived from logs, the same however often, and fed by several at once.

The corpus is found as in `test_corpus`."""

import json
import multiprocessing
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests import needs
from tests.judge import campaigns
from tests.judge.test_corpus import CORPUS
from train_bench.campaign import start
from train_bench.cli.program import command
from train_bench.errors import RequestError, WriteError
from train_bench.judge.tree import judge_tree
from train_bench.plan import discover
from train_bench.plan.request import Request
from train_bench.store import feed, history, schema

MANY = 200
"""Campaigns."""
NOWHERE = [Path("/nowhere")]


def judged(path, *, ruleset=None):
    return judge_tree(path, ruleset_name=ruleset, rcp_folders=NOWHERE).entries


def index(store, path, **options):
    with schema.to_write(store) as connection:
        return feed.put_all(connection, judged(path), [path], **options)


def rows(store):
    """Everything that the store says."""
    with schema.to_read(store) as connection:
        return [list(connection.execute(f"SELECT * FROM {table}")) for table in ("entries", "logs")]


def campaign(folder, **plan):
    """Five runs that reached the target."""
    folder.mkdir(parents=True)
    campaigns.campaign(folder, ["good"] * campaigns.MINI.runs)
    campaigns.plan(folder, **{"created": "2020-11-20T01:02:03+00:00", "revision": "0123abcd"} | plan)
    return folder


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A campaign a day, each with logs of its own: every tenth has all of its runs, the others one."""
    root = tmp_path_factory.mktemp("many")
    logs = {log.name: log.read_text() for log in campaign(root / "0").glob("result_*.txt")}
    for number in range(1, MANY):
        folder = root / str(number)
        folder.mkdir()
        campaigns.plan(folder, created=f"2020-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00+00:00")
        for name in logs if number % 10 == 0 else ["result_0.txt"]:
            (folder / name).write_text(f"{logs[name]}campaign {number}\n")
    return root


def same_rows_when_indexed_twice_and_anew(path, folder):
    """The rows, of which a store has the same when it is fed again by logs that were read again, and so has a new one
    that is fed in another order."""
    read = [judged(path), judged(path)]
    stores = [folder / "a.db", folder / "b.db"]
    with schema.to_write(stores[0]) as connection:
        feed.put_all(connection, read[0], [path])
        first = rows(stores[0])
        again = feed.put_all(connection, read[1], [path])
    with schema.to_write(stores[1]) as connection:
        feed.put_all(connection, reversed(read[1]), [path])
    assert (again.changed, again.gone) == ((), ())
    assert rows(stores[0]) == rows(stores[1]) == first
    return first


@pytest.mark.full
def test_many_campaigns_indexed_twice_and_into_a_new_store_give_the_same_rows(many, tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "SYNCHRONOUS", "OFF")  # the test waits for no disk
    entries, logs = same_rows_when_indexed_twice_and_anew(many, tmp_path)
    assert (len(entries), len(logs)) == (MANY, MANY + 4 * MANY // 10)
    assert len({row[2] for row in entries}) == 1


@pytest.mark.slow
@needs.corpus
def test_published_rounds_indexed_twice_and_into_a_new_store_give_the_same_rows(tmp_path):
    entries, logs = same_rows_when_indexed_twice_and_anew(CORPUS, tmp_path)
    assert (len(entries), len(logs)) == (20, 188)


def test_a_log_that_changed_is_named_once_and_the_store_says_what_logs_say_now(tmp_path):
    folder, store = campaign(tmp_path / "campaign"), tmp_path / "a.db"
    index(store, folder)
    with (folder / "result_3.txt").open("a") as log:
        log.write("a line more\n")
    (folder / "result_4.txt").unlink()
    changed, removed = index(store, folder).changed
    assert f"{folder}/result_3.txt changed since it was indexed" in changed
    assert f"{folder}/result_4.txt was indexed, but no longer exists" in removed
    index(tmp_path / "b.db", folder)
    assert rows(store) == rows(tmp_path / "b.db")
    assert index(store, folder).changed == ()


def test_a_campaign_whose_logs_are_gone_is_named_and_stays_until_it_is_forgotten(tmp_path):
    campaign(tmp_path / "all" / "stays")
    gone, store = campaign(tmp_path / "all" / "gone"), tmp_path / "a.db"
    campaign(tmp_path / "all_others")
    index(store, tmp_path)
    shutil.rmtree(gone)
    shutil.rmtree(tmp_path / "all_others")  # its name begins like that of the folder that is indexed
    (told,) = index(store, tmp_path / "all").gone
    assert told.startswith(f"{gone} has no log any more")
    assert len(rows(store)[0]) == 3
    index(store, tmp_path / "all", forget=True)
    assert {Path(row[0]).name for row in rows(store)[0]} == {"stays", "all_others"}
    assert len(rows(store)[1]) == 10


def test_one_folder_is_one_entry_whatever_path_leads_to_it(tmp_path):
    folder, store = campaign(tmp_path / "campaign"), tmp_path / "a.db"
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, tmp_path / "link", folder / ".." / "campaign"):
        index(store, path)
    assert len(rows(store)[0]) == 1


COPIES = 25


def write_copies(store, folder, begin):
    """A campaign as if it lay in many folders."""
    (entry,) = judged(folder)
    places = [replace(entry.location, folder=folder / str(number)) for number in range(COPIES)]
    begin.wait()
    with schema.to_write(store) as connection:
        feed.put_all(connection, [replace(entry, location=place) for place in places])


def test_two_processes_feed_one_store_at_once_and_nothing_is_lost(tmp_path):
    store = tmp_path / "new" / "a.db"
    folders = [campaign(tmp_path / name) for name in ("one", "two")]
    processes = multiprocessing.get_context("fork")
    begin = processes.Barrier(2)
    writers = [processes.Process(target=write_copies, args=(store, folder, begin)) for folder in folders]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    entries, logs = rows(store)
    assert {row[0] for row in entries} == {
        str(folder / str(number)) for folder in folders for number in range(COPIES)
    }
    assert len(logs) == 2 * COPIES * 5


def test_a_campaign_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    folder, store = campaign(tmp_path / "campaign"), tmp_path / "a.db"
    index(store, folder)
    first = rows(store)
    insert = feed._insert

    def fail_at_logs(connection, table, new):
        if table == "logs":
            raise sqlite3.OperationalError("disk I/O error")
        insert(connection, table, new)

    monkeypatch.setattr(feed, "_insert", fail_at_logs)
    (folder / "result_0.txt").write_text("another")
    with pytest.raises(WriteError, match="disk I/O error"):
        index(store, folder)
    assert rows(store) == first


def test_what_a_plan_says_is_in_the_row_of_its_campaign(tmp_path):
    shared = {
        "device": "cpu",
        "precision": "bf16",
        "nodes": 1,
        "threads_per_rank": 2**70,
        "config": {"hyperparameters": {"global_batch_size": 64}},
    }
    software = {"python": "3.11.7", "packages": {"torch": "2.12.1"}, "sources": "0"}
    folder = campaign(tmp_path / "sweeps" / "7", shared=shared, software=software)
    (tmp_path / "sweeps" / "sweep.json").write_text("[]")
    index(tmp_path / "a.db", folder)
    with schema.to_read(tmp_path / "a.db") as connection:
        connection.row_factory = sqlite3.Row
        (row,) = connection.execute("SELECT * FROM entries")
        sums = connection.execute("SELECT count(*), sum(converged), sum(minutes) FROM logs").fetchone()
    assert (row["kind"], row["benchmark"], row["launcher"], row["ranks"]) == (
        "campaign",
        campaigns.MINI.name,
        "torchrun",
        2,
    )
    assert (row["device"], row["precision"], row["nodes"], row["threads_per_rank"]) == (
        "cpu",
        "bf16",
        1,
        None,
    )
    assert json.loads(row["versions"]) == {"python": "3.11.7", "torch": "2.12.1"}
    assert json.loads(row["hyperparameters"]) == {"global_batch_size": 64}
    assert (row["began"], row["revision"]) == ("2020-11-20T01:02:03+00:00", "0123abcd")
    assert (row["sweep"], row["job"]) == (str(tmp_path / "sweeps"), 7)
    assert row["low_minutes"] < row["score_minutes"] < row["high_minutes"]
    assert tuple(sums) == (5, 5, pytest.approx(310 / 60))


def test_names_that_are_no_text_are_kept_as_escapes(tmp_path):
    folder = campaign(tmp_path / "no\udcfftext", revision="\ud800", created="yesterday")
    index(tmp_path / "a.db", folder)
    assert "no\\udcfftext" in rows(tmp_path / "a.db")[0][0][0]


def test_a_file_that_is_no_store_is_refused_and_stays_as_it_is(tmp_path):
    text, other, newer = (tmp_path / name for name in ("text.db", "other.db", "newer.db"))
    text.write_text("no database, and longer than the head of one has to be" * 10)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE bookmarks (title)")
    with schema.to_write(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = {path: path.read_bytes() for path in (text, other, newer)}
    for path, reason in (
        (text, "not a store"),
        (other, "not a store"),
        (newer, "another version"),
        (tmp_path, "file"),
    ):
        for opened in (schema.to_write, schema.to_read):
            with pytest.raises(RequestError, match=reason), opened(path):
                pass
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(RequestError, match="no store"), schema.to_read(tmp_path / "none.db"):
        pass


def changed_store(folder, *statements):
    """A store of one campaign, changed by its sender."""
    index(folder / "a.db", campaign(folder / "campaign"))
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return folder / "a.db"


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT max(x) FROM c"


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (f"CREATE VIEW other AS {ENDLESS}", "view other"),
        ("CREATE TRIGGER t AFTER INSERT ON logs BEGIN DELETE FROM logs; END", "trigger t"),
        ("CREATE TABLE other (x, y AS (x + 1))", "table other"),
        ("CREATE INDEX other ON entries (length(folder))", "index other"),
        ("ALTER TABLE logs ADD COLUMN other AS (folder || file)", "table logs"),
    ],
)
def test_a_store_with_more_than_a_store_has_is_refused(tmp_path, statement, what):
    store = changed_store(tmp_path, statement)
    for opened in (schema.to_write, schema.to_read):
        with pytest.raises(RequestError, match=f"it has the {what}, which no store has"), opened(store):
            pass


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET ruleset = x'ff'",
        "UPDATE entries SET versions = '[1]'",
        "UPDATE entries SET reasons = '{'",
        "UPDATE entries SET score_minutes = 9e999",
        "UPDATE entries SET score_minutes = 1e300",
        "UPDATE entries SET runs = 'many'",
        "UPDATE entries SET ruleset = 'training-' || replace(hex(zeroblob(3000)), '0', '9')",
    ],
)
def test_values_of_another_type_are_a_sentence(tmp_path, statement):
    store = changed_store(tmp_path, statement)
    with pytest.raises(RequestError, match="has values of another type"):
        history.history(store, [])


def test_figures_that_no_store_may_have_are_unknown_when_a_campaign_is_indexed():
    figures = (1e18, -1e18, 1e19, float("inf"), float("nan"))
    assert [feed._value(figure) for figure in figures] == [1e18, -1e18, None, None, None]


@pytest.mark.parametrize("findings", ["1", "[[1, 2, 3, 4]]", '[["a"]]', "{"])
def test_findings_of_another_type_are_a_sentence(tmp_path, findings):
    store = changed_store(tmp_path, f"UPDATE logs SET findings = '{findings}'")
    with pytest.raises(RequestError, match="has values of another type"):
        history.runs(store, [str((tmp_path / "campaign").resolve())])


def test_a_query_ends_after_its_limit(tmp_path, monkeypatch):
    store = changed_store(tmp_path)
    monkeypatch.setattr(schema, "QUERY_SECONDS", 0.0)
    with pytest.raises(RequestError, match="takes more than 0 s"):
        history.select(store, ENDLESS)


def test_a_signal_ends_a_query(tmp_path, monkeypatch):
    """It comes while SQLite computes; Python's handler runs when SQLite calls back."""
    store = changed_store(tmp_path)

    def interrupted(_limit):
        raise KeyboardInterrupt

    monkeypatch.setattr(schema.QueryLimit, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        history.select(store, ENDLESS)


@pytest.fixture
def as_if_run(monkeypatch):
    """What makes the command `run`, to which a campaign that lies there is the one that it was asked for."""

    def run(folder, *overrides):
        monkeypatch.setattr(start, "carry_out", lambda _request, _say, _warn: folder)
        monkeypatch.setattr(discover, "rcp_folders", lambda: NOWHERE)
        return command("run")(overrides)

    return run


def test_a_campaign_feeds_the_store_that_it_is_given_after_its_score_is_written(tmp_path, as_if_run, capsys):
    folder, store = campaign(tmp_path / "campaign"), tmp_path / "a.db"
    assert as_if_run(folder) == 0
    assert not store.exists()
    assert as_if_run(folder, f"store={store}") == 0
    assert f"store: {store}" in capsys.readouterr().out
    index(tmp_path / "b.db", folder)
    assert rows(store)[1] == rows(tmp_path / "b.db")[1]
    assert as_if_run(folder, f"resume={folder}", f"store={store}") == 0
    (folder / "result_0.txt").unlink()
    assert as_if_run(folder, f"store={store}") == 1
    assert "result_0.txt was indexed, but no longer exists" in capsys.readouterr().err


def test_a_store_that_cannot_be_fed_costs_a_warning_and_no_result(tmp_path, as_if_run, capsys):
    folder = campaign(tmp_path / "campaign")
    assert as_if_run(folder, f"store={tmp_path}") == 0
    assert "warning: the store was not updated" in capsys.readouterr().err
    assert json.loads((folder / "score.json").read_text())["valid"]


def test_the_store_may_be_named_when_a_campaign_goes_on():
    request = Request(config=None, variant="", overrides=("resume=DIR", "store=FILE"), against=None)
    request.refuse_other_overrides()
