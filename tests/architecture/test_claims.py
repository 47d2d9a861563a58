"""What a benchmark says about MLPerf: its claim follows from the table of verification in its reference's README."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.sandbox import ROOT
from tools import claims
from train_bench.plan import discover

CODE = "the reference's own code at d0a86d6"
VERIFIED = dict.fromkeys(claims.ASPECTS, CODE)
OFFICIAL = [
    name
    for name in discover.variants()
    if (described := discover.describe_variant(name))["benchmark"] == name
    and described["ruleset"] != "mini-1.0"
]


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({}, "as MLPerf Training v1.1 defines it"),
        (
            {"loss": "published log result_0.txt", "evaluation": "rules text, Quality measure"},
            "as MLPerf Training v1.1 defines it",
        ),
        ({"loss": "library only"}, "after MLPerf Training v1.1 (loss not verified)"),
        (
            {"data": "not verified", "loss": "library only", "schedule": "not verified"},
            "after MLPerf Training v1.1 (loss, schedule and data not verified)",
        ),
        ({"schedule": "differs"}, "after MLPerf Training v1.1 (schedule differs)"),
        (
            {"architecture": "differs", "data": "differs", "loss": "not verified"},
            "after MLPerf Training v1.1 (architecture and data differ, loss not verified)",
        ),
    ],
)
def test_a_claim_follows_from_what_verified_each_aspect(changed: dict[str, str], claim: str) -> None:
    assert claims.claim("1.1", VERIFIED | changed) == claim


def table(**changed: str) -> str:
    """A README with the table of one benchmark."""
    rows = "".join(f"| {aspect} | {by} | a test |\n" for aspect, by in (VERIFIED | changed).items())
    return f"# Waves\n\n| Aspect of `waves` | Verified by | Held by |\n|---|---|---|\n{rows}\nMore.\n"


@pytest.mark.parametrize("aspect", claims.ASPECTS)
@pytest.mark.parametrize("by", ["library only", "not verified", "differs"])
def test_one_row_that_is_open_takes_the_claim_away(aspect: str, by: str) -> None:
    (read,) = claims.tables(table(**{aspect: by})).values()
    assert read[aspect] == by
    assert aspect in claims.claim("1.1", read) and "defines it" not in claims.claim("1.1", read)


@pytest.mark.parametrize("by", ["torchvision", "the reference's own code", "published log", "verified", ""])
def test_a_row_without_a_known_witness_is_refused(by: str) -> None:
    with pytest.raises(ValueError, match="waves, loss"):
        claims.tables(table(loss=by))


def test_a_table_without_an_aspect_is_refused() -> None:
    text = "".join(line for line in table().splitlines(keepends=True) if not line.startswith("| data"))
    with pytest.raises(ValueError, match="its aspects are"):
        claims.tables(text)


@pytest.mark.parametrize("name", OFFICIAL)
def test_a_benchmark_of_mlperf_has_a_table_and_claims_what_it_supports(name: str) -> None:
    about = discover.about(name)
    assert claims.claims()[name] in about
    assert about.count("MLPerf") == 1


def test_nothing_else_claims_to_be_what_mlperf_defines() -> None:
    """Other variants, READMEs and docstrings of references do not say so."""
    others = [name for name in discover.variants() if name not in OFFICIAL]
    assert not [
        name for name in others if re.search("MLPerf.*define", discover.about(name)) and "_bs" not in name
    ]
    for path in [*ROOT.glob("references/**/*.md"), *ROOT.glob("references/**/*.py")]:
        assert not re.search(r"as\s+MLPerf\s+Training[^|]*?\bdefines?\b", path.read_text()), path


def test_tests_that_a_table_names_exist() -> None:
    for path in ROOT.glob("references/*/README.md"):
        for test in re.findall(r"`(tests/[\w/]+\.py)`", path.read_text()):
            assert (ROOT / test).is_file(), (path, test)


def test_claims_are_what_the_tool_writes() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "claims.py"), "--check"]
    checked = subprocess.run(tool, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
