"""A campaign: its plan with everything that the plan names, resolved once. Whoever holds one asks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import cattrs

from train_bench import __version__
from train_bench.campaign import grace, shared_memory
from train_bench.core import begun_plans, files, plugins
from train_bench.core.job import OF_ONE_JOB, WEIGHTS, Command, Job
from train_bench.core.secret_filter import refuse_secrets
from train_bench.energy.meter import EnergyOptions, parse_options
from train_bench.errors import RequestError
from train_bench.judge import rcp
from train_bench.launcher import Batch, Launcher, LauncherConfig
from train_bench.plan import command, discover, interpreter
from train_bench.plan.plan import Plan, as_json, from_json, make_plan
from train_bench.plan.provenance import Provenance, ran_with
from train_bench.plan.request import Request
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules
from train_bench.task import BenchmarkConfig, Prepare

WRITTEN = ("ranks", "attempts", "power", "checkpoints", WEIGHTS)
"""Folders of a campaign in which it writes."""


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """A plan, the rules of its benchmark, its launcher with the configuration of this host, its queue (None for a
    launcher without one), and the configuration of its benchmark."""

    plan: Plan
    rules: BenchmarkRules
    launcher_config: LauncherConfig
    launcher: Launcher
    queue: Batch | None
    benchmark: BenchmarkConfig
    known_points: tuple[rcp.Point, ...] | None = None

    @classmethod
    def planned(cls, request: Request, *, reference_runs: bool = False, to_be_run: bool = True) -> Campaign:
        """Campaign of a request under the rules of its round, with its provenance; nothing is written.

        Raises `RequestError` for what the rules, the launcher or arithmetic forbid.
        """
        config = request.config
        for word in request.overrides:
            name, _, value = word.partition("=")
            refuse_secrets({name.lstrip("+~"): value})
        rules = ruleset.load(config.benchmark.ruleset).benchmark(config.benchmark.benchmark)
        points = rcp.load(rules, discover.rcp_folders())
        of_user = None if config.command is None else command.words(config.command, Path.cwd())
        if config.python is not None:
            config = replace(config, python=interpreter.resolve(config.python, Path.cwd()))
        software = ran_with(config.benchmark.reference, rules.digest, of_user, config.python)
        provenance = Provenance(
            now=datetime.now(UTC),
            version=__version__,
            revision=software["revision"],
            software=software["software"],
            points_digest=rcp.digest(points),
            variant=request.variant,
            cache=discover.cache(),
        )
        plan = make_plan(config, rules, provenance, reference_runs=reference_runs, to_be_run=to_be_run)
        plan = replace(plan, request={**plan.request, "overrides": list(request.overrides)})
        shipped = discover.source_of(plan.reference) is None
        plan = grace.with_grace(shared_memory.with_limit(plan, config, shipped=shipped), config)
        return cls.of(plan, rules=rules, points=points)

    @classmethod
    def open(cls, folder: Path) -> Campaign:
        """Campaign that exists in `folder`.

        It may be somebody else's: raises `RequestError` if a new campaign would be refused for the same reason, for
        names that are unknown here, and if the folder holds links, through which it would write elsewhere.
        """
        if not holds_plan(folder):
            raise RequestError(f"{folder} is not a campaign (no plan.json); give the folder of one.")
        written = files.read_json(folder / "plan.json")
        if isinstance(written, dict):
            begun_plans.find_benchmark(written, str(folder))
        try:
            campaign = cls.of(from_json(written, folder))
            reason = next(problems(campaign), None)
        except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
            raise RequestError(
                f"{folder / 'plan.json'} is not a plan of this version of train_bench; start a new campaign."
            ) from error
        if reason is not None:
            raise RequestError(f"The campaign in {folder} cannot continue: {reason}")
        _refuse_links(folder)
        here = code_of_this_host(campaign.plan.reference, campaign.plan.launcher)
        seconds = grace.continued(campaign.first, campaign.plan.request).grace_seconds
        jobs = tuple(replace(job, **here, grace_seconds=seconds) for job in campaign.jobs)
        return replace(campaign, plan=replace(campaign.plan, jobs=jobs))

    @classmethod
    def of(
        cls,
        plan: Plan,
        changes: Mapping[str, str] | None = None,
        *,
        rules: BenchmarkRules | None = None,
        points: tuple[rcp.Point, ...] | None = None,
    ) -> Campaign:
        """Campaign of a plan, with the `changes` of one host to the launcher's configuration, and what is known of it
        already. Raises `UnknownName` for names that are unknown here."""
        if not plan.jobs:
            raise RequestError("The plan numbers its runs []; they have to be counted from 0.")
        job = plan.jobs[0]
        options = {**job.launcher_config, **(changes or {})}
        config = cattrs.structure(options, discover.launcher_config(plan.launcher))
        return cls(
            plan=plan,
            rules=rules or ruleset.load(plan.ruleset).benchmark(plan.benchmark),
            launcher_config=config,
            launcher=discover.launcher(config),
            queue=discover.batch(config),
            benchmark=cattrs.structure(job.config, discover.reference_config(plan.reference)),
            known_points=points,
        )

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return self.first.folder

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Its runs."""
        return self.plan.jobs

    @property
    def first(self) -> Job:
        """Its first run, which the others equal but for their seeds."""
        return self.plan.jobs[0]

    @property
    def program(self) -> Command | None:
        """The user's own program that trains; None where the reference does."""
        return self.first.command

    @cached_property
    def rcp_folders(self) -> tuple[Path, ...]:
        """Folders of reference convergence points, in the order in which they count."""
        return discover.rcp_folders()

    @cached_property
    def points(self) -> tuple[rcp.Point, ...]:
        """Reference convergence points of its benchmark."""
        return rcp.load(self.rules, self.rcp_folders) if self.known_points is None else self.known_points

    @property
    def reference_is_shipped(self) -> bool:
        """True for a reference that came with train_bench."""
        return discover.source_of(self.plan.reference) is None

    @property
    def launcher_is_shipped(self) -> bool:
        """True for a launcher that came with train_bench."""
        return plugins.launchers()[self.plan.launcher].shipped

    @cached_property
    def content(self) -> dict[str, Any]:
        """Content of its `plan.json`."""
        return as_json(self.plan)

    @cached_property
    def energy(self) -> EnergyOptions | None:
        """The energy measurement that was requested; None without one."""
        return parse_options(self.plan.request)

    @property
    def data_dir(self) -> Path:
        """Folder of its data."""
        return Path(str(self.first.config.get("data_dir")))

    @property
    def has_data(self) -> bool:
        """True for data that are completely prepared."""
        return discover.has_data(self.data_dir)

    @property
    def data_in_cache(self) -> bool:
        """True for data in the user's own cache folder."""
        return self.data_dir.is_relative_to(discover.cache().resolve())

    @property
    def runs_elsewhere(self) -> bool:
        """True if its runs have neither the data nor the folder of the host that submits them."""
        return self.queue is not None and self.queue.elsewhere

    @property
    def data_preparation(self) -> Prepare:
        """The data preparation of its reference. Imports what its data code needs."""
        return discover.prepare(self.plan.reference)

    def with_job(self, job: Job) -> Campaign:
        """The campaign with this one run."""
        return replace(self, plan=replace(self.plan, jobs=(job,)))

    def write(self) -> None:
        """Write the plan."""
        files.write_json(self.folder / "plan.json", self.content)


