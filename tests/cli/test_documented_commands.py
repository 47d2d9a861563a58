"""Every `train-bench run`, `plan` and `accept` of README files and pages can be planned: nothing but missing data,
programs and hosts would keep it from running, and full scales fit GPUs of 80 GB unless the command names others."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.sandbox import ROOT
from train_bench.campaign import refusals
from train_bench.campaign.opened import Campaign
from train_bench.cli import composing, hydra_app, plan_dry
from train_bench.cli.commands import accept
from train_bench.errors import RequestError
from train_bench.fleet import names
from train_bench.fleet.settings import Settings
from train_bench.launchers.torchrun.config import Config as TorchrunConfig
from train_bench.plan.request import Request
from train_bench.plan.run_config import TRAITS

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "tutorials" / "accept-a-cluster.md",
    *sorted(ROOT.glob("references/**/README.md")),
    ROOT / "bench" / "README.md",
]
COMMAND = re.compile(
    r"^(?: {4}|\$ )?(?:(?:docker|apptainer|srun) .*\s)?train[-_]bench(?:\.sif)? (run|plan|accept) (.+)$",
    re.MULTILINE,
)
OF_THE_READER = re.compile(r"benchmark=(\./\S+|waves|moons)|\bresume=|\bDIR\b|hydra/launcher=|python=/venv")
"""Benchmarks that the reader has made (`test_tutorials.py` and `tests/template` run them), campaigns of before,
placeholders, sweeps by packages of their own, and another environment."""

CARD = "memory_gb=80"


def documented() -> Iterator[tuple[str, str]]:
    """Pages and commands, each command once."""
    known = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for verb, typed in COMMAND.findall(text):
            words = re.split(r" +#| \|\| | && ", typed)[0].strip()
            words = f"accept {re.sub(r'[$][(].*?[)]', 'n1 n2', words)}" if verb == "accept" else words
            if not OF_THE_READER.search(words) and words not in known:
                known.add(words)
                yield str(page.relative_to(ROOT)), words


CASES = list(documented())


def refused(words: str) -> list[str]:
    """The sentences against a command, but for those on what a machine lacks."""
    given = shlex.split(words)
    if given[0] == "accept":
        given = _of_acceptance(given[1:])
    options, overrides = plan_dry.parse(_of_plan(given))
    if not any(word.startswith("memory_gb=") for word in overrides):
        overrides.append(CARD)
    found: list[str] = []

    def act(request: Request) -> int:
        for one in (request, *([request.against] if request.against else [])):
            found.extend(_sentences(one, options.dry, options.ranks))
        return 0

    try:
        hydra_app.with_request("plan", overrides, act)
    except RequestError as error:
        found.append(str(error))
    return found


def _of_acceptance(words: list[str]) -> list[str]:
    """The overrides of an acceptance whose options and nodes it takes."""
    options, others = composing.parse(accept._parser(), words)
    overrides, named = accept._parted(others)
    Settings(**{name: getattr(options, name) for name in Settings.__slots__}).refuse()
    assert names.nodes_of(named)
    return overrides


def _of_plan(words: list[str]) -> list[str]:
    """Without the options that `plan` does not take, and of a sweep the first job."""
    others = {name for name, one in TRAITS.items() if one.verbs and "plan" not in one.verbs}
    kept = [word for word in words if word.partition("=")[0] not in others]
    if "-m" in kept:
        kept = [re.sub(r"^(\w+=[^,\[]*),.*", r"\1", word) for word in kept if word != "-m"]
    return kept


def _sentences(request: Request, dry: bool, ranks: int | None) -> Iterator[str]:
    if ranks is not None:
        launcher = request.config.launcher
        if launcher.name == "inline":
            launcher = TorchrunConfig()
        launcher = replace(launcher, nodes=1, nproc_per_node=ranks)
        request = replace(request, config=replace(request.config, launcher=launcher))
    try:
        campaign = Campaign.planned(request, to_be_run=not dry)
    except RequestError as error:
        if not (dry and "benchmark.start_weights names no" in str(error)):  # a dry run reads none
            yield str(error)
        return
    if not dry:
        yield from refusals.memory(campaign)
        if campaign.queue is not None and (reason := campaign.queue.refuse_job(campaign.first)):
            yield reason


def test_commands_are_found_on_many_pages() -> None:
    pages = {page for page, _ in CASES}
    assert {"README.md", "docs/fleets.md", "docs/launchers.md", "references/llama31_8b/README.md"} <= pages
    assert len(CASES) > 60


@pytest.mark.parametrize("name", ["64-nodes", "64-nodes-slurm", "launchers", "fleets"])
def test_no_command_of_a_page_on_clusters_is_passed_over(name: str) -> None:
    """Those that are not planned here are of a campaign that exists already, or of a reader's placeholder."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S))
    lines = [
        line for line in blocks.splitlines() if re.search(r"train[-_]bench(\.sif)? (run|plan|accept)\b", line)
    ]
    assert lines
    passed_over = [line for line in lines if not COMMAND.match(line) and "exec python -m" not in line]
    assert passed_over == []


@pytest.mark.parametrize(("page", "words"), CASES)
def test_a_documented_command_can_be_planned(page: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    assert refused(words) == [], page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("benchmark=llama31_8b_bs32 precision=bf16 drop_caches=true", "which has 80 GB (memory_gb=80)"),
        ("benchmark=resnet launcher=torchrun", "demands cleared caches"),
        ("benchmark=resnet_mini launcher.zero=1", "There is no option"),
        ("benchmark=resnet_mini launcher=slurm device=cuda", "the job requests none"),
        ("benchmark=llama31_8b --dry --ranks 3", "cannot be divided into 3 ranks"),
    ],
)
def test_a_command_that_would_be_refused_is_found(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    assert said in " ".join(refused(words))
