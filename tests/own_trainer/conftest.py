"""One run of the plain loop, for all who train as it does."""

import pytest

from tests.own_trainer import trained


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """The accuracies of a plain loop of torch."""
    folder = tmp_path_factory.mktemp("plain") / "out"
    trained.output("plain_loop.py", str(folder), "1")
    return trained.accuracies(folder)
