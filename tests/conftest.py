"""The session: an environment of its own, the order of tests, one failure per cause, and a summary that tells what was
skipped and what took long."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
from collections.abc import Iterator

import pytest

from tests import cases, needs, programs, sandbox

SANDBOX = sandbox.enter()
"""Entered before any other conftest.py imports what reads the environment."""

GUARD = programs.Guard(
    os.environ["PATH"], os.environ[programs.PATH], SANDBOX / f"programs_reached_{os.getpid()}"
)
GUARD.watch()  # before tests import the functions that it watches

pytest_plugins = ["tests.fake_campaigns"]

NUMBERS = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("train_bench")
    group.addoption(
        "--order-seed", type=int, help="shuffle test files, and the tests of each file, by this seed"
    )
    group.addoption(
        "--share",
        help="of all selected tests a share alone: 2/6 is the third of six, which together are all",
    )
    group.addoption(
        "--hold-durations",
        action="store_true",
        help=f"fail if a case without a marker takes more than {cases.LIMIT_SECONDS} s of processor time",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(cases.OneFailurePerCause())
    config.pluginmanager.register(needs.Declarations(GUARD))
    config.pluginmanager.register(cases.Durations(config))
    if not os.access(
        config.rootpath, os.W_OK
    ):  # nowhere to keep .pytest_cache, whose absence would be a warning
        for name in ("lfplugin", "nfplugin", "stepwiseplugin"):
            if config.pluginmanager.has_plugin(name):
                config.pluginmanager.unregister(name=name)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        sandbox.leave(SANDBOX)


@pytest.hookimpl(trylast=True)  # after -m and -k have left out what they do not select
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--share"):
        selected = list(items)
        items[:] = cases.share(selected, *cases.share_of(config.getoption("--share")))
        config.hook.pytest_deselected(items=list(set(selected) - set(items)))
    cases.order(items, config.rootpath / "tests", config.getoption("--order-seed"))


def pytest_collection_finish() -> None:
    """What is there before the first test stays until the last: cycles are not looked for in it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def work_folder() -> None:
    """Fixtures of modules and sessions work outside the checkout."""
    os.chdir(SANDBOX / "work")


@pytest.fixture(autouse=True)
def own_place(work_folder: None) -> Iterator[None]:
    """Each test has a home, caches and a working folder of its own, empty at first."""
    folder = SANDBOX / f"test_{os.getpid()}_{next(NUMBERS)}"
    (folder / "work").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "cache").mkdir()  # torch, for kernels compiled at run time, makes only folders below it
    with pytest.MonkeyPatch.context() as patch:
        for variable, place in sandbox.homes(folder).items():
            patch.setenv(variable, place)
        patch.delenv("COLUMNS", raising=False)  # of the terminal, if a package has set it
        patch.chdir(folder / "work")
        yield
    shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.getreports("skipped")
    if skipped:
        terminalreporter.section(f"{len(skipped)} skipped")
        for line in cases.skip_reasons(skipped):
            terminalreporter.line(line)
