"""`bench/gpu_check.py`: parts that hang, fail and are resumed, the budget, ranges of figures, and the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench import gpu_check
from bench.gpu.page import page, verdicts
from bench.gpu.probes import PROBES
from bench.gpu.table import NAMES, PARTS, Expected, Part, out_of_range


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Shell scripts in place of the probes of three parts; each prints a figure."""
    parts = tuple(Part(name, "", 1, 60, needs_gpu=name == "nccl") for name in ("facts", "peaks", "nccl"))
    made = {part.name: "echo 'numbers {\"figure\": 1}'" for part in parts}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    monkeypatch.setattr(gpu_check, "probe_command", lambda name, *_: ["sh", "-c", made[name]])
    return made


def check(*options: str) -> tuple[int, dict[str, dict]]:
    """Exit code, and the parts in the file by their name."""
    code = gpu_check.main(["--to", "check.json", "--device", "cpu", *options])
    return code, {part["name"]: part for part in json.loads(Path("check.json").read_text())["parts"]}


def limited_to(seconds: float, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [replace(part, limit=seconds) if part.name == name else part for part in gpu_check.PARTS]
    monkeypatch.setattr(gpu_check, "PARTS", tuple(changed))


def test_parts_run_in_order_and_what_needs_a_gpu_is_not_tried_on_a_cpu(scripts):
    code, parts = check()
    assert code == 0
    assert [(part["status"], part["tried"]) for part in parts.values()] == [
        ("ok", True),
        ("ok", True),
        ("skipped", False),
    ]
    assert parts["peaks"]["numbers"] == {"figure": 1}
    assert parts["nccl"]["error"] == "needs a GPU"


def test_a_part_that_hangs_is_killed_with_all_that_it_started_and_the_next_one_runs(scripts, monkeypatch):
    limited_to(2.0, "facts", monkeypatch)
    here = Path.cwd()
    scripts["facts"] += f"; setsid sleep 600 & echo $! > {here}/child; sleep 600"
    code, parts = check()
    assert code == 1
    assert (parts["facts"]["status"], parts["facts"]["error"]) == ("timeout", "killed after 2 s")
    assert parts["facts"]["numbers"] == {"figure": 1}
    assert parts["peaks"]["status"] == "ok"
    child = Path(f"/proc/{(here / 'child').read_text().strip()}/cmdline")
    assert not child.exists() or not child.read_bytes()  # nobody has waited for a zombie yet


def test_a_part_that_fails_says_so_and_the_next_one_runs(scripts):
    scripts["facts"] += "; echo no driver >&2; exit 3"
    code, parts = check()
    assert code == 1
    assert (parts["facts"]["status"], parts["facts"]["error"]) == ("failed", "ended with 3: no driver")
    assert (parts["facts"]["numbers"], parts["facts"]["stderr_tail"]) == ({"figure": 1}, "no driver\n")
    assert parts["peaks"]["status"] == "ok"
    assert "- facts: failed: ended with 3: no driver" in Path("check.md").read_text()


def test_a_file_is_continued_with_what_was_not_tried_and_then_with_what_failed(scripts):
    here = Path.cwd()
    for name in scripts:
        scripts[name] += f"; echo {name} >> {here}/order"
    scripts["facts"] += "; exit 3"
    check("--only", "facts")
    scripts["facts"] = scripts["facts"].replace("; exit 3", "")
    code, parts = check("--resume", "check.json")
    assert code == 0
    assert (here / "order").read_text().split() == ["facts", "peaks", "facts"]
    assert [part["status"] for part in parts.values()] == ["ok", "ok", "skipped"]
    check("--resume", "check.json")
    assert (here / "order").read_text().split() == ["facts", "peaks", "facts"]


def test_a_file_of_another_device_is_not_continued(scripts):
    check()
    content = json.loads(Path("check.json").read_text())
    Path("check.json").write_text(json.dumps(content | {"device": "cuda"}))
    with pytest.raises(SystemExit, match=r"check\.json was measured with device cuda, and this is cpu"):
        check("--resume", "check.json")


def test_the_file_is_whole_after_each_part(scripts):
    here = Path.cwd()
    scripts["peaks"] += f"; cp {here}/check.json {here}/between.json"
    check()
    assert [part["name"] for part in json.loads(Path("between.json").read_text())["parts"]] == ["facts"]


def test_without_a_budget_no_part_is_tried(scripts, capsys):
    code, parts = check("--minutes", "0.1")
    assert (code, parts) == (0, {})
    assert "facts: left out" in capsys.readouterr().out
    assert f"Not tried: {', '.join(NAMES)}." in Path("check.md").read_text()


def test_a_part_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        gpu_check.main(["--only", "facts,speed"])
    assert "there is no part 'speed'; parts are facts, peaks" in capsys.readouterr().err


def test_every_part_has_its_probe():
    assert [*PROBES] == [part.name for part in PARTS]


def test_lines_of_a_probe_are_put_together():
    lines = ('numbers {"a": 1, "references": [1]}', "else", 'numbers {"a": 2, "references": [2]}')
    assert gpu_check.numbers_of("\n".join(lines)) == {"a": 2, "references": [1, 2]}


@pytest.mark.parametrize(
    ("numbers", "outside"),
    [
        (
            {"one": {"ratio": 1.0}, "other": {"ratio": 0.5}},
            ["memory: other.ratio is 0.5, expected 0.9 to 1.1: off."],
        ),
        ({"one": {"ratio": 1.05}, "note": "none"}, []),
        ({"one": {"ratio": float("nan")}}, ["memory: one.ratio is nan, expected 0.9 to 1.1: off."]),
        ({}, []),
    ],
)
def test_a_figure_outside_its_range_is_said(numbers, outside):
    assert [*out_of_range(Expected("memory", "*.ratio", 0.9, 1.1, "off"), numbers)] == outside


def content(*parts: dict, gpu: str | None = "NVIDIA H100 80GB HBM3") -> dict:
    machine = {} if gpu is None else {"gpu": gpu}
    made = {"version": "1", "revision": "abc", "date": "today", "machine": machine, "references": []}
    full = [{"status": "ok", "tried": True, "seconds": 1.0, "error": None, **part} for part in parts]
    return made | {"parts": full, "verdicts": []}


def test_a_cpu_is_held_to_no_range_and_a_gpu_to_those_of_its_name():
    slow = {"name": "peaks", "numbers": {"bf16_8192_tflops": 300.0, "triad_tb_s": 3.0}}
    (sentence,) = verdicts(content(slow))
    assert sentence.startswith("peaks: bf16_8192_tflops is 300, expected 600 to 990")
    assert verdicts(content(slow, gpu=None)) == []


def test_a_reference_below_its_peer_is_a_verdict_and_first_in_the_table():
    row = {
        "precision": "bf16",
        "batch": 8,
        "ours": 1.0,
        "peer": 1.0,
        "rival": "a loop",
        "low": 0.8,
        "high": 1.3,
    }
    rows = [{**row, "name": "quick", "ratio": 1.2}, {**row, "name": "slow", "ratio": 0.9}]
    given = content({"name": "references", "numbers": {"references": rows}})
    given |= {"references": rows, "verdicts": verdicts(given)}
    assert given["verdicts"] == [
        "references: slow against a loop.ratio is 0.9, expected 1 to 100: the reference is slower than its peer."
    ]
    text = page(given)
    assert text.index("- references: slow") < text.index("| slow, bf16") < text.index("| quick, bf16")


def test_folder_of_a_check_is_gone_afterwards(scripts, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    check()
    assert [*tmp_path.iterdir()] == []
