"""Sentences that users get, as a native engineer would write them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

COMPARED = "better|earlier than|greater|larger|later|less|longer|lower|more|shorter|slower|smaller|worse"
BANNED = {
    rf"(?<![Tt]here )\b(is|are|was|were|be) no (?!({COMPARED})\b)": "X is not a Y, or X is not a valid Y",
    r"\b(is|are|be) none\b(?<![Tt]here is none)(?<![Tt]here are none)": "X is not a Y, or X is invalid",
    r"\bcan be no\b": "X is not a valid Y",
    r"\bof others\b(?! and do not count)": "third-party, or of other runs",
    r"\b[Ll]eav(e|es|ing) ([^.;]* )?away\b": "leave out",
    r"\banew\b": "again, or regenerated",
    r"\bown affair\b": "not checked",
    r"\bmade another\b": "as a starting point",
    r"\bwithout this check\b": "skips the check",
    r"\bgive or take\b": "+-",
    r"\.\.\.%(?=[ ,;)]|\.?$|\. )": "a space before %",
    r"\blook-alikes?\b": "synthetic",
}
"""Constructions that a reader has to translate, and what to write."""

ANY = re.compile("|".join(BANNED))

VERB = re.compile(r"train_bench/cli/commands/\w+\.py")
OPTIONS = re.compile(r"(references|launchers)/.*\.py|train_bench/(task|launcher)\.py")
"""Files whose docstrings are printed: of the module, as the description of a verb; of its classes, which have the
sentences of options."""

TABLE = "CREATE TABLE"
"""Begins a definition whose comments are part of stores that exist."""

EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|<!--.*?-->", re.DOTALL)


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each literal but docstrings; an f-string is one text, with `...` for a value, and `...%` for one
    that is formatted as a percentage."""
    nodes = list(ast.walk(tree))
    apart = {id(one.value) for one in nodes if isinstance(one, ast.Expr)}
    apart |= {id(one) for node in nodes if isinstance(node, ast.JoinedStr) for one in node.values}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(map(_text, node.values))


def _text(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    spec = part.format_spec.values if isinstance(part.format_spec, ast.JoinedStr) else []
    return "...%" if spec and str(getattr(spec[-1], "value", "")).endswith("%") else "..."


def printed_docstrings(file: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of docstrings that `--help` prints."""
    classes = [one for one in tree.body if isinstance(one, ast.ClassDef)]
    for node in [tree] * bool(VERB.fullmatch(file)) + classes * bool(OPTIONS.fullmatch(file)):
        if about := ast.get_docstring(node):
            yield node.body[0].lineno, about


def banned(text: str) -> list[str]:
    """What to write in place of the banned constructions of a text."""
    words = " ".join(text.split())
    if not ANY.search(words):
        return []
    return [instead for pattern, instead in BANNED.items() if re.search(pattern, words)]


def sources(ending: str) -> list[Path]:
    """Files of the code that users meet."""
    return sorted(
        path
        for folder in ("train_bench", "launchers", "references")
        for path in (ROOT / folder).rglob(f"*{ending}")
    )


def test_messages_need_no_translation():
    found = []
    for path in sources(".py"):
        file, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text())
        for line, text in (*messages(tree), *printed_docstrings(file, tree)):
            if not text.startswith(TABLE) and (instead := banned(text)):
                found.append(f"{file}:{line}: {text!r}: write {'; '.join(instead)}")
    assert not found, "\n".join(found)


def test_pages_need_no_translation():
    found = [
        f"{path.relative_to(ROOT)}: write {'; '.join(instead)}"
        for path in sources(".html")
        if (instead := banned(EXPRESSION.sub("...", path.read_text())))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "'n1!' is no node; give NAME",
        "scores are no numbers",
        "and --multirun is none; leave it out",
        "'\\0' can be no path",
        "logs of others",
        "Leave one of the two away.",
        "add that, or leave it away",
        "the table, made\nanew",
        "energy options that are none",
        "its own affair",
        "to be made another one",
        "md5=null goes without this check",
    ],
)
def test_a_sentence_of_the_dialect_is_found(text):
    assert banned(text)
    assert [banned(one) for _, one in messages(ast.parse(f"fail(f{text + ' {value}'!r})")) if banned(one)]


@pytest.mark.parametrize(
    "text",
    [
        "There is no benchmark 'x'.",
        "there are no weights of it",
        "a home folder, and there is none",
        "the rate is no longer than",
        "2 log(s) of A are copies of others and do not count.",
        "leave it out",
        "move it away",
    ],
)
def test_plain_sentences_pass(text):
    assert not banned(text)


@pytest.mark.parametrize("value", ["{share:.1%}", "{share:.0f}%", "({share:+.2%} less)"])
def test_percentages_are_printed_alike(value):
    found = [text for _, text in messages(ast.parse(f"say(f'{value}')")) if banned(text)]
    assert len(found) == 1
    assert not any(banned(text) for _, text in messages(ast.parse("say(f'{100 * share:.1f} %')")))


@pytest.mark.parametrize(
    ("file", "lines"),
    [
        ("train_bench/cli/commands/new.py", [1]),
        ("references/resnet/config.py", [4]),
        ("train_bench/task.py", [4]),
        ("train_bench/core/files.py", []),
    ],
)
def test_docstrings_count_where_they_are_printed(file, lines):
    tree = ast.parse('"""A folder, made anew."""\n\nclass Config:\n    """data  files of others"""\n')
    assert not list(messages(tree))
    assert [line for line, text in printed_docstrings(file, tree) if banned(text)] == lines
