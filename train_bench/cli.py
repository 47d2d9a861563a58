"""The verbs, one function each; the only place where an error becomes text and an exit code.

0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from train_bench import __version__
from train_bench.errors import Interrupted, RequestError, TrainBenchError, UnknownName

if TYPE_CHECKING:
    from train_bench.ask import Request
    from train_bench.judge.entry import Judgement
    from train_bench.judge.tree import Judged
    from train_bench.plan.plan import Plan

VALID, INVALID = 0, 1

HELP = """\
train-bench VERB ...: how long does this machine and this software take to train a model to a given quality?

  list                      benchmarks and launchers
  plan    [OVERRIDE ...]    what a run would do: the decided values and the exact commands
  run     [OVERRIDE ...]    run a campaign of seeds, judge it and score it
  join    DIR OPTION ...    take part in a campaign that host 0 runs, on each further host
  settle  DIR               record what became of a submitted campaign, judge it and score it
  judge   PATH [--json]     what the rules say of a log, a campaign or a tree of results
  score   PATH [--json]     the score of a campaign, the results table of a tree
  rules   benchmark=NAME    what a round allows: values, runs, target, schedule
  rcp     [OVERRIDE ...]    run reference seeds and write a reference convergence point
  prepare [OVERRIDE ...]    prepare the data of a benchmark
  package DIR ... --to DIR  the tree of a submission, and what the official checkers think of it

plan, run, rcp and prepare are Hydra applications. Their options are overrides: benchmark=resnet_mini,
launcher=torchrun, launcher.nproc_per_node=2, runs=3, seed=1, output=DIR, resume=DIR, ...; --help lists
them all, --cfg job prints the configuration, --multirun sweeps.

