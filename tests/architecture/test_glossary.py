"""Every word that tables and pages of results print is in the glossary."""

import ast
import re

import pytest

from tests.sandbox import ROOT
from train_bench.judge.state import STATES
from train_bench.report import comparison, referee, results_table
from train_bench.rules import bounds, stated

REPORT = ROOT / "train_bench" / "report"
TABLES = (
    "comparison",
    "forecast",
    "history",
    "listing",
    "referee",
    "results_table",
    "review",
    "rules",
    "score_table",
    "sweep",
)
PAGES = ("history.js", "list.html", "page.html", "review.html")
SENTENCES = {
    "contest": ("challenge", "frontier", "error budget", "ledger", "record"),
    "gate": ("confidence bound", "level", "pairs", "undecided"),
    "score_table": ("failures", "goodput", "lost work"),
}
"""Words of the field in sentences below tables, by the module that prints them."""

SAMPLES = {"prompt", "model"}
"""Columns of drawn samples, which the benchmark describes."""


def glossary():
    """Words of the first columns, in lower case."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    first = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    also = re.findall(r"Also `(\w+)`", text)
    words = {word.strip(" `").lower() for cell in first for word in cell.split(", ")}
    return words | set(also)


def headings_of(name):
    """Texts that a module of tables gives to its columns."""
    found = set()
    for node in ast.walk(ast.parse((REPORT / f"{name}.py").read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_column":
            found |= {one.value for one in node.args[:1] if isinstance(one, ast.Constant)}
        if (
            isinstance(node, ast.For)
            and isinstance(node.iter, ast.Tuple)
            and "heading" in ast.unparse(node.target)
        ):
            found |= {one.value for one in node.iter.elts if isinstance(one, ast.Constant)}
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("headings", "rows"):
            rows = [one for one in ast.walk(node.value) if isinstance(one, ast.Tuple | ast.List)]
            found |= {one.value for row in rows[-1:] for one in row.elts if isinstance(one, ast.Constant)}
    return found


def headings_of_page(name):
    """Texts that a template or a script gives to columns and terms."""
    text = (REPORT / "page" / name).read_text()
    lists = re.findall(r"(?:head\(|set heads = |heads \+ |\+ )\(?\[(.*?)\]", text)
    lists += re.findall(r'table\(\s*"\w+",\s*\[(.*?)\]', text, re.DOTALL) + re.findall(
        r"heads = \[(.*?)\]", text
    )
    quoted = {word for one in lists for word in re.findall(r'"([^"]+)"', one)}
    terms = re.findall(r'call term\("([^"]+)"\)', text)
    return quoted | {*terms} | {*re.findall(r'<th scope="col">([^<{]+)', text)}


def word_of(heading):
    """A heading without its unit."""
    return re.sub(r",.*| \(of logs\)|=$", "", heading).strip().lower()


@pytest.mark.parametrize("name", TABLES)
def test_columns_of_tables_are_in_the_glossary(name):
    headings = headings_of(name) - {"", "-"}
    assert headings or name in ("results_table", "score_table")
    assert {word_of(one) for one in headings} - {""} <= glossary()


@pytest.mark.parametrize("name", PAGES)
def test_columns_of_pages_are_in_the_glossary(name):
    headings = headings_of_page(name)
    assert len(headings) > 4
    assert {word_of(one) for one in headings} - SAMPLES - {"", "none"} <= glossary()


@pytest.mark.parametrize("name", SENTENCES)
def test_words_of_sentences_are_in_the_glossary(name):
    text = (REPORT / f"{name}.py").read_text().lower()
    assert [word for word in SENTENCES[name] if word not in text] == []
    assert {*SENTENCES[name]} <= glossary()


def test_columns_states_and_words_of_rules_are_in_the_glossary():
    words = {
        *results_table.HEADINGS,
        *results_table.ON_A_TERMINAL.values(),
        *comparison.HEADINGS,
        *STATES,
        *referee.HEADINGS,
    }
    words |= {*bounds.WORDS, *stated.FACTS, *stated.OPTIONAL_FACTS}
    named = {word_of(word).removesuffix("_verdict") for word in words} - {""}
    assert named <= glossary() | {"official_verdict"}
