"""Table of the verbs; each is a file of its name in `commands/`, and only the one that is typed is loaded."""

from __future__ import annotations

import re
import shutil
import textwrap
from dataclasses import dataclass

WIDEST = 110
"""Most columns of a help page."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb: its name, its arguments in the help page, and its description, as an imperative."""

    name: str
    arguments: str
    does: str

    @property
    def composes(self) -> bool:
        """True if it composes a configuration of overrides, with Hydra."""
        return self.arguments.startswith("[OVERRIDE")


GROUPS: dict[str, tuple[Verb, ...]] = {
    "Run": (
        Verb("list", "[WORD ...]", "List benchmarks and launchers; campaigns: those here, by number"),
        Verb(
            "plan",
            "[OVERRIDE ...]",
            "Show what a run would do: decided values, exact commands, memory (--dry)",
        ),
        Verb("prepare", "[OVERRIDE ...]", "Prepare the data of a benchmark"),
        Verb("run", "[OVERRIDE ...]", "Run a campaign of seeds, judge it and score it"),
        Verb("join", "DIR OPTION ...", "Take part in a campaign over several hosts, on each host but host 0"),
        Verb("settle", "DIR", "Record the end of a submitted campaign, judge it and score it"),
    ),
    "Judge": (
        Verb(
            "judge",
            "PATH ... [--json]",
            "Check logs, campaigns, trees of results or LoadGen tests for compliance",
        ),
        Verb(
            "score", "PATH ... [--json]", "Score a campaign, or print the results table of several or a tree"
        ),
        Verb("rules", "benchmark=NAME", "Show what a round allows: values, runs, target, schedule"),
        Verb(
            "rcp",
            "[OVERRIDE ...]",
            "Run reference seeds and write a reference convergence point; --certainty",
        ),
        Verb("verify", "DIR [OPTION ...]", "Evaluate kept weights again and compare with the logged quality"),
        Verb(
            "serve",
            "DIR [OPTION ...]",
            "Serve verified weights under LoadGen's scenarios, and judge these tests",
        ),
        Verb(
            "review", "ROUND_DIR", "Review a round: one row of questions for each entry; --to FILE: as a page"
        ),
    ),
    "Understand": (
        Verb(
            "compare",
            "A B ...",
            "Compare the times of campaigns, with confidence; --fail-if-slower 3 is a gate",
        ),
        Verb(
            "compare-revisions",
            "A B ...",
            "Tell whether revision B of this repository is slower than A: both alternate until it is decided",
        ),
        Verb(
            "equivalent",
            "A B",
            "Test whether two implementations are equivalent, and find the first difference",
        ),
        Verb(
            "referee",
            "PATH ... --below TARGET",
            "Test whether records show what they claim; CONTEST.yaml CHALLENGER: a contest with a ledger",
        ),
        Verb(
            "forecast", "[OVERRIDE ...]", "Forecast the time to train from a probe, logs or published entries"
        ),
        Verb(
            "profile",
            "[OVERRIDE ...]",
            "Profile a training step, with a bound and advice; PATH: of finished runs",
        ),
        Verb(
            "gpu-check",
            "[--minutes N]",
            "Check a GPU in parts: peaks, runs, profiles, peers, memory; a file and a page to share",
        ),
        Verb(
            "startup",
            "CAMPAIGN",
            "Time starts with trained weights up to the first right answer, cold to warm; --synthetic SIZE",
        ),
        Verb(
            "accept",
            "[OVERRIDE ...]",
            "Accept a fleet: train on each NODE, on pairs and on all; name faulty nodes",
        ),
        Verb("glossary", "[WORD ...]", "Explain the words that tables and pages of results print"),
    ),
    "Share": (
        Verb("report", "PATH ... --to F", "Write one page about campaigns or trees of results"),
        Verb("web", "[DIR]", "Serve the pages of results on 127.0.0.1, of running campaigns as well"),
        Verb(
            "index",
            "DIR ...",
            "Ingest campaigns and rounds into a store; published DIR ...: a table of entries",
        ),
        Verb(
            "history",
            "[NAME=VALUE ...]",
            "Show scores over dates and revisions, from the store; --to F: as a page",
        ),
        Verb(
            "export",
            "DIR --to FILE",
            "Export a campaign as one file to verify and replay elsewhere; --sign KEY",
        ),
        Verb(
            "replay", "FILE --to DIR", "Compare an export with this machine and run it again; or --only-check"
        ),
        Verb(
            "package",
            "DIR ... --to DIR",
            "Build the tree of a submission and run the official checkers on it",
        ),
    ),
    "Extend": (
        Verb("new", "KIND NAME", "Create a working benchmark, or a trainer of your own, to adapt"),
        Verb("check", "[OVERRIDE ...]", "Check a benchmark against the contract"),
    ),
}

VERBS = tuple(verb.name for group in GROUPS.values() for verb in group)
COMPOSING = tuple(verb.name for group in GROUPS.values() for verb in group if verb.composes)


EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("list mini", "list resnet", "list campaigns", "list --json"),
    "plan": (
        "plan benchmark=resnet_mini",
        "plan benchmark=bert point=8192 --dry --ranks 1024",
    ),
    "prepare": ("prepare benchmark=resnet source=/data/imagenet data_dir=/fast/imagenet",),
    "run": (
        "run benchmark=resnet_mini output=demo",
        "run resume=demo",
        "run benchmark=resnet_mini launcher=torchrun launcher.nproc_per_node=2",
        "run benchmark=resnet_mini seed=1 against='precision=bf16' output=pair",
        "run benchmark=resnet_mini -- python my_trainer.py",
    ),
    "join": ("join /shared/campaign launcher.node_rank=1",),
    "settle": ("settle /shared/campaign",),
    "judge": (
        "judge demo",
        "judge latest",
        "judge training_results_v1.1",
        "judge logs --ruleset 1.1.0 --json",
    ),
    "score": ("score demo", "score demo --half-width 2", "score training_results_v1.1 --markdown"),
    "rules": ("rules benchmark=resnet ruleset=1.1.0", "rules benchmark=resnet_mini --official-file"),
    "rcp": ("rcp benchmark=waves", "rcp --certainty benchmark=resnet_mini"),
    "verify": ("verify kept", "verify kept launcher=torchrun launcher.nproc_per_node=2"),
    "serve": ("serve kept", "serve kept scenario=server,offline"),
    "review": ("review training_results_v1.1 --to review.html",),
    "compare": (
        "compare before after",
        "compare pair",
        "compare 'nights/*' --sort time",
        "compare before after --fail-if-slower 3",
    ),
    "compare-revisions": (
        "compare-revisions main HEAD benchmark=./digits -- python train.py",
        "compare-revisions main HEAD benchmark=resnet_mini --fail-if-slower 3 --pairs 10 output=pair",
    ),
    "equivalent": ("equivalent benchmark=resnet_mini precision=bf16",),
    "referee": (
        "referee record --below 3.28",
        "referee a.csv b.csv --above 0.25",
        "referee contest.yaml HEAD",
        "referee refute contest.yaml 3",
    ),
    "forecast": ("forecast benchmark=resnet_mini",),
    "profile": ("profile benchmark=resnet_mini", "profile benchmark=resnet_mini --bound", "profile demo"),
    "gpu-check": ("gpu-check", "gpu-check --minutes 5 --only peaks,profile_bert"),
    "startup": ("startup kept", "startup --synthetic 10MB,100MB,1GB"),
    "accept": (
        "accept benchmark=resnet_midi n1 n2 n3 n4 output=/shared/fleet",
        "accept benchmark=resnet_midi n1 n2 --by 'srun -N1 -n1 -w {node}'",
    ),
    "glossary": ("glossary olympic mean", "glossary"),
    "report": ("report demo --to demo.html", "report before after --to both.html --price-per-hour 12.5"),
    "web": ("web results",),
    "index": ("index results training_results_v1.1",),
    "history": ("history benchmark=resnet_mini since=2026-11", "history --to history.html"),
    "export": ("export demo --to demo.zip",),
    "replay": ("replay demo.zip --only-check", "replay demo.zip --to again"),
    "package": ("package demo --to submission",),
    "new": (
        "new benchmark waves",
        "new benchmark mine --without-code",
        "new trainer moons --plain",
        "new trainer moons --lightning",
    ),
    "check": ("check benchmark=waves",),
}
"""Commands as they are typed, the usual one first, by verb."""

FIRST_STEPS = (
    "list mini",
    "run benchmark=resnet_mini output=demo",
    "report demo --to demo.html",
    "run --help",
)


def module_of(verb: str) -> str:
    """Module of a verb: the file of its name, `_` for `-`."""
    return f"train_bench.cli.commands.{verb.replace('-', '_')}"


def examples(verb: str) -> str:
    """Examples of a verb as they are typed; empty for one without."""
    lines = [_command(words) for words in EXAMPLES.get(verb, ())]
    return "\n".join(["Examples:", *lines, ""]) if lines else ""


def _command(words: str) -> str:
    """A command that fits the terminal; a shell reads its lines as one."""
    width = min(WIDEST, shutil.get_terminal_size().columns)
    lines = ["  train-bench"]
    for word in re.findall(r"(?:'[^']*'|[^\s'])+", words):
        if len(lines[-1]) + len(word) + len(" \\ ") > width:
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += f" {word}"
    return "\n".join(lines)


def help_page() -> str:
    """Page of `train-bench --help`."""
    lines = ["train-bench VERB ...: measure the time to train a model to a given quality.", ""]
    lines += ["Begin with:", *(f"  train-bench {words}" for words in FIRST_STEPS), ""]
    for name, verbs in GROUPS.items():
        lines += [f"{name}:", *(line for verb in verbs for line in _lines(verb)), ""]
    return "\n".join([*lines, NOTES])


def _lines(verb: Verb) -> list[str]:
    """A verb on lines that fit the terminal."""
    begin = f"  {f'{verb.name:<10} {verb.arguments}':<28} "
    width = min(WIDEST, shutil.get_terminal_size().columns)
    return textwrap.wrap(verb.does, width, initial_indent=begin, subsequent_indent=" " * 31)


NOTES = """\
Verbs with [OVERRIDE ...] are Hydra applications; their options are overrides:
benchmark=resnet_mini, launcher=torchrun, runs=3, seed=1, output=DIR, ...;
--help documents those of a campaign, --help-all each, --cfg job prints the
configuration, --multirun sweeps. Every verb has --help.

eval "$(train-bench -sc install=bash)" completes verbs and options in this
shell (also zsh and fish).

Exit code 0: valid. 1: it ran, but the result is invalid or incomplete.
2: the request was wrong. 3: undecided (compare, compare-revisions, accept,
equivalent). 75: interrupted, and it can be resumed.
"""
