"""Verbs that read finished campaigns answer damaged ones by a sentence, whichever file is damaged and however."""

import re
import shutil

import pytest

from tests.command_line import typed
from tests.selection import others_in_full
from train_bench.core import files

SYSTEM = {"platform": "a machine", "packages": {"torch": "2.0"}, "accelerators": []}
HUGE = "9" * 400
KINDS = ["missing", "empty", "binary", "folder", "cut", "huge", "nan", "list", "texts", "deep"]
VERBS = ["package", "join", "export", "equivalent", "index"]


def damage(path, kind):
    content = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(damaged(content, kind))


def damaged(content, kind):
    if kind == "huge":
        return re.sub(rb"(?<=[:\[,] )-?\d+(\.\d+)?", HUGE.encode(), content)
    if kind == "nan":
        return re.sub(rb"(?<=[:\[,] )-?\d+(\.\d+)?", b"NaN", content)
    if kind == "texts":
        return re.sub(rb"(?<=[:\[,] )-?\d+(\.\d+)?", b'"x"', content)
    return {
        "empty": b"",
        "binary": bytes(range(256)) * 20,
        "cut": content[: len(content) // 2],
        "list": b"[1]",
        "deep": b"[" * 100_000 + b"]" * 100_000,
    }[kind]


def words(verb, folder, other, to):
    return {
        "package": ["package", str(folder), "--to", str(to / "tree"), "--force"],
        "join": ["join", str(folder), "launcher.node_rank=1"],
        "export": ["export", str(folder), "--to", str(to / "campaign.zip")],
        "equivalent": ["equivalent", str(folder), str(other)],
        "index": ["index", str(folder), "--store", str(to / "store.sqlite")],
    }[verb]


CASES = [(verb, kind) for verb in VERBS for kind in KINDS if (verb, kind) != ("join", "missing")]  # it waits


@pytest.mark.parametrize(("verb", "kind"), others_in_full(CASES, [("join", "folder")]))
def test_a_damaged_campaign_is_answered_by_a_sentence(verb, kind, whole, tmp_path):
    folder = whole.jobs[0].folder
    files.write_json(folder / "system.json", SYSTEM)
    names = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file()
        and (verb != "join" or path.name == "plan.json")
        and not re.search(r"[02-9]|std|lock", path.name)
    )
    wrong = []
    for number, name in enumerate(names):
        copy, to = shutil.copytree(folder, tmp_path / f"copy_{number}"), tmp_path / f"to_{number}"
        to.mkdir()
        damage(copy / name, kind)
        answer = typed(*words(verb, copy, folder, to))
        if answer.returncode not in (0, 1, 2, 3) or "Traceback" in answer.stderr:
            wrong.append((name, answer.stderr))
        shutil.rmtree(copy)
    assert names and not wrong
