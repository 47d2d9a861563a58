"""Tables of many campaigns: against the first or the fastest, sorted, filtered, and with what differs."""

import json
import re
import shutil

import pytest

from tests.command_line import typed
from tests.judge.campaigns import at_another_time, campaign, plan
from train_bench.compare.campaign_table import label_of, make_rows
from train_bench.compare.differences import find_differences
from train_bench.errors import RequestError
from train_bench.judge.tree import judge_folder
from train_bench.report.comparison import difference

SECONDS = [60.0, 61.0, 62.0, 63.0, 64.0]


def made(folder, factor=1.0, day=1, **software):
    """A campaign of five runs with seeds and a day of its own."""
    folder.mkdir(parents=True)
    campaign(folder, ["good"] * 5, seconds=[factor * second for second in SECONDS])
    at_another_time(folder, day)
    for file in folder.glob("result_*.txt"):
        file.write_text(file.read_text().replace('"value": 100', f'"value": {200 + day}'))
    jobs = [{"index": index, "seed": (200 + day) * 10 + index} for index in range(5)]
    plan(folder, jobs=jobs, shared=software.pop("shared", {}), revision=software.pop("revision", None))
    machine = {
        "packages": {"numpy": "2.0"} | software,
        "memory_bytes": 2**34,
        "accelerators": ["H100"] * 8,
    }
    (folder / "system.json").write_text(json.dumps(machine))
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Four campaigns: the first, a faster one, a slower one, and one like the first."""
    root = tmp_path_factory.mktemp("many")
    made(root / "a", day=4)
    made(root / "b", 0.8, day=2, numpy="2.1")
    made(root / "c", 1.3, day=3, shared={"precision": "bf16"})
    made(root / "d", 1.001, day=1)
    return root


@pytest.fixture
def folders(recorded):
    return [str(recorded / name) for name in "abcd"]


def bare(folder, to):
    """The campaign without a run that converged."""
    shutil.copytree(folder, to)
    log = to / "result_0.txt"
    log.write_text(log.read_text().replace('"status": "success"', '"status": "aborted"'))
    return to


def judged(folder):
    return judge_folder(folder, ruleset_name=None, rcp_folders=[folder])


def rows(*words):
    answer = typed("compare", *words, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)["campaigns"]


def test_each_campaign_is_a_row_against_the_first(folders):
    a, b, c, d = rows(*folders)
    assert [one["verdict"] for one in (a, b, c, d)] == ["baseline", "faster", "slower", "undecided"]
    assert b["ratio"]["value"] == pytest.approx(0.8, rel=1e-3)
    assert b["ratio"]["low"] < 0.8 < b["ratio"]["high"] < 1
    assert b["differences"] == [{"kind": "versions", "name": "numpy", "a": "2.0", "b": "2.1"}]
    assert [(one["name"], one["b"]) for one in c["differences"]] == [("precision", "bf16")]
    assert (d["differences"], a["began"][:10]) == ([], "2023-11-18")


def test_the_fastest_may_be_what_the_others_are_held_against(folders):
    answer = json.loads(typed("compare", *folders, "--baseline", "best", "--json").stdout)
    assert [one["verdict"] for one in answer["campaigns"]] == ["slower", "baseline", "slower", "slower"]
    assert [one["a"]["label"] for one in answer["comparisons"]] == ["B"] * 3


@pytest.mark.parametrize(("by", "order"), [("time", "BADC"), ("date", "DBCA"), ("name", "ABCD")])
def test_rows_are_sorted_as_requested(folders, by, order):
    assert "".join(one["label"] for one in rows(*folders, "--sort", by)) == order


@pytest.mark.parametrize(
    ("words", "left"),
    [(["numpy"], "B"), (["bf16"], "C"), (["slower"], "C"), (["2023-11-15"], "D"), (["numpy", "slower"], "")],
)
def test_rows_without_a_word_are_left_out(folders, words, left):
    filters = [text for word in words for text in ("--filter", word)]
    assert "".join(one["label"] for one in rows(*folders, *filters)) == left
    assert ("No campaign has the words" in typed("compare", *folders, *filters).stdout) == (not left)


@pytest.mark.parametrize("width", ["80", "200"])
def test_the_table_fits_the_terminal_and_says_no_sentence_for_each(folders, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    said = typed("compare", *folders).stdout
    assert max(map(len, said.splitlines())) <= int(width)
    assert "takes" not in said and "c: precision bf16" in said
    assert said.splitlines()[0].endswith("campaign: what differs") == (width == "200")


def test_what_cannot_be_compared_is_a_row_with_its_reason_and_copies_are_named(folders, tmp_path):
    copy = shutil.copytree(folders[0], tmp_path / "copy")
    few = made(tmp_path / "few", day=9)
    for file in few.glob("result_[1-4].txt"):
        file.unlink()
    _, _, of_copy, of_few = rows(folders[0], folders[1], str(copy), str(few))
    assert (of_copy["verdict"], of_few["verdict"]) == ("not compared", "not compared")
    assert of_copy["same_logs"] == [{"label": "A", "logs": 5}]
    said = " ".join(typed("compare", folders[0], folders[1], str(copy), str(few)).stdout.split())
    assert "C has 5 log(s) that are identical with logs of A." in said
    assert "has 1 run(s) that count" in said
    sorted_rows = rows(folders[0], str(few), folders[1], str(bare(few, tmp_path / "none")), "--sort", "time")
    assert [one["label"] for one in sorted_rows] == ["C", "B", "A", "D"]
    with pytest.raises(RequestError, match="one is a copy of the other"):
        make_rows(["a", "copy", "again"], [judged(copy)] * 3)


def test_a_gate_of_many_is_one_sentence_and_the_table(folders):
    answer = typed("compare", *folders, "--fail-if-slower", "3")
    first = answer.stdout.splitlines()[0]
    assert answer.returncode == 1
    assert first.startswith("Slower than A by more than 3 %: C. Not slower: B.")
    assert answer.stdout.count(" is slower than A") == 0


def test_two_campaigns_are_sentences_that_begin_with_what_differs(folders):
    for words in ((), ("--fail-if-slower", "3%")):
        said = typed("compare", *folders[:2], *words).stdout
        assert said.startswith("A and B differ in numpy (2.0 and 2.1).\n")
        assert said.count("differ in") == 1


def test_the_page_has_the_same_rows_and_a_plot_that_marks_them(folders, tmp_path):
    page = tmp_path / "page.html"
    assert typed("compare", *folders, "--to", str(page)).returncode == 0
    text = page.read_text()
    table = text.partition('<table id="campaigns"')[2].partition("</table>")[0]
    assert re.findall(r"<tr><td>(\w)</td><td>(?:<[^>]*>)?(\w+)", table) == [
        ("A", "baseline"),
        ("B", "faster"),
        ("C", "slower"),
        ("D", "undecided"),
    ]
    assert "precision bf16" in table and 'data-name="ratios"' in text
    assert "4 folders" not in text
    typed("compare", *folders, "--baseline", "best", "--to", str(page))
    table = page.read_text().partition('<table id="campaigns"')[2].partition("</table>")[0]
    assert re.findall(r"<tr><td>(\w)</td><td>baseline", table) == ["B"]
    two = tmp_path / "two.html"
    typed("compare", *folders[:2], "--to", str(two))
    assert "A and B differ in numpy (2.0 and 2.1)." in two.read_text()
    assert '<table id="campaigns"' not in two.read_text()


@pytest.mark.parametrize("words", [("--sort", "time"), ("--filter", "x"), ("--baseline", "best")])
def test_options_of_a_table_are_refused_for_two(folders, words):
    answer = typed("compare", *folders[:2], *words)
    assert answer.returncode == 2
    assert "are for a table of three campaigns or more; 2 were given" in answer.stderr


def test_letters_go_on_behind_z():
    assert [label_of(at) for at in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


def test_what_differs_is_unknown_without_plan_and_system_file(recorded, tmp_path):
    bare = shutil.copytree(recorded / "a", tmp_path / "bare")
    (bare / "plan.json").unlink()
    (bare / "system.json").unlink()
    log_alone = judge_folder(bare, ruleset_name="mini-1.0", rcp_folders=[bare])
    assert find_differences(judged(recorded / "a"), log_alone) is None
    assert "is unknown" in difference(None, "A", "B")
    assert "differ in nothing" in difference([], "A", "B")


def test_a_program_differs_in_its_words_and_in_the_content_of_its_files(recorded, tmp_path):
    sides = []
    for side, (script, digest) in enumerate(
        (("train.py", "a" * 64), ("train.py", "b" * 64), ("other.py", "c" * 64))
    ):
        folder = shutil.copytree(recorded / "a", tmp_path / str(side))
        content = json.loads((folder / "plan.json").read_text())
        content["software"] = {"program": {"files": {script: digest}, "interpreter": "Python 3.11"}}
        content["shared"] = {"command": {"argv": [f"/venv{side}/bin/python", script], "cwd": "/"}}
        (folder / "plan.json").write_text(json.dumps(content))
        sides.append(judged(folder))
    of_file, of_command = (find_differences(sides[0], side) for side in sides[1:])
    assert [(one.name, one.b) for one in of_file] == [("content of train.py", "b" * 12)]
    assert [(one.name, one.b) for one in of_command] == [("command", "python other.py")]


def test_environment_variables_of_the_ranks_differ_by_name(recorded, tmp_path):
    sides = []
    for side, variables in enumerate(({"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2", "LD_AUDIT": "x"})):
        folder = shutil.copytree(recorded / "a", tmp_path / str(side))
        machine = json.loads((folder / "system.json").read_text())
        (folder / "system.json").write_text(json.dumps(machine | {"environment": variables}))
        sides.append(judged(folder))
    found = find_differences(*sides)
    assert [(one.kind, one.name, one.a, one.b) for one in found] == [
        ("options", "OMP_NUM_THREADS", "1", "2"),
        ("options", "LD_AUDIT", None, "x"),
    ]


def test_what_differs_survives_files_of_others(recorded, tmp_path):
    odd = shutil.copytree(recorded / "a", tmp_path / "odd")
    content = json.loads((odd / "plan.json").read_text())
    content |= {
        "software": ["x"],
        "request": 3,
        "shared": {"config": [1], "launcher_config": "x", "precision": "p" * 500},
    }
    (odd / "plan.json").write_text(json.dumps(content))
    (odd / "system.json").write_text(
        '{"memory_bytes": 1' + "0" * 400 + ', "environment": 1, "accelerators": [[1], {"x": 2}]}'
    )
    found = find_differences(judged(recorded / "a"), judged(odd))
    assert max(len(one.b or "") for one in found) == 60
