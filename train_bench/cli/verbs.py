"""Table of the verbs; each is a file of its name in `commands/`, and only the one that is typed is loaded."""

from __future__ import annotations

from dataclasses import dataclass


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
        Verb("list", "", "List benchmarks and launchers"),
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
        Verb("judge", "PATH [--json]", "Check a log, a campaign or a tree of results for compliance"),
        Verb("score", "PATH [--json]", "Score a campaign, or print the results table of a tree"),
        Verb("rules", "benchmark=NAME", "Show what a round allows: values, runs, target, schedule"),
        Verb(
            "rcp",
            "[OVERRIDE ...]",
            "Run reference seeds and write a reference convergence point; --certainty",
        ),
        Verb("verify", "DIR [OPTION ...]", "Evaluate kept weights again and compare with the logged quality"),
        Verb(
            "review", "ROUND_DIR", "Review a round: one row of questions for each entry; --to FILE: as a page"
        ),
    ),
    "Understand": (
        Verb(
            "compare",
            "A B ...",
            "Compare the times of campaigns, with confidence; --fail-if-slower 3% is a gate",
        ),
        Verb(
            "equivalent",
            "A B",
            "Test whether two implementations are equivalent, and find the first difference",
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
            "accept",
            "[OVERRIDE ...]",
            "Accept a fleet: train on each NODE, on pairs and on all; name faulty nodes",
        ),
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
        Verb("new", "benchmark NAME", "Create a working example benchmark to adapt"),
        Verb("check", "[OVERRIDE ...]", "Check a benchmark against the contract"),
    ),
}

VERBS = tuple(verb.name for group in GROUPS.values() for verb in group)
COMPOSING = tuple(verb.name for group in GROUPS.values() for verb in group if verb.composes)


def help_page() -> str:
    """Page of `train-bench --help`."""
    lines = ["train-bench VERB ...: measure the time to train a model to a given quality.", ""]
    for name, verbs in GROUPS.items():
        lines += [f"{name}:", *(f"  {verb.name:<10} {verb.arguments:<17} {verb.does}" for verb in verbs), ""]
    return "\n".join([*lines, NOTES])


NOTES = """\
Verbs with [OVERRIDE ...] are Hydra applications; their options are overrides:
benchmark=resnet_mini, launcher=torchrun, launcher.nproc_per_node=2, runs=3, seed=1, output=DIR, resume=DIR, ...;
--help documents each, --cfg job prints the configuration, --multirun sweeps. Every verb has --help.

eval "$(train-bench -sc install=bash)" completes verbs and options in this shell (also zsh and fish).

Exit code 0: valid. 1: it ran, but the result is invalid or incomplete. 2: the request was wrong.
3: undecided (compare --fail-if-slower, accept).
"""
