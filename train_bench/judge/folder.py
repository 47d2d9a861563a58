"""A folder of results -> a judgement. Works years later, without torch, on other people's logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_bench import papers
from train_bench.errors import LogError, RequestError
from train_bench.judge import rcp
from train_bench.judge.compliance import RunVerdict, judge_run, judge_together
from train_bench.judge.record import RunRecord, number_of, read_record
from train_bench.judge.score import Origin, Score, make_score
from train_bench.rules import ruleset
from train_bench.rules.ruleset import BenchmarkRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Records, verdicts (one per record) and the score of a folder."""

    folder: Path
    records: tuple[RunRecord, ...]
    verdicts: tuple[RunVerdict, ...]
    score: Score

    def as_json(self) -> dict[str, Any]:
        """The score's object with the findings of every run added."""
        score = self.score.as_json()
        for run, verdict in zip(score["runs"], self.verdicts, strict=True):
            run["converged"] = verdict.converged
            run["findings"] = [finding.as_json() for finding in verdict.findings]
        return score


def judge_folder(folder: Path, *, asked: str | None, rcp_folder: Path) -> Judgement:
    """Judge the `result_*.txt` of one folder. The ruleset is the plan's, or `asked` where there is none.

    Raises `RequestError` where neither says it, `LogError` where there is nothing to judge.
    """
    if not folder.is_dir():
        raise RequestError(f"There is no folder {folder}; give the folder of a campaign.")
    plan = _plan(folder)
    name = plan.get("ruleset") or asked
    if name is None:
        raise RequestError(
            f"{folder} has no plan.json that names its rules; add --ruleset, one of {', '.join(ruleset.names())}."
        )
    if not isinstance(name, str):
        raise LogError(f"The plan in {folder} names the ruleset {name!r}, which is no name.")
    if asked not in (None, name):
        raise RequestError(
            f"The plan in {folder} names the ruleset {name}; --ruleset {asked} contradicts it."
        )
    files = sorted(folder.glob("result_*.txt"), key=lambda file: (number_of(file), file.name))
    if not files:
        raise LogError(" ".join((f"{folder} holds no result_*.txt yet.", *_batch(folder / "batch.json"))))
    rounds = ruleset.load(name)
    rules = rounds.benchmark(str(plan.get("benchmark") or _benchmark(files)))
    read = [read_record(file, rules) for file in files]
    records = tuple(record for record, _ in read)
    verdicts = judge_together(records, [judge_run(record, log, rules) for record, log in read])
    compared = _compared(records, verdicts, rules, rcp_folder)
    score = make_score(rounds, rules, records, verdicts, compared, _origin(plan, folder))
    return Judgement(folder=folder, records=records, verdicts=verdicts, score=score)


def _compared(
    records: tuple[RunRecord, ...], verdicts: tuple[RunVerdict, ...], rules: BenchmarkRules, rcp_folder: Path
) -> rcp.RcpVerdict:
    sizes = {record.global_batch_size for record in records if record.global_batch_size is not None}
    convergences = [
        record.convergence if verdict.converged else None
        for record, verdict in zip(records, verdicts, strict=True)
    ]
    size = sizes.pop() if len(sizes) == 1 else None
    return rcp.verdict(rcp.load(rules, rcp_folder), rules, size, convergences)


def _plan(folder: Path) -> dict[str, Any]:
    if not (folder / "plan.json").exists():
        return {}
    plan = papers.read_json(folder / "plan.json")
    if not isinstance(plan, dict):
        raise LogError(f"{folder / 'plan.json'} is not a plan.")
    return plan


def _origin(plan: dict[str, Any], folder: Path) -> Origin:
    return Origin(
        variant=plan.get("variant"),
        launcher=plan.get("launcher"),
        world_size=plan.get("world_size"),
        seeds=plan.get("seeds"),
        changes=tuple(str(change) for change in plan.get("changes", ())),
        batch=_batch(folder / "batch.json"),
    )


def _batch(path: Path) -> tuple[str, ...]:
    """Which jobs of a batch system ended badly, and how."""
    if not path.exists():
        return ()
    told = papers.read_json(path)
    tasks = told.get("tasks") if isinstance(told, dict) else None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise LogError(f"{path} does not say what became of its jobs.")
    return tuple(
        f"Job {task.get('name')} {task.get('how')}." for task in tasks if task.get("good") is not True
    )


def _benchmark(files: list[Path]) -> str:
    """The name that most logs give."""
    named = Counter(record.benchmark for record, _ in (read_record(file, None) for file in files))
    known = [name for name, _ in named.most_common() if name is not None]
    if not known:
        raise LogError(f"No log in {files[0].parent} names its benchmark (submission_benchmark).")
    return known[0]
