"""Submission package: finished campaigns -> the directory tree of mlperf-logging's package checker.

    DIR/<submitter>/systems/<system>.json
    DIR/<submitter>/results/<system>/<benchmark>/result_*.txt
    DIR/<submitter>/benchmarks/<benchmark>/implementations/<system>/...

One package is of one submitter, division, round and system. It is built next to DIR and renamed once it is complete.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench.core import files
from train_bench.core.job import jobs_of
from train_bench.core.plugins import PACKAGE, references
from train_bench.core.progress_bar import bar
from train_bench.core.secret_filter import redacted_tree, secrets_in_file
from train_bench.core.software import digest_of_reference
from train_bench.errors import LogError, RequestError, WriteError
from train_bench.judge.checks.campaign_checks import attempts_at
from train_bench.judge.checks.unverifiable import ran_as
from train_bench.judge.entry import Judgement
from train_bench.judge.official import installed_checkers
from train_bench.judge.official.installed_checkers import Opinion
from train_bench.judge.rcp import CRASH
from train_bench.judge.tree import judge_folder
from train_bench.plan import discover
from train_bench.plan.command import digest_of_file
from train_bench.plan.definition import changes
from train_bench.rules.allowed import STATUS
from train_bench.submission.description import FIELDS, describe_campaign

# Log keys that all campaigns of a package share.
SHARED = ("submission_org", "submission_division", "submission_status", "submission_platform")

# Prefix of the message of a known defect: the repository checker knows no round before 2.0.
KNOWN_DEFECT = "mlperf_logging.repo_checker: error: argument ruleset: invalid choice: '1."

# Options that name folders of the machine that the campaigns ran on.
OF_THIS_MACHINE = ("output", "resume", "data_dir", "source", "folder", "cwd", "environment")

BESIDE = ("pyproject.toml", "constraints.txt", "LICENSE")
SUFFIXES = (".py", ".yaml", ".md", ".toml", ".txt", ".json", ".sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source tree of the campaigns: its revision and the current digest of its code."""

    root: Path
    revision: str | None
    differing: tuple[str, ...] = ()
    digest: str

    @property
    def described(self) -> str:
        """The revision, and the first files that differ from it."""
        shown = (*self.differing[:5], *(["..."] if len(self.differing) > 5 else []))
        of = f" (differing: {', '.join(shown)})" if shown else ""
        return f"{self.revision}{of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A finished campaign, read. `described` holds the values of its plan and system.json for the system description;
    `config` is the configuration of the first run."""

    folder: Path
    plan: Mapping[str, Any]
    reference: str
    variant: str
    launcher: str
    revision: str | None
    config: Mapping[str, Any]
    described: Mapping[str, str]
    judgement: Judgement

    @property
    def benchmark(self) -> str:
        """Benchmark name in the logs."""
        return self.judgement.score.benchmark

    @property
    def attempts(self) -> tuple[Mapping[str, Any], ...]:
        """All attempts at the packaged runs, run by run."""
        counted = [run.index for run in self.judgement.score.runs if run.counted]
        return tuple(attempt for index in counted for attempt in attempts_at(self.judgement.location, index))

    def announced(self, key: str) -> tuple[str, ...]:
        """Distinct values of a `submission_*` key in the logs."""
        return tuple(sorted({record.announced.get(key, "") for record in self.judgement.records}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Verdict of one checker on the package. `refused` decides the exit code."""

    checker: str
    verdict: str
    message: str
    refused: bool


