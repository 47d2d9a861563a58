"""Results tables: every entry once, in three formats that agree."""

import csv
import io

import pytest
from rich.console import Console

from train_bench.report import findings, results_table
from train_bench.report.console import print_line
from train_bench.report.score_table import failures_in_words, summary


def entry(**changes):
    content = {
        "submitter": "us",
        "system": "box|1",
        "benchmark": "resnet",
        "variant": None,
        "ruleset": "training-1.1.0",
        "division": "closed",
        "runs": [],
        "runs_required": 5,
        "seeds": None,
        "launcher": None,
        "world_size": None,
        "olympic_minutes": 10.0,
        "stdev_minutes": None,
        "ci95_minutes": None,
        "rcp": {"verdict": "pass", "factor": 1.25, "message": "fine", "slower": False},
        "score_minutes": 12.5,
        "normalised": None,
        "valid": True,
        "reasons": [],
        "disturbed": None,
        "verified": None,
        "official_verdict": {"accepted": True, "rcp": {"verdict": "pass"}},
        "findings": [],
    }
    return content | changes


def test_a_csv_has_one_line_per_entry_below_its_headings():
    text = results_table.as_csv({"entries": [entry(), entry(score_minutes=None)]})
    read = list(csv.DictReader(io.StringIO(text)))
    assert [row["score_minutes"] for row in read] == ["12.5000", ""]
    assert read[0]["system"] == "box|1"
    assert set(read[0]) == set(results_table.HEADINGS)


def test_markdown_keeps_its_columns_whatever_a_name_holds():
    lines = results_table.as_markdown({"entries": [entry()]}).splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("accepted", "verdict", "shown"),
    [(True, "pass", "accepted"), (False, "fail", "refused"), (None, "crash", "crash"), (None, "none", "")],
)
def test_the_official_verdict_accepts_refuses_crashes_or_does_not_know(accepted, verdict, shown):
    official = {"accepted": accepted, "rcp": {"verdict": verdict}}
    assert results_table.rows({"entries": [entry(official_verdict=official)]})[0][-1] == shown


def on_a_terminal(show, content):
    console = Console(file=io.StringIO(), width=80)
    show(content, console)
    return console.file.getvalue()


def test_a_terminal_says_why_an_entry_is_not_valid_and_the_summary():
    content = {
        "entries": [entry(), entry(valid=False, reasons=["Two runs are missing."])],
        "summary": {"of": "minutes", "value": 12.5, "weights": {}},
    }
    shown = on_a_terminal(results_table.show, content)
    assert "Two runs are missing." in shown
    assert "custom summary (weighted geometric mean of minutes): 12.5" in shown


def of_campaign(folder, **changes):
    content = {"folder": folder, "launcher": "torchrun", "world_size": 2, "variant": "resnet_mini"}
    return entry(
        **(content | {"created": "2026-11-22T01:02:03+00:00", "revision": "0123456789abcd+changes"} | changes)
    )


def test_campaigns_of_one_machine_are_told_apart():
    content = {
        "entries": [of_campaign("/tmp/x/one"), of_campaign("/tmp/x/two", world_size=1)],
        "unjudged": [],
    }
    for shown in (on_a_terminal(results_table.show, content), on_a_terminal(findings.show, content)):
        assert "resnet_mini in one" in shown
        assert "resnet_mini in two" in shown
        text = " ".join(shown.split())
        for part in ("2026-11-22 01:02:03", "torchrun, 2 rank(s)", "1 rank(s)", "01234567+changes"):
            assert part in text
    read = list(csv.DictReader(io.StringIO(results_table.as_csv(content))))
    assert [(row["folder"], row["ranks"]) for row in read] == [("/tmp/x/one", "2"), ("/tmp/x/two", "1")]
    assert "| revision |" in results_table.as_markdown(content)
    assert "| revision |" not in results_table.as_markdown({"entries": [entry()]})


def test_a_verdict_has_its_colour_on_a_terminal_only():
    for terminal, colours in (
        (True, ["\x1b[32mVALID", "\x1b[1;31mNOT VALID"]),
        (False, ["VALID", "NOT VALID"]),
    ):
        console = Console(
            file=io.StringIO(),
            force_terminal=terminal,
            color_system="standard" if terminal else None,
            _environ={},
        )
        print_line(console, "VALID")
        print_line(console, "NOT VALID: Two runs are missing.")
        lines = console.file.getvalue().splitlines()
        assert [line.startswith(colour) for line, colour in zip(lines, colours, strict=True)] == [True, True]


def test_a_factor_that_the_round_does_not_apply_is_shown_as_such():
    (line,) = [line for line in summary(entry(score_minutes=10.0)) if line.startswith("score")]
    assert line.endswith("the olympic mean, RCP factor 1 (RCP factor 1.2500, not applied by this round)")
    (line,) = [line for line in summary(entry()) if line.startswith("score")]
    assert "RCP factor 1.2500: the runs converged faster than the reference" in line
    assert line.endswith("olympic mean 10.0000 min x 1.2500 = 12.5000 min")


def test_what_is_of_converged_runs_only_says_so():
    runs = [{"converged": True, "compliant": True}] * 4 + [{"converged": False, "compliant": True}]
    assert failures_in_words({"runs": runs[:4]}) == ""
    assert "; 1 of 5 runs failed: as the slowest, it is not in the mean" in failures_in_words({"runs": runs})


def finding_of(check, grade, file="result_0.txt"):
    run = {"file": file, "status": "success", "converged": True, "compliant": True}
    return run | {"findings": [{"check": check, "grade": grade, "line": 3, "message": "Look here."}]}


def test_one_entry_shows_every_finding_once_and_several_show_their_kinds():
    runs = [finding_of("time", "review"), finding_of("time", "review", "result_1.txt")]
    alone = on_a_terminal(findings.show, {"entries": [entry(runs=runs)], "unjudged": []})
    assert alone.count("Look here.") == 1
    assert "(2 of 2 logs) Look here." in alone
    among = on_a_terminal(findings.show, {"entries": [entry(runs=runs), entry()], "unjudged": []})
    assert among.count("Look here.") == 1
    assert "2 of 2 logs, result_0.txt line 3" in among
    assert "2 of 2 entries are valid." in among


def test_opinions_of_the_official_checkers_are_told_with_what_they_agree_with():
    opinions = [
        {"checker": "rcp", "verdict": "crash", "message": "KeyError: 'dlrm'", "agrees": True},
        {"checker": "seeds", "verdict": "fail", "message": "", "agrees": False},
        {"checker": "package", "verdict": "pass", "message": "", "agrees": None},
    ]
    shown = on_a_terminal(findings.show, {"entries": [entry(official=opinions)], "unjudged": []})
    assert "official rcp: crash, agrees (KeyError: 'dlrm')" in shown
    assert "official seeds: fail, DISAGREES" in shown
    assert "official package: pass, our judge has no verdict to compare" in shown