Exit code 0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong.
"""


def main() -> NoReturn:
    """Run one verb and exit."""
    words = sys.argv[1:]
    signal.signal(signal.SIGTERM, _interrupt)
    if words[:1] in ([], ["-h"], ["--help"]):
        print(HELP, end="")
    elif words == ["--version"]:
        print(f"train-bench {__version__}")
    elif words[0] not in VERBS:
        sys.exit(_fail(UnknownName(what="verb", name=words[0], known=VERBS)))
    else:
        sys.exit(_guarded(lambda: VERBS[words[0]](words[1:])))
    sys.exit(VALID)


def list_benchmarks(words: Sequence[str]) -> int:
    """Benchmarks and launchers."""
    argparse.ArgumentParser("train-bench list", description=list_benchmarks.__doc__).parse_args(words)
    from train_bench.plan import discover

    print("benchmark=")
    for variant in discover.variants():
        described = discover.describe_variant(variant)
        print(f"  {variant:18} {described['ruleset']:16} {described['about']}")
    print("launcher=")
    for name in discover.launchers():
        print(f"  {name}")
    return VALID


def plan(words: Sequence[str]) -> int:
    """What a run would do: the decided values and the exact commands."""
    return _with_request("plan", words, lambda request: _show_plan(_planned(request)))


def run(words: Sequence[str]) -> int:
    """Run a campaign of seeds, judge it and score it."""
    return _with_request("run", words, lambda request: _concluded(_campaign(request), _score))


def rcp(words: Sequence[str]) -> int:
    """Run reference seeds and write a reference convergence point."""

    def act(request: Request) -> int:
        return _concluded(_campaign(request, reference_runs=True), _point)

    return _with_request("rcp", words, act)


def prepare(words: Sequence[str]) -> int:
    """Prepare the data of a benchmark."""
    return _with_request("prepare", words, _prepare)


def join(words: Sequence[str]) -> int:
    """Take part in a campaign that host 0 runs."""
    parser = argparse.ArgumentParser("train-bench join", description=join.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the campaign")
    parser.add_argument("words", nargs="*", metavar="launcher.OPTION=VALUE", help="which host this is")
    options = parser.parse_args(words)
    from train_bench.join import take_part

    good = take_part(options.folder, options.words, lambda text: print(text, flush=True))
    return VALID if good else INVALID


def settle(words: Sequence[str]) -> int:
    """Record what became of a submitted campaign, judge it and score it."""
    from train_bench import campaign, submit
    from train_bench.plan import discover

    parser = argparse.ArgumentParser("train-bench settle", description=settle.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a campaign")
    folder = parser.parse_args(words).folder.resolve()
    batch = discover.batch(campaign.launcher_config(campaign.open_folder(folder)))
    if batch is None or not submit.was_submitted(folder):
        raise RequestError(f"The campaign in {folder} was not submitted to a batch system; judge it instead.")
    submit.settle(batch, folder)
    return _score(folder)


def judge(words: Sequence[str]) -> int:
    """What the rules say of a log, a campaign or a tree of results."""
    from train_bench.report import findings

    parser = _of_path("judge")
    parser.add_argument("--official", action="store_true", help="also ask the checkers of mlperf-logging")
    options = parser.parse_args(words)
    judged = _judged(options.path, options.ruleset)
    told = judged.as_json()
    if options.official:
        from train_bench.judge import second_opinion

        for entry, judgement in zip(told["entries"], judged.entries, strict=True):
            entry["official"] = second_opinion.ask(judgement)
    _tell(told, options.json, findings.show)
    return VALID if judged.valid else INVALID


def score(words: Sequence[str]) -> int:
    """The score of a campaign, the results table of a tree."""
    from train_bench.judge import summary
    from train_bench.report import results, table

    parser = _of_path("score")
    parser.add_argument("--csv", action="store_true", help="the results table as comma-separated values")
    parser.add_argument("--markdown", action="store_true", help="the results table as Markdown")
    parser.add_argument(
        "--reference-results", type=Path, metavar="FILE", help="JSON of benchmark -> minutes to normalise to"
    )
    parser.add_argument(
        "--summary",
        metavar="WEIGHTS",
        nargs="?",
        const="",
        help="weighted geometric mean of all results; BENCHMARK=NUMBER,... weighs them",
    )
    options = parser.parse_args(words)
    judged = _judged(options.path, options.ruleset)
    scores = [entry.score for entry in judged.entries]
    reference = (
        summary.read_reference_results(options.reference_results) if options.reference_results else None
    )
    told: dict[str, Any] = {"entries": [one.as_json() for one in scores], "unjudged": judged.unjudged}
    for entry, one in zip(told["entries"], scores, strict=True):
        entry["normalised"] = summary.normalised(one, reference or {})
    told["summary"] = None
    if options.summary is not None:
        weights = summary.read_weights(options.summary)
        told["summary"] = asdict(summary.custom_summary(scores, weights, reference))
    if options.csv or options.markdown:
        print(results.as_csv(told) if options.csv else results.as_markdown(told), end="")
    elif len(scores) == 1 and not options.json:
        _tell(told["entries"][0], False, table.show_score)
    else:
        _tell(told, options.json, results.show)
    return VALID if judged.valid else INVALID


def rules(words: Sequence[str]) -> int:
    """What a round allows: values, runs, target, schedule."""
    from train_bench.judge import rcp as points
    from train_bench.judge.law import law
    from train_bench.plan import discover
    from train_bench.report import rules as report
    from train_bench.rules import ruleset

    parser = argparse.ArgumentParser("train-bench rules", description=rules.__doc__)
    parser.add_argument("options", nargs="+", metavar="benchmark=NAME [ruleset=ROUND] [division=closed|open]")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(words)
    asked = _named(options.options, ("benchmark", "ruleset", "division"))
    if "benchmark" not in asked:
        raise RequestError("Name a benchmark, for example benchmark=resnet.")
    name = asked["benchmark"]
    of_variant = discover.describe_variant(name)["ruleset"] if name in discover.variants() else None
    held = ruleset.load(ruleset.full_name(asked.get("ruleset") or of_variant or _only_round(name)))
    of_benchmark = held.benchmark(name)
    reference = discover.hyperparameters(name) if held.name == of_variant else {}
    told = law(
        of_benchmark, asked.get("division", "closed"), points.load(of_benchmark, discover.RCP), reference
    )
    _tell(told, options.json, report.show)
    return VALID


def package(words: Sequence[str]) -> int:
    """Lay finished campaigns out as a submission, and ask our judge and the official checkers about it."""
    from train_bench import description
    from train_bench import package as packaging
    from train_bench.plan import discover
    from train_bench.plan.launch import revision

    parser = argparse.ArgumentParser("train-bench package", description=package.__doc__)
    parser.add_argument("campaigns", nargs="+", type=Path, metavar="CAMPAIGN", help="folder of a campaign")
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="new folder for the tree")
    parser.add_argument("--system", metavar="NAME", help="name of the system; by default the platform's")
    parser.add_argument(
        "--system-file", type=Path, metavar="FILE", help="JSON of what to state of the system: field -> text"
    )
    parser.add_argument("--force", action="store_true", help="package invalid results all the same")
    options = parser.parse_args(words)
    stated = description.read_stated(options.system_file) if options.system_file else {}
    campaigns = [packaging.read_campaign(folder, discover.RCP) for folder in options.campaigns]
    source = packaging.Source(root=discover.ROOT, revision=revision(discover.ROOT))
    folder = packaging.package(
        campaigns, options.to, system=options.system, stated=stated, source=source, force=options.force
    )
    print(f"The submission is in {folder}.")
    refused = False
    for said in packaging.opinions(folder, campaigns[0].judgement.score.ruleset, discover.RCP):
        print(f"{said.checker}: {said.verdict}{f' ({said.message})' if said.message else ''}", flush=True)
        refused = refused or said.refused
    return INVALID if refused else VALID


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": list_benchmarks,
    "plan": plan,
    "run": run,
    "join": join,
    "settle": settle,
    "judge": judge,
    "score": score,
    "rules": rules,
    "rcp": rcp,
    "prepare": prepare,
    "package": package,
}


def _with_request(verb: str, words: Sequence[str], act: Callable[[Request], int]) -> int:
    """Errors of one job of a sweep are told at once, so that the other jobs still run."""
    from train_bench import ask

    return ask.with_request(verb, words, lambda request: _guarded(lambda: act(request)))


def _planned(request: Request, *, reference_runs: bool = False) -> Plan:
    from train_bench.plan import discover
    from train_bench.plan.launch import revision
    from train_bench.plan.plan import Provenance, make_plan
    from train_bench.rules import ruleset

    provenance = Provenance(
        now=datetime.now(timezone.utc),
        version=__version__,
        revision=revision(discover.ROOT),
        variant=request.variant,
        overrides=request.overrides,
        cache=discover.cache(),
    )
    rules = ruleset.load(request.config.benchmark.ruleset)
    return make_plan(request.config, rules, provenance, reference_runs=reference_runs)


def _campaign(request: Request, *, reference_runs: bool = False) -> Path | None:
    """Run what is asked, or what is missing of a campaign that was begun. Returns its folder; None if it is
    not to be judged now, because it waits in a queue or only a part of it was run here."""
    from rich.console import Console

    from train_bench import campaign, submit
    from train_bench.plan import discover
    from train_bench.plan.config import OnFailure, OnViolation
    from train_bench.report.live import Terminal

    asked = request.config
    planned = _begun(request, reference_runs=reference_runs)
    folder = planned.jobs[0].folder
    config = campaign.launcher_config(planned)
    batch = discover.batch(config)
    if batch is not None and not batch.inside(os.environ):
        jobs = campaign.todo(planned, retry_failed=asked.retry_failed)
        if jobs:
            options = [f"{name}={getattr(asked, name).value}" for name in ("on_failure", "on_violation")]
            options += ["retry_failed=true"] * asked.retry_failed
            submit.hand_over(batch, jobs, options, _tell_at_once)
            if not batch.wait:
                return None
            submit.wait(batch, folder, _tell_at_once)
            submit.settle(batch, folder)
        return folder
    print(f"{len(planned.jobs)} run(s) of {planned.variant} in {folder}", flush=True)
    for words in config.joining:
        print(f"type on another host: train-bench join {shlex.quote(str(folder))} {words}", flush=True)
    campaign.run_all(
        planned,
        discover.launcher(config),
        Terminal(Console()),
        retry_failed=asked.retry_failed,
        go_on=asked.on_failure is OnFailure["continue"],
        strictly=asked.on_violation is OnViolation.stop,
        only=asked.only,
    )
    return folder if asked.only is None else None


def _begun(request: Request, *, reference_runs: bool) -> Plan:
    """The plan of a new campaign, or of the one that goes on."""
    from train_bench import campaign, submit
    from train_bench.plan import discover

    asked = request.config
    if asked.resume is not None:
        _refuse_other_overrides(request)
        planned = campaign.open_folder(Path(asked.resume))
        batch = discover.batch(campaign.launcher_config(planned))
    elif asked.only is not None:
        raise RequestError("only=[RUN,...] is for a campaign that was begun; give it with resume=DIR.")
    else:
        batch = discover.batch(asked.launcher)
        planned = _planned(request, reference_runs=reference_runs)
    if batch is not None:
        submit.check(batch)
    if asked.resume is None:
        campaign.prepare_data(planned)
        campaign.begin(planned)
    return planned


def _concluded(folder: Path | None, conclude: Callable[[Path], int]) -> int:
    return VALID if folder is None else conclude(folder)


def _tell_at_once(text: str) -> None:
    print(text, flush=True)


def _refuse_other_overrides(request: Request) -> None:
    of_resuming = ("resume", "retry_failed", "on_failure", "on_violation", "only")
    others = [word for word in request.overrides if word.partition("=")[0] not in of_resuming]
    if others:
        raise RequestError(
            f"A resumed campaign keeps its plan; leave out {', '.join(others)} or start another campaign."
        )


def _score(folder: Path) -> int:
    from rich.console import Console

    from train_bench import papers
    from train_bench.report import table

    judged = _judgement(folder)
    scored = judged.score.as_json()
    papers.write_json(folder / "score.json", scored)
    table.show_score(scored, Console())
    return VALID if judged.score.valid else INVALID


def _point(folder: Path) -> int:
    from train_bench import reference_point
    from train_bench.plan import discover

    path = reference_point.add(_judgement(folder), folder, discover.RCP)
    print(f"The reference convergence point is in {path}.")
    return VALID


def _prepare(request: Request) -> int:
    from train_bench import campaign

    source = request.config.source
    planned = _planned(request)
    campaign.prepare_data(planned, Path(source).expanduser() if source else None)
    print(f"The data of {planned.variant} are in {planned.jobs[0].config['data_dir']}.")
    return VALID


def _show_plan(planned: Plan) -> int:
    import cattrs

    from train_bench import campaign, submit
    from train_bench.plan import discover
    from train_bench.plan.launch import rank_argv

    config = campaign.launcher_config(planned)
    launcher = discover.launcher(config)
    print(json.dumps(cattrs.unstructure(planned) | {"jobs": len(planned.jobs)}, indent=2, default=str))
    for job in planned.jobs:
        launch = launcher.launch(job, rank_argv(job))
        env = [f"{name}={value}" for name, value in launch.env.items()]
        print(shlex.join([*env, *launch.argv]))
    for words in config.joining:
        print(shlex.join(["train-bench", "join", str(planned.jobs[0].folder), words]))
    batch = discover.batch(config)
    if batch is not None:
        for text in batch.submission(planned.jobs, submit.run_argv(planned.jobs, [])).files.values():
            print(text, end="")
    return VALID


def _of_path(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"train-bench {verb}", description=VERBS[verb].__doc__)
    parser.add_argument("path", type=Path, metavar="PATH", help="a log, a campaign or any folder above such")
    parser.add_argument("--ruleset", help="round whose rules hold, where the folders do not say it")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser


def _named(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    asked = {}
    for word in words:
        name, sign, value = word.partition("=")
        if name not in names or not sign:
            raise RequestError(f"'{word}' is no option; known: {', '.join(f'{name}=...' for name in names)}.")
        asked[name] = value
    return asked


def _only_round(benchmark: str) -> str:
    """The round of a benchmark that only one has."""
    from train_bench.rules import ruleset

    rounds = [name for name in ruleset.names() if benchmark in ruleset.load(name).benchmarks]
    if not rounds:
        everyone = {name for held in ruleset.names() for name in ruleset.load(held).benchmarks}
        raise UnknownName(what="benchmark", name=benchmark, known=everyone)
    if len(rounds) > 1:
        raise RequestError(f"{benchmark} is in several rounds; add ruleset=, one of {', '.join(rounds)}.")
    return rounds[0]


def _judged(path: Path, ruleset: str | None) -> Judged:
    from train_bench.judge.tree import judge_tree
    from train_bench.plan import discover

    return judge_tree(path, asked=ruleset, rcp_folder=discover.RCP)


def _judgement(folder: Path) -> Judgement:
    from train_bench.judge.tree import judge_folder
    from train_bench.plan import discover

    return judge_folder(folder, asked=None, rcp_folder=discover.RCP)


def _tell(value: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any], Any], None]) -> None:
    if as_json:
        indent = 2 if len(value.get("entries", ())) < 2 else None  # a whole round is for machines
        print(json.dumps(value, indent=indent, allow_nan=False))
    else:
        from rich.console import Console

        show(value, Console())


def _guarded(act: Callable[[], int]) -> int:
    try:
        return act()
    except Interrupted as error:
        raise SystemExit(_fail(error)) from error
    except TrainBenchError as error:
        return _fail(error)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        raise SystemExit(INVALID) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INVALID


def _fail(error: TrainBenchError) -> int:
    print(f"train-bench: {error}", file=sys.stderr)
    return error.exit_code


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