def read_campaign(folder: Path, rcp_folders: Sequence[Path]) -> Campaign:
    """Read a finished campaign. Raises `RequestError` if there is none, `LogError` if it cannot be read."""
    for name in ("plan.json", "system.json"):
        if not (folder / name).is_file():
            raise RequestError(f"{folder} is not a finished campaign (no {name}); give the folder of one.")
    plan, machine = files.read_json(folder / "plan.json"), files.read_json(folder / "system.json")
    judgement = judge_folder(folder, ruleset_name=None, rcp_folders=rcp_folders, changes=changes)
    try:
        return Campaign(
            folder=folder,
            plan=plan,
            reference=str(plan["reference"]),
            variant=str(plan["variant"]),
            launcher=str(plan["launcher"]),
            revision=plan["revision"],
            config=jobs_of(plan)[0]["config"],
            described=describe_campaign(plan, machine, ran_as(judgement.programs, "hosts")),
            judgement=judgement,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise LogError(
            f"plan.json or system.json in {folder} is not of this version of train_bench: {error!r}."
        ) from error


def package(
    campaigns: Sequence[Campaign],
    to: Path,
    *,
    system: str | None,
    stated: Mapping[str, str],
    source: Source,
    force: bool,
) -> Path:
    """Write the tree below `to`; returns the submitter's folder. `system` names the system, by default after
    the platform that the logs announce.

    Raises `RequestError` with every reason why this is no submission. `force` overrides those about the results, not
    those without which no unique tree exists; the overridden reasons are written next to the source, for every judge of
    the package.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise RequestError(f"{to} is not an empty folder; choose another with --to DIR.")
    _refuse(list(_contradictions(campaigns, stated, source)), "")
    overruled = {campaign.folder: list(_shortcomings(campaign, source)) for campaign in campaigns}
    if not force:
        reasons = [f"{folder}: {reason}" for folder, each in overruled.items() for reason in each]
        _refuse(reasons, " --force packages them nevertheless.")
    name = _plain(system or campaigns[0].announced("submission_platform")[0])
    submitter = _plain(campaigns[0].announced("submission_org")[0])
    to = to.absolute()
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}_") as beside:
            tree = Path(beside, "tree")
            folder = tree / submitter
            description = describe(campaigns[0], name, stated)
            files.write_json(folder / "systems" / f"{name}.json", description)
            for campaign in bar(campaigns, "packaging"):
                _write(folder, campaign, name, source, overruled[campaign.folder])
            tree.replace(to)
    except OSError as error:
        raise WriteError(f"{to} cannot be written: {error.strerror or error}.") from error
    return to / submitter


def _write(folder: Path, campaign: Campaign, name: str, source: Source, overruled: Sequence[str]) -> None:
    results = folder / "results" / name / campaign.benchmark
    results.mkdir(parents=True)
    for run in campaign.judgement.score.runs:
        if run.counted:  # of more declared runs than the round takes, the median window is submitted
            shutil.copyfile(campaign.folder / run.file, results / run.file)
    implementation = folder / "benchmarks" / campaign.benchmark / "implementations" / name
    _write_source(implementation, campaign, source, overruled)


def describe(campaign: Campaign, name: str, stated: Mapping[str, str]) -> dict[str, str]:
    """System description: values that the user states, else detected ones, else empty."""
    status = campaign.announced("submission_status")[0]
    derived = {
        **campaign.described,
        "submitter": campaign.announced("submission_org")[0],
        "division": campaign.announced("submission_division")[0],
        "status": STATUS.get(status, status),
        "system_name": name,
    }
    return {field: stated.get(field, derived.get(field, "")) for field in FIELDS}


def empty_fields(folder: Path) -> dict[str, list[str]]:
    """Fields without a text in the system descriptions of a package, by file."""
    read = {str(file): files.read_json(file) for file in sorted(folder.glob("systems/*.json"))}
    empty = {file: [field for field, text in stated.items() if text == ""] for file, stated in read.items()}
    return {file: fields for file, fields in empty.items() if fields}


def opinions(folder: Path, rounds: str, rcp_folders: Sequence[Path]) -> Iterator[Said]:
    """Verdicts of our judge and the official checkers on a submitter's folder, one after the other."""
    counted, defects = set(), {KNOWN_DEFECT}
    for results in sorted(folder.glob("results/*/*")):
        judgement = judge_folder(results, ruleset_name=rounds, rcp_folders=rcp_folders, changes=changes)
        counted |= {record.counted for record in judgement.records}
        score = judgement.score
        if (
            score.official_verdict.rcp.verdict == CRASH
        ):  # the RCP checker has no run count for some benchmarks
            defects.add(f"KeyError: {score.benchmark!r}")
        yield Said(
            checker=f"train_bench on {results.name}",
            verdict=installed_checkers.PASS if score.valid else installed_checkers.FAIL,
            message="; ".join(reason.rstrip(".") for reason in score.reasons),
            refused=not score.valid,
        )
    family, _, number = rounds.partition("-")
    if family != installed_checkers.USAGES[0]:
        yield Said(
            checker="mlperf-logging",
            verdict="not run",
            message=f"{rounds} is not an official training round, so the official checkers are not run",
            refused=False,
        )
        return
    package = installed_checkers.package(folder, number, bert_train_samples="train_samples" in counted)
    yield _said("package checker", package, defects)
    for file in sorted(folder.glob("systems/*.json")):
        description = installed_checkers.system_description(file, number)
        yield _said(f"system description checker on {file.name}", description, defects)
    yield _said("repository checker", installed_checkers.repository(folder, number), defects)


def _said(checker: str, opinion: Opinion, defects: Collection[str]) -> Said:
    """A crash of a checker by a known defect refuses nothing; its message is printed anyway."""
    return Said(
        checker=checker,
        verdict=opinion.verdict,
        message=opinion.message,
        refused=opinion.verdict != installed_checkers.PASS and not opinion.message.startswith(tuple(defects)),
    )


def _contradictions(
    campaigns: Sequence[Campaign], stated: Mapping[str, str], source: Source
) -> Iterator[str]:
    for key in SHARED:
        values = sorted({value for campaign in campaigns for value in campaign.announced(key)})
        if len(values) > 1 or not values[0]:
            yield f"{key} is {' and '.join(repr(value) for value in values)}; a package has one"
    rounds = sorted({str(campaign.plan["ruleset"]) for campaign in campaigns})
    if len(rounds) > 1:
        yield f"the rulesets are {' and '.join(rounds)}; a package has one"
    benchmarks = [campaign.benchmark for campaign in campaigns]
    for benchmark in sorted({name for name in benchmarks if benchmarks.count(name) > 1}):
        yield (
            f"{benchmarks.count(benchmark)} campaigns are of {benchmark}; a system has one result per "
            "benchmark"
        )
    for campaign in campaigns:
        if campaign.reference not in references():
            yield f"{campaign.folder}: its reference {campaign.reference!r} is not installed here"
        yield from _secrets(campaign)
    for field, key in (("submitter", "submission_org"), ("division", "submission_division")):
        logged = campaigns[0].announced(key)[0]
        if stated.get(field, logged) != logged:
            yield f"{field} is stated as {stated[field]!r}, but the logs have {logged!r}"
    yield from _other_nodes(campaigns, stated.get("number_of_nodes"))


def _secrets(campaign: Campaign) -> Iterator[str]:
    """Logs and files of the program that hold a secret, which a package would publish."""
    logs = [campaign.folder / run.file for run in campaign.judgement.score.runs if run.counted]
    for path in (*logs, *_program(campaign.plan)[0].values()):
        if path.is_file() and (found := secrets_in_file(path.name, path.read_bytes())):
            yield f"{path} holds what looks like a secret ({', '.join(found[:5])}); take it out"


def _other_nodes(campaigns: Sequence[Campaign], stated: str | None) -> Iterator[str]:
    """Numbers of hosts that cannot all be the system's: of the runs of a campaign, of campaigns, and the stated one."""
    ran: dict[str, str] = {}
    for campaign in campaigns:
        planned, described = str(jobs_of(campaign.plan)[0]["nodes"]), campaign.described["number_of_nodes"]
        hosts = sorted({str(one.hosts or planned) for one in campaign.judgement.programs})
        if len(hosts) > 1:
            yield f"{campaign.folder}: its runs had {' and '.join(hosts)} hosts; a system has one number"
        elif stated not in (None, planned, described):
            yield f"number_of_nodes is stated as {stated!r}, but {campaign.folder} ran on {described}"
        ran.setdefault(described, str(campaign.folder))
    if len(ran) > 1 and stated is None:
        of_each = " and ".join(f"{nodes} ({folder})" for nodes, folder in ran.items())
        yield f"the campaigns ran on {of_each} nodes; a package has one system"


def _shortcomings(campaign: Campaign, source: Source) -> Iterator[str]:
    for reason in campaign.judgement.score.reasons:
        yield reason.rstrip(".")
    attempts = campaign.attempts
    for ran in sorted({str(state.get("revision")) for state in (campaign.plan, *attempts)}):
        if ran != str(source.revision) or ran.endswith("+changes"):
            yield f"it ran from revision {ran}, but the source here is {source.described}"
    used = [state.get("software") for state in (campaign.plan, *attempts)]
    if any(isinstance(one, Mapping) and one.get("sources") != source.digest for one in used):
        yield f"it ran with other code than the source here (digest {source.digest})"
    outside = discover.source_of(campaign.reference)
    if outside is not None:
        digest = digest_of_reference(outside)
        of_runs = [one.get("reference") for one in used if isinstance(one, Mapping)]
        if any(not isinstance(state, Mapping) or state.get("digest") != digest for state in of_runs):
            yield f"its reference ran with other code than {outside} has now (digest {digest})"
    for name in _program(campaign.plan)[1]:
        yield f"its program ran with another {name} than the current one"


def _refuse(reasons: Sequence[str], hint: str) -> None:
    if reasons:
        raise RequestError(
            f"Nothing was packaged: {'; '.join(reason.rstrip('.') for reason in reasons)}.{hint}"
        )


def _write_source(folder: Path, campaign: Campaign, source: Source, overruled: Sequence[str]) -> None:
    """Write the reference, the harness that runs it, and the plan and record of the campaign."""
    for name in BESIDE:
        _copy(source.root / name, folder / name)
    package = folder / "train_bench"
    for path in sorted(PACKAGE.iterdir()):
        if path.name != "references":
            _copy(path, package / path.name)
    for name in ("__init__.py", "parts"):
        _copy(PACKAGE / "references" / name, package / "references" / name)
    reference = references()[campaign.reference].folder
    _copy(reference, package / "references" / campaign.reference)
    for name, path in _program(campaign.plan)[0].items():
        _copy(path, folder / "program" / name)
    decided = {key: value for key, value in campaign.plan.items() if key not in ("shared", "jobs")}
    content = decided | {"config": campaign.config, "overruled": overruled}
    # Names of hosts are private, and the cause of death may have them and folders.
    attempts = [
        {key: value for key, value in attempt.items() if key not in ("host", "deaths")}
        for attempt in campaign.attempts
    ]
    files.write_json(
        folder / "configuration.json", redacted_tree(without_paths(content) | {"attempts": attempts})
    )
    files.write(folder / "README.md", _readme(campaign, overruled))


def _program(plan: Mapping[str, Any]) -> tuple[dict[str, Path], list[str]]:
    """Scripts and configurations named in a campaign's command, by their last names, if they lie in the campaign's
    folder and are as planned; and the names of the others."""
    command, program = jobs_of(plan)[0].get("command"), (plan.get("software") or {}).get("program")
    if not isinstance(command, Mapping) or not isinstance(program, Mapping):
        return {}, []
    folder, same, other = Path(str(command["cwd"])).resolve(), {}, []
    for name, planned in program["files"].items():
        path = (folder / name).resolve()
        if digest_of_file(path) != planned:
            other.append(name)
        elif path.is_relative_to(folder):
            same[path.name] = path
    return same, other


def without_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without local paths, which are private."""
    return {
        key: without_paths(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in OF_THIS_MACHINE
    }


def _readme(campaign: Campaign, overruled: Sequence[str]) -> str:
    forced = f"\nPackaged with --force despite: {'; '.join(overruled)}.\n" if overruled else ""
    return f"""\
# {campaign.benchmark}
{forced}
The source that the results of this benchmark were made with (revision {campaign.revision}).
`configuration.json` holds every value that was decided. The task is described in
`train_bench/references/{campaign.reference}/README.md`.

```
pip install -c constraints.txt '.[references]'
train-bench prepare benchmark={campaign.variant}
train-bench run benchmark={campaign.variant} launcher={campaign.launcher}
```
"""


def _copy(path: Path, target: Path) -> None:
    """Copy source files only; missing ones (an installed harness has no pyproject.toml) are left out."""
    if path.name.startswith((".", "__pycache__")):
        return
    if path.is_dir():
        for below in sorted(path.iterdir()):
            if not (below.is_symlink() and below.is_dir()):  # data, or a way back
                _copy(below, target / below.name)
    elif (path.suffix in SUFFIXES or path.name == "LICENSE") and path.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _plain(name: str) -> str:
    """A name that is a valid folder name: the repository checker refuses spaces and leading dots."""
    return re.sub(r"[^\w.+-]+", "_", name).strip("._") or "unnamed"
