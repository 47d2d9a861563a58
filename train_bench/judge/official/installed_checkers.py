"""Adapter to the checkers of the installed mlperf-logging package.

Only their printed verdict counts, never an exit code or a return value: some return the same for pass and fail.
They keep state between files, change the logging of the whole process, print, and write and delete `scaling.json` in
the folders they check; so they run in one process of their own, on links to the files in a temporary folder.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import multiprocessing
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PASS, FAIL, CRASH = "pass", "fail", "crash"
USAGES = ("training", "hpc")
CLEAN_PACKAGE = "PACKAGE CHECKER FOUND NO ERRORS"
CLEAN_REPOSITORY = "ALL CHECKS PASSED"
SKIPPED = "Skipping benchmark:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """`pass`, `fail`, or `crash` where the checker raised an exception; `message` is its reason."""

    verdict: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RcpOpinion(Opinion):
    """`factor` multiplies the score; None where the checker gave no finite number."""

    factor: float | None


def compliance(file: Path, ruleset: str, usage: str = USAGES[0]) -> Opinion:
    """Run the compliance checker on one log. `ruleset` is an official version such as `1.1.0`, of the training rounds
    or of the HPC rounds (`usage`)."""
    return _opinion(_ask(_compliance, file.resolve(), ruleset, usage))


def rcp(
    folder: Path,
    ruleset: str,
    usage: str = USAGES[0],
    *,
    bert_train_samples: bool = False,
    bypass: bool = False,
) -> RcpOpinion:
    """Run the RCP checker on one folder of `result_*.txt`, with the pruned points. `bert_train_samples`: a bert log
    counts its progress in `train_samples`; `bypass`: the package checker's `rcp-bypass`."""
    verdict, message, factor = _ask(_rcp, folder.resolve(), ruleset, usage, bert_train_samples, bypass)
    return RcpOpinion(verdict=verdict, message=message, factor=factor)


def seeds(folder: Path, ruleset: str) -> Opinion:
    """Run the seed checker on one folder of `result_*.txt`."""
    return _opinion(_ask(_seeds, folder.resolve(), ruleset))


def package(
    folder: Path, ruleset: str, usage: str = USAGES[0], *, bert_train_samples: bool = False
) -> Opinion:
    """Run the package checker on one submitter's folder (`systems/`, `results/`, `benchmarks/`). It skips benchmarks
    with unknown names; the message then names them."""
    return _opinion(_ask(_package, folder.resolve(), ruleset, usage, bert_train_samples))


def system_description(file: Path, ruleset: str) -> Opinion:
    """Run the system description checker on one `systems/<system>.json`."""
    return _opinion(_ask(_system_description, file.resolve(), ruleset))


def repository(folder: Path, ruleset: str) -> Opinion:
    """Run the repository checker on the names, sizes and links below a folder."""
    return _opinion(_ask(_repository, folder.resolve(), ruleset))


Answer = tuple[str, str, float | None]


def _opinion(answer: Answer) -> Opinion:
    verdict, message, _ = answer
    return Opinion(verdict=verdict, message=message)


def _ask(checker: Callable[..., Answer], *arguments: Any) -> Answer:
    """Verdict of one checker, from the other process."""
    try:
        return _process().submit(_guarded, checker, arguments).result()
    except BrokenProcessPool:
        _process.cache_clear()
        return CRASH, "the checker's process was killed", None


