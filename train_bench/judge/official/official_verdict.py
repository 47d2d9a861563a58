"""Official verdict: our implementation of the official tools' decision on an entry, without errata and our own checks.

The package checker checks the descriptions of systems, the number of files, that the files comply and have power logs
where there are any, apart from those that may be dropped, and, where the description says closed, that every run has a
seed of its own and the entry passes the RCP test. Files of parameters bypass the last two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train_bench.judge import rcp
from train_bench.judge.locate import Location
from train_bench.judge.official.official_log import OfficialCrash, OfficialLog, seed_problems
from train_bench.judge.official.package_files import (
    RCP,
    SEEDS,
    PackageFiles,
    PackageObjections,
    package_files,
    package_objections,
    power_problems,
)
from train_bench.judge.rcp import RcpVerdict
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialVerdict:
    """`refused` files are not accepted by the compliance checker; `accepted` is the verdict of the package checker on
    the entry, None where it crashes, passes over the folder or does not know the round. `bypassed` are the checks that
    files of parameters switch off (seeds, RCP), each with the path of that file. `package_accepted` is its verdict on
    the package, as far as this entry and the descriptions of systems decide it, with `package_reasons`."""

    accepted: bool | None
    refused: tuple[str, ...]
    rcp: RcpVerdict
    reasons: tuple[str, ...]
    bypassed: tuple[str, ...] = ()
    package_accepted: bool | None = None
    package_reasons: tuple[str, ...] = ()


def official_verdict(
    location: Location,
    names: Sequence[str],
    logs: Sequence[OfficialLog],
    rules: BenchmarkRules,
    *,
    closed: bool,
) -> OfficialVerdict:
    """Judge an entry as the tools do. `names` are the paths of the logs; `closed` is the division where no
    description says it. Open entries are compared with reference points, too, and accepted whatever the result."""
    refused = tuple(name for name, log in zip(names, logs, strict=True) if not log.compliant)
    if rules.strict:
        unknown = RcpVerdict(
            verdict=rcp.NONE, message=f"the official tools do not know {rules.ruleset}", factor=None
        )
        return OfficialVerdict(accepted=None, refused=refused, rcp=unknown, reasons=(unknown.message,))
    entry = _Entry(location, names, logs, rules)
    try:
        package = package_files(location)
    except OfficialCrash as error:
        reasons = (f"the package checker crashes: {error}",)
        return OfficialVerdict(accepted=None, refused=refused, rcp=entry.rcp(), reasons=reasons)
    verdict = _verdict(entry, package, refused, closed=closed if package.closed is None else package.closed)
    return _with_package(verdict, package_objections(location))


def _with_package(verdict: OfficialVerdict, objections: PackageObjections) -> OfficialVerdict:
    accepted = (
        None
        if verdict.accepted is None or objections.crashes
        else verdict.accepted and not objections.reasons
    )
    return replace(verdict, package_accepted=accepted, package_reasons=objections.reasons)


def _verdict(
    entry: _Entry, package: PackageFiles, refused: tuple[str, ...], *, closed: bool
) -> OfficialVerdict:
    compared = entry.rcp(bypass=RCP in package.bypassed)
    bypassed = tuple(f"{check} ({path})" for check, path in package.bypassed.items())
    verdict = OfficialVerdict(accepted=None, refused=refused, rcp=compared, reasons=(), bypassed=bypassed)
    if package.skipped is not None:
        return replace(verdict, reasons=(package.skipped,))
    try:
        reasons = [*package.reasons, *entry.problems(seeds=closed and SEEDS not in package.bypassed)]
    except OfficialCrash as error:
        return replace(verdict, reasons=(f"the package checker crashes: {error}",))
    if closed and not entry.without_rcp:
        if compared.verdict == rcp.CRASH:
            return replace(verdict, reasons=(compared.message,))
        if compared.verdict == rcp.FAIL:
            reasons.append(f"RCP test failed: {compared.message}")
    return replace(verdict, accepted=not reasons, reasons=tuple(reasons))


@dataclass(frozen=True, slots=True)
class _Entry:
    """The logs of an entry, by their paths."""

    location: Location
    names: Sequence[str]
    logs: Sequence[OfficialLog]
    rules: BenchmarkRules

    @property
    def _of_folder(self) -> BenchmarkRules:
        """The rules that the checker counts files by: those of the name of the folder."""
        known = ruleset.load(self.location.ruleset).benchmarks
        name = self.location.benchmark
        return known[name] if name is not None and name in known else self.rules

    @property
    def without_rcp(self) -> bool:
        """True for the benchmark without points, which the package checker leaves out by its name."""
        return not rcp.official(self._of_folder)

    def problems(self, *, seeds: bool) -> list[str]:
        """Objections of the package checker but for descriptions and RCP test. Raises `OfficialCrash`."""
        crash = next((log.crash for log in self.logs if log.crash is not None), None)
        if crash is not None:
            raise OfficialCrash(crash)
        reasons = [*self._count_problems(), *self._compliance_problems()]
        if seeds:
            reasons += seed_problems(*self._in_order())
        return reasons

    def _count_problems(self) -> list[str]:
        rules, weak = self._of_folder, self.location.scaling == "weak"
        wrong = len(self.logs) < rules.runs or (len(self.logs) > rules.runs and not weak)
        return [f"{len(self.logs)} file(s), {rules.runs} expected"] if wrong else []

    def _compliance_problems(self) -> list[str]:
        names, logs = self._in_order()
        stems = [Path(name).stem for name in names]
        wrong = {stem for stem, log in zip(stems, logs, strict=True) if not log.compliant}
        unmeasured = power_problems(self.location.folder, stems)
        if len(wrong | unmeasured) <= self._of_folder.drop:
            return []
        power = f" ({len(unmeasured)} without the power logs of the others)" if unmeasured else ""
        return [f"{len(wrong | unmeasured)} file(s) do not comply, {self._of_folder.drop} may{power}"]

    def _in_order(self) -> tuple[list[str], list[OfficialLog]]:
        """Paths and logs in the order of the checker, which sorts paths as texts."""
        order = sorted(range(len(self.names)), key=lambda at: self.names[at])
        return [self.names[at] for at in order], [self.logs[at] for at in order]

    def rcp(self, *, bypass: bool = False) -> RcpVerdict:
        """Verdict of the RCP checker."""
        facts = [log.rcp for log in self.logs]
        crash = next((one.crash for one in facts if one.crash is not None), None)
        if crash is None and len({repr(one.benchmark) for one in facts}) > 1:
            crash = "names of benchmarks differ"
        sizes = [one.batch_size for one in facts]
        if crash is None and not all(isinstance(size, (int, float)) for size in sizes):
            crash = "a global_batch_size is not a number"
        if crash is not None:
            return RcpVerdict(
                verdict=rcp.CRASH, message=f"the official checker crashes: {crash}", factor=None
            )
        known = [None if size == -1 else size for size in sizes]
        compared = rcp.official_verdict(self.rules, known, [one.position for one in facts])
        failed = sum(one.position is None for one in facts)
        if not bypass or compared.verdict != rcp.FAIL or known[0] is None or failed > self.rules.drop:
            return compared
        return replace(compared, verdict=rcp.PASS, message=f"{compared.message}; passed by rcp-bypass")
