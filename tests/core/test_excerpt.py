"""Excerpts of what programs print: the cause, and no half words."""

import pytest

from train_bench.core.excerpt import last_error, last_line, shorten, tail


@pytest.mark.parametrize("length", range(12, 45))
def test_no_word_is_cut(length):
    text = "could not bind the address of the first host"
    for short in (shorten(text, length), tail(text, length)):
        assert len(short) <= length
        assert set(short.replace("...", "").split()) <= set(text.split())


def test_a_word_longer_than_the_excerpt_is_cut():
    assert shorten("x" * 50, 10) == "x" * 7 + "..."


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("KeyError: 'a'\ncleaning up\n", "KeyError: 'a'"),
        (
            "ssh: connect to host n2 port 22: Connection refused\nbye",
            "ssh: connect to host n2 port 22: Connection refused",
        ),
        ("all is well\n", None),
        ("", None),
    ],
)
def test_the_last_error_line_is_found_before_what_is_printed_after_it(printed, line):
    assert last_error(printed) == line
    assert last_line(printed) == (line or (printed.strip() or None))
