"""`--to` replaces earlier answers, and no other file."""

import pytest

from tests.command_line import typed
from train_bench.cli.replaced_file import refuse_foreign
from train_bench.errors import RequestError

PAGE = "<!doctype html>\n<title>One – train_bench</title>"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("new.html", None),
        ("empty.html", ""),
        ("page.html", PAGE),
        ("page", PAGE),
        ("answer.json", '\n{"a": 1}'),
        ("published.csv", "round,submitter\n"),
    ],
)
def test_an_earlier_answer_is_replaced(tmp_path, name, text):
    if text is not None:
        (tmp_path / name).write_text(text)
    refuse_foreign(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("index.html", "<!doctype html><title>Me</title>"),
        ("index.html", '{"a": 1}'),
        ("thesis.txt", "mine"),
        ("train.py", "import torch"),
        ("data.csv", "a,b\n1,2\n"),
        ("result_0.txt", ":::MLLOG {}"),
    ],
)
def test_a_file_of_others_is_not(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(RequestError, match=rf"--to is '.*{name}', which exists and is not an earlier output"):
        refuse_foreign(tmp_path / name)


def test_a_file_of_a_campaign_is_not_but_its_page_is(tmp_path):
    for name in ("plan.json", "score.json"):
        (tmp_path / name).write_text("{}")
        with pytest.raises(RequestError, match="is not an earlier output"):
            refuse_foreign(tmp_path / name)
    (tmp_path / "report.html").write_text(PAGE)
    refuse_foreign(tmp_path / "report.html")


def test_a_link_and_a_pipe_are_not(tmp_path):
    (tmp_path / "page.html").symlink_to(tmp_path / "nowhere")
    with pytest.raises(RequestError, match="is not an earlier output"):
        refuse_foreign(tmp_path / "page.html")


@pytest.mark.parametrize(
    "words",
    [
        ("report", ".", "--to"),
        ("review", ".", "--to"),
        ("compare", ".", ".", "--to"),
        ("history", "--to"),
        ("index", "published", ".", "--to"),
        ("plan", "benchmark=resnet_mini", "--to"),
        ("verify", ".", "--to"),
        ("settle", ".", "--to"),
        ("profile", "benchmark=resnet_mini", "--to"),
        ("equivalent", "benchmark=resnet_mini", "benchmark=resnet_mini", "--to"),
        ("export", ".", "--to"),
        ("package", ".", "--to"),
    ],
)
def test_every_verb_with_to_leaves_a_file_of_others(words, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text("// mine")
    assert typed(*words, str(file)).returncode == 2
    assert file.read_text() == "// mine"


def test_accept_leaves_the_json_beside_its_page(tmp_path):
    (tmp_path / "config.json").write_text("// mine")
    words = ("benchmark=resnet_mini", "n1", "--by", "cat {node}", "--to", str(tmp_path / "config.html"))
    said = typed("accept", *words)
    assert said.returncode == 2
    assert "config.json', which exists and is not an earlier output" in " ".join(said.stderr.split())