@cache
def _process() -> ProcessPoolExecutor:
    """Process of the checkers: spawned rather than forked, so that it inherits neither handlers nor threads; kept,
    because scipy takes longer to import than any check takes."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_start_process)


def _start_process() -> None:
    """Process initializer: end with the parent, however that ends, and ignore keyboard interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _guarded(checker: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer:
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return checker(*arguments)
        except SystemExit:
            return CRASH, (heard.getvalue().strip().splitlines() or ["it ended without a message"])[-1], None
        except Exception as error:
            return CRASH, f"{type(error).__name__}: {' '.join(str(error).split())}", None


class _Said(logging.Handler):
    """Handler that records a checker's log messages."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = "; ".join(record.getMessage().split("\n")).strip()
        self.all.append(text)
        if record.levelno >= logging.ERROR:
            self.errors.append(text)


@contextlib.contextmanager
def _listening() -> Iterator[_Said]:
    said = _Said()
    root = logging.getLogger()
    root.handlers = [said]
    root.setLevel(logging.INFO)
    try:
        yield said
    finally:
        root.handlers = [logging.NullHandler()]


@contextlib.contextmanager
def _links_to(folder: Path) -> Iterator[Path]:
    """Folder of the same name and shape whose files are links, without the `scaling.json` that checkers replace."""
    with tempfile.TemporaryDirectory(prefix="train_bench_") as parent:
        copy = Path(parent, folder.name)
        _link(folder, copy)
        yield copy


def _link(folder: Path, copy: Path) -> None:
    """Link a folder, recursively. shutil.copytree would copy the permissions of read-only folders."""
    copy.mkdir()
    for path in folder.iterdir():
        if path.is_dir():
            _link(path, copy / path.name)
        elif path.name != "scaling.json":
            (copy / path.name).symlink_to(path)


def _results(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.glob("result_*.txt"))


def _compliance(file: Path, ruleset: str, usage: str) -> Answer:
    from mlperf_logging.compliance_checker import mlp_compliance

    mlp_compliance.enqueued_configs.clear()
    checker = mlp_compliance.make_checker(usage, ruleset, quiet=False, werror=False)
    with _listening():
        accepted, *_ = mlp_compliance.main(str(file), f"{usage}_{ruleset}/common.yaml", checker)
    if accepted:
        return PASS, "", None
    errors = [*checker.overwritable.values(), *checker.not_overwritable]
    first = errors[0].partition("\ncurrent context")[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return FAIL, first + more, None


def _rcp(folder: Path, ruleset: str, usage: str, bert_train_samples: bool, bypass: bool) -> Answer:
    from mlperf_logging.rcp_checker import rcp_checker

    # Without set_scaling it would delete a scaling.json in the root of the file system.
    with _listening(), _links_to(folder) as links:
        passed, message, factor = rcp_checker.check_directory(
            str(links),
            usage,
            ruleset,
            False,
            bert_train_samples,
            rcp_pass="pruned_rcps",
            rcp_bypass=bypass,
            set_scaling=True,
        )
    return PASS if passed else FAIL, message, float(factor) if math.isfinite(factor) else None


def _seeds(folder: Path, ruleset: str) -> Answer:
    from mlperf_logging.package_checker.seed_checker import SeedChecker

    with _listening() as said:
        good = SeedChecker(ruleset).check_seeds(_results(folder))
    return PASS if good else FAIL, "; ".join(said.errors), None


def _package(folder: Path, ruleset: str, usage: str, bert_train_samples: bool) -> Answer:
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.package_checker import package_checker

    mlp_compliance.enqueued_configs.clear()
    with _listening() as said, _links_to(folder) as links:
        package_checker.check_training_package(
            str(links), usage, ruleset, False, False, False, bert_train_samples, False, ""
        )
        errors = [text.replace(str(links), str(folder)) for text in said.errors]
    skipped = [text for text in said.all if text.startswith(SKIPPED)]
    clean = any(text.startswith(CLEAN_PACKAGE) for text in said.all)
    return PASS if clean else FAIL, "; ".join([*errors, *skipped]), None


def _system_description(file: Path, ruleset: str) -> Answer:
    from mlperf_logging.system_desc_checker import system_desc_checker

    with _listening() as said:
        valid, *_ = system_desc_checker.check_system_desc(str(file), USAGES[0], ruleset)
    return PASS if valid else FAIL, "; ".join(said.errors), None


def _repository(folder: Path, ruleset: str) -> Answer:
    from mlperf_logging.repo_checker import repo_checker

    repo_checker.get_parser().parse_args([str(folder), USAGES[0], ruleset])
    with _listening() as said:
        repo_checker.run_checks(str(folder))
    clean = any(text.startswith(CLEAN_REPOSITORY) for text in said.all)
    return PASS if clean else FAIL, "; ".join(said.errors), None
