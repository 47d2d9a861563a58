"""Excerpts of what programs print: the cause, and no half words."""

import pytest

from train_bench.core.excerpt import last_error, last_words, shorten, tail


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
    assert last_words(printed) == (line or printed.strip())


TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1\nValueError: bad batch\n"


@pytest.mark.parametrize(
    "report",
    [
        "",
        "cleaning up\n",
        "E1126 23:15 api.py:1002] failed (exitcode: 1) local_rank: 0 (pid: 19) of binary: python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\ntrain.py FAILED\n-----\n"
        "  exitcode  : 1 (pid: 1961)\n  error_file: <N/A>\n=====\n",
        "subprocess.CalledProcessError: Command '['python', 'x.py']' returned non-zero exit status 1.\n",
        "srun: error: n1: task 0: Exited with exit code 1\n",
        "-----\nmpirun noticed that process rank 0 exited with code 1, an error.\n-----\n",
    ],
)
def test_the_report_of_a_launcher_does_not_hide_the_error_of_its_process(report):
    assert last_error(TRACEBACK + report) == last_words(TRACEBACK + report) == "ValueError: bad batch"


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", ""),
        ("=====\n", ""),
        ("all is well\n=====\n", "all is well"),
        ("cp: no such file\nbye\n", "cp: no such file"),
    ],
)
def test_without_an_exception_a_line_with_words_is_quoted(printed, words):
    assert last_words(printed) == words


def test_a_sentence_of_train_bench_is_whole_and_other_errors_and_words_are_shortened():
    words = "word " * 20 + "end"
    for line, whole in ((f"train_bench.errors.LaunchError: {words}", True), (f"ValueError: {words}", False)):
        assert [found(line, 50) == line for found in (last_error, last_words)] == [whole, whole]
    assert last_words(words, 50) == shorten(words, 50)