def problems(campaign: Campaign) -> Iterator[str]:
    """Reasons against a plan that was read, as sentences. Raises as `from_json` for an invalid file."""
    plan, job, config = campaign.plan, campaign.first, campaign.launcher_config
    if [one.index for one in plan.jobs] != list(range(len(plan.jobs))):
        yield f"plan.json numbers its runs {[one.index for one in plan.jobs]}; they have to be counted from 0."
    for one in plan.jobs:
        if one.work != "train":
            yield f"plan.json is for the work '{one.work}', not for a campaign."
        for name in ("benchmark", "reference", "launcher"):
            if getattr(one, name) != getattr(plan, name):
                yield f"plan.json is for {getattr(plan, name)}, but its run {one.index} is for {getattr(one, name)}."
    for name, configured, planned in (
        ("ruleset", ruleset.load(str(job.config["ruleset"])).name, campaign.rules.ruleset),
        ("launcher", config.name, plan.launcher),
        ("nodes", config.nodes, job.nodes),
        ("nproc_per_node", config.nproc_per_node, job.nproc_per_node),
    ):
        if configured != planned:
            yield f"plan.json has {name}={planned}, but its runs are configured with {configured}."
    for other in plan.jobs[1:]:  # trust and the refusals look at the first
        if replace(other, **{name: getattr(job, name) for name in OF_ONE_JOB}) != job:
            yield f"plan.json has another run {other.index} than run 0, in more than its seed."
    reason = campaign.launcher.refuse(campaign.benchmark)
    if reason is not None:
        yield reason


def code_of_this_host(reference: str, launcher: str) -> dict[str, Any]:
    """Fields of a job for the folders where its reference and its launcher are found here."""
    return {
        "reference_folder": discover.folder_of("references", reference),
        "launcher_folder": discover.folder_of("launchers", launcher),
    }


def holds_plan(folder: Path) -> bool:
    """True for a folder with a plan."""
    return (folder / "plan.json").is_file()


def _refuse_links(folder: Path) -> None:
    """Refuse links to other places among the files that a campaign writes: its own, the folders of its ranks, its
    attempts."""
    for path in (*folder.iterdir(), *(path for name in WRITTEN for path in folder.glob(f"{name}/*"))):
        if path.is_symlink():
            raise RequestError(
                f"{path} is a link, but a campaign writes only into its own folder. Remove the link and "
                "try again."
            )
