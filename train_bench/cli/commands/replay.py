"""Check what another campaign (a file of train-bench export) and this machine have in common, and do it again here."""

from __future__ import annotations

import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from train_bench.campaign import finish
from train_bench.campaign.failures import failed_runs
from train_bench.cli.arguments import Parser
from train_bench.cli.commands import run
from train_bench.cli.exit_codes import INVALID, VALID
from train_bench.compare.comparison import LEAST_RUNS, TooFewRuns, compare
from train_bench.core import files, software
from train_bench.core.escape import plain
from train_bench.core.plugins import PACKAGE
from train_bench.errors import Interrupted, LaunchError, RequestError
from train_bench.exchange import crate, replay
from train_bench.exchange.crate import Crate
from train_bench.exchange.export import ENVIRONMENT, RESULTS
from train_bench.plan.option import with_folder
from train_bench.plan.process import run_through
from train_bench.report import replay as report
from train_bench.report.console import make_console, print_line

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
VERSION = re.compile(r"[0-9][A-Za-z0-9!+_-]*(\.[A-Za-z0-9+_-]*[0-9][A-Za-z0-9+_-]*)*")
"""Version of a package: nothing that pip takes for an option, an address, or a file of the current folder (`1.zip`)."""

NOT_WHEELS = ("train-bench", "horovod", "deepspeed")
"""Packages that are not installed from an index: this program, which is the one that is installed here, and those that
are built on each machine."""

BINARY = ("--only-binary", ":all:", "--no-binary", "antlr4-python3-runtime")
"""Wheels; but for one package that Hydra needs and that has none, which every installation of train_bench builds."""


def main(arguments: Sequence[str]) -> int:
    """The command: its arguments to its exit code."""
    parser = Parser("train-bench replay", description=__doc__, allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE", help="file of train-bench export")
    parser.add_argument(
        "--to", type=Path, metavar="DIR", help="new folder for the campaign; --only-check needs none"
    )
    parser.add_argument(
        "--only-check", action="store_true", help="run nothing; exit code 1 if something matters"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="prepared data; by default the user's cache"
    )
    parser.add_argument(
        "--allowed-signers",
        type=Path,
        metavar="SIGNERS",
        help="refuse what none of them signed (ssh-keygen(1))",
    )
    parser.add_argument(
        "--environment",
        type=Path,
        metavar="VENV",
        help="make a new virtual environment of the file's packages with pip, wheels only, and go on in it",
    )
    options = parser.parse_args(arguments)
    read = crate.read(options.file, allowed_signers=options.allowed_signers)
    _tell_signer(read)
    if options.environment is not None:
        return _inside(read, options.environment, tuple(parser.unified(arguments)))
    if options.to is None and not options.only_check:
        raise RequestError("Say where the campaign goes with --to DIR, or --only-check.")
    folder = files.resolved(options.to or Path("replay"))
    going_on = None if options.only_check else replay.begun(read, folder, options.data_dir)
    campaign = going_on or replay.planned(read, folder, options.data_dir)
    rows = replay.table(read, campaign.plan)
    report.show([astuple(row) for row in rows], make_console())
    mattering = [row.what for row in rows if row.verdict == replay.MATTERS]
    print_line(make_console(), f"differs and matters: {', '.join(mattering) or 'nothing'}")
    if options.only_check:
        return INVALID if mattering else VALID
    if len(campaign.jobs) < LEAST_RUNS:
        raise RequestError(
            f"{options.file} is of {len(campaign.jobs)} run(s); a comparison needs at least {LEAST_RUNS}."
        )
    with tempfile.TemporaryDirectory() as scratch:
        read.unpack(RESULTS, Path(scratch))
        then = finish.judge_campaign(Path(scratch)).score
    if going_on is None:
        replay.begin(campaign)
    try:
        run.main([with_folder("resume", folder)])
    except Interrupted as error:
        raise Interrupted("Interrupted; finished runs stay. The same command again continues.") from error
    if failed_runs(campaign.jobs) or not all(job.result_file.is_file() for job in campaign.jobs):
        print("NOT repeated: a run failed.")
        return INVALID
    now = finish.judge_campaign(folder).score
    try:
        compared = compare("the file", then, "here", now)
    except TooFewRuns as error:
        print_line(make_console(), f"NOT repeated: {error}")
        return INVALID
    same_host = read.json(ENVIRONMENT).get("host") == platform.node()
    found = replay.outcome(rows, compared, same_host=same_host)
    print_line(make_console(), found.sentence)
    return VALID if found.again else INVALID


def _tell_signer(read: Crate) -> None:
    if read.trusted:
        signed = f"signed by {read.signed_by}"
    elif read.signed_by is not None:
        signed = f"signed with the key {read.signed_by}, which nobody has vouched for (--allowed-signers)"
    else:
        signed = "not signed"
    print(
        f"{read.path}: {len(read.content)} files as their manifest says, root {read.root[:12]}, {plain(signed)}."
    )


def _inside(read: Crate, folder: Path, arguments: Sequence[str]) -> int:
    """The same command in a new virtual environment of the packages that the file names. Only wheels are installed: a
    source distribution would run what somebody else names."""
    if folder.exists():
        raise RequestError(f"{folder} exists; choose another folder for the new environment.")
    wanted = []
    for name, (version, _) in replay.distributions(read).items():
        if not NAME.fullmatch(name) or not VERSION.fullmatch(version):
            raise RequestError(
                f"{read.path} is refused: {name!r} {version!r} is not a package name and version."
            )
        if name not in NOT_WHEELS:
            wanted.append(f"{name}=={version}")
    here = software.distributions()
    unknown = [one for one in wanted if one.partition("==")[0] not in here]
    if unknown and not read.trusted:
        raise RequestError(
            f"{read.path} names packages that train_bench does not stand on here ({', '.join(unknown)[:200]}); what is "
            f"installed can run whenever Python starts. Ask for a signature with --allowed-signers."
        )
    python = folder.resolve() / "bin" / "python"
    steps = (
        (sys.executable, "-m", "venv", str(folder)),
        (str(python), "-m", "pip", "install", "--quiet", "--no-deps", *BINARY, *wanted),
    )
    folder.mkdir(parents=True)
    (folder / "train_bench").symlink_to(PACKAGE)  # by itself, without what is installed beside it
    log = folder / "install.log"
    for step in steps:
        if run_through(step, log) != 0:
            raise LaunchError(f"{' '.join(step[:4])} failed; {log} says why.")
    rest = list(arguments)
    at = next(i for i, word in enumerate(rest) if word.partition("=")[0] == "--environment")
    del rest[at : at + (1 if "=" in rest[at] else 2)]
    words = (str(python), "-P", "-m", "train_bench", "replay", *rest)
    return run_through(words, None, env={"PYTHONPATH": str(folder.resolve())})
