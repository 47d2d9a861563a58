"""The glossary on a terminal, which is the page of the documentation."""

import json

import pytest

from tests.command_line import typed
from train_bench.errors import UnknownName
from train_bench.report import glossary


def test_the_program_prints_every_row_of_the_page_without_its_markup():
    rows = glossary.read()
    page = glossary.PAGE.read_text(encoding="utf-8")
    assert len(rows) == sum(line.startswith("| ") for line in page.splitlines()) - page.count("| Word |")
    assert {row["section"] for row in rows} == {line[3:] for line in page.splitlines() if line[:3] == "## "}
    assert not [row for row in rows if "](" in row["meaning"] or "`" in row["word"] + row["meaning"]]


def test_a_word_is_found_by_its_parts_and_a_wrong_one_is_refused_with_the_nearest():
    printed = typed("glossary", "Olympic", "mean").stdout
    assert printed.startswith("Scores\n  olympic mean: mean of the times without the fastest")
    assert printed.count("\n") == 2
    (row,) = json.loads(typed("glossary", "goodput", "--json").stdout)["words"]
    assert row["section"] == "Runs"
    with pytest.raises(UnknownName, match="Did you mean 'undecided'"):
        glossary.matching(["undecidedd"])
