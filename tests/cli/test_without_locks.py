"""Verbs on a file system that keeps no locks do their work, or end with the cause in one sentence."""

import errno
import fcntl

import pytest

from tests.command_line import typed


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("prepare", "benchmark=resnet_mini", "data_dir={to}/data"),
        ("startup", "--synthetic", "2MB", "--levels", "L4", "--rounds", "1", "--disk", "{to}"),
    ],
    ids=str,
)
def test_a_verb_without_locks_ends_with_the_cause_or_does_its_work(words, tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    ended = typed(*(word.format(to=tmp_path) for word in words))
    said = " ".join(ended.stderr.split())
    assert ended.returncode in (0, 1, 2) and "keeps no locks" in said
    assert "Traceback" not in said and "What is printed cannot be written" not in said
