"""`train-bench gpu-check`: parts that hang, fail and are continued, the budget, files of others, and the answer."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from train_bench.cli.commands import gpu_check as verb
from train_bench.core import git
from train_bench.errors import LaunchError, LogError, RequestError
from train_bench.gpu_check import check, parts
from train_bench.gpu_check.parts import NAMES, Part
from train_bench.gpu_check.probe import Probe

IDENTITY = {"device": "cpu", "accelerator": None, "processor": "Toy", "cores": 2, "torch": "2.10"}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Shell scripts in place of the probes of three parts; each prints a figure."""
    names = ("facts", "peaks", "nccl")
    devices = {"nccl": "cuda"}
    made_parts = tuple(
        Part(name=name, shows="", seconds=1, limit=60, device=devices.get(name, "any")) for name in names
    )
    made = dict.fromkeys(names, "echo 'numbers {\"figure\": 1}'")
    made["identity"] = f"echo 'numbers {json.dumps(IDENTITY)}'"
    monkeypatch.setattr(check, "PARTS", made_parts)
    monkeypatch.setattr(check, "probe_command", lambda part, *_: ("sh", "-c", made[part.name]))
    monkeypatch.setattr(git, "revision", lambda root: "a" * 40)
    return made


def ran(*options: str) -> tuple[int, dict[str, dict]]:
    """Exit code, and the parts in the file by their name."""
    code = verb.main(["--output", "checked", *options])
    return code, {part["name"]: part for part in content()["parts"]}


def content() -> dict:
    return json.loads(Path("checked/gpu_check.json").read_text())


def limited_to(seconds: float, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [replace(part, limit=seconds) if part.name == name else part for part in check.PARTS]
    monkeypatch.setattr(check, "PARTS", tuple(changed))


def test_parts_run_in_order_and_what_needs_a_gpu_is_not_tried_on_a_cpu(scripts, capsys):
    code, found = ran()
    assert code == 0
    assert [(name, part["status"], part["tried"]) for name, part in found.items()] == [
        ("facts", "ok", True),
        ("peaks", "ok", True),
        ("nccl", "skipped", False),
    ]
    assert found["peaks"]["numbers"] == {"figure": 1}
    assert found["nccl"]["error"] == "needs a GPU"
    assert "nccl: not tried, needs a GPU" in capsys.readouterr().err


def test_a_part_that_hangs_is_ended_with_all_that_it_started_and_the_next_one_runs(scripts, monkeypatch):
    """Its limit is over once its child, in a session of its own, has begun."""
    limited_to(20.0, "facts", monkeypatch)
    child = Path.cwd() / "child"
    passing = SimpleNamespace(
        monotonic=lambda: time.monotonic() + (50 if child.exists() else 0), monotonic_ns=time.monotonic_ns
    )
    monkeypatch.setattr(check, "time", passing)
    began = f"import os, time; os.setsid(); open('{child}.new', 'w').write(str(os.getpid()))"
    began += f"; os.rename('{child}.new', '{child}'); time.sleep(600)"
    scripts["facts"] += f'; {sys.executable} -c "{began}" & sleep 600'
    code, found = ran()
    assert code == 1
    assert (found["facts"]["status"], found["facts"]["error"]) == ("timeout", "ended after 20 s by its limit")
    assert found["facts"]["numbers"] == {"figure": 1}
    assert found["peaks"]["status"] == "ok"
    command = Path(f"/proc/{child.read_text()}/cmdline")
    assert not command.exists() or not command.read_bytes()  # nobody has waited for a zombie yet


def test_a_part_that_fails_says_so_and_the_next_one_runs(scripts, capsys):
    scripts["facts"] += "; echo no driver >&2; exit 3"
    code, found = ran()
    assert code == 1
    assert (found["facts"]["status"], found["facts"]["error"]) == ("failed", "exit code 3: no driver")
    assert (found["facts"]["numbers"], found["facts"]["stderr_tail"]) == ({"figure": 1}, "no driver\n")
    assert found["peaks"]["status"] == "ok"
    assert "- facts: failed: exit code 3: no driver" in Path("checked/gpu_check.md").read_text()
    assert "facts: failed: exit code 3: no driver" in capsys.readouterr().out


def test_a_file_is_continued_with_what_was_not_tried_and_then_with_what_failed(scripts):
    order = Path.cwd() / "order"
    for name in ("facts", "peaks", "nccl"):
        scripts[name] += f"; echo {name} >> {order}"
    scripts["facts"] += "; exit 3"
    ran("--only", "facts")
    scripts["facts"] = scripts["facts"].replace("; exit 3", "")
    code, found = ran()
    assert code == 0
    assert order.read_text().split() == ["facts", "peaks", "facts"]
    assert [part["status"] for part in found.values()] == ["ok", "ok", "skipped"]
    ran()
    assert order.read_text().split() == ["facts", "peaks", "facts"]


def test_a_part_that_the_budget_cut_off_is_the_first_of_the_next_sitting(scripts, monkeypatch):
    monkeypatch.setattr(check, "LEAST_SECONDS", 0.0)
    limited_to(600.0, "facts", monkeypatch)
    begun = Path.cwd() / "begun"
    passing = SimpleNamespace(
        monotonic=lambda: time.monotonic() + (50 if begun.exists() else 0), monotonic_ns=time.monotonic_ns
    )
    monkeypatch.setattr(check, "time", passing)
    scripts["facts"] += f"; touch {begun}; sleep 600"
    _, found = ran("--minutes", "0.5")
    monkeypatch.setattr(check, "time", time)
    assert (found["facts"]["status"], found["facts"]["cut"]) == ("timeout", True)
    assert found["facts"]["error"].endswith("by the budget")
    order = Path.cwd() / "order"
    scripts["facts"] = f"echo facts >> {order}"
    scripts["peaks"] = f"echo peaks >> {order}"
    ran()
    assert order.read_text().split() == ["facts", "peaks"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"revision": "b" * 40}, r"was measured at revision b+, and this is a+\. Give another --output"),
        ({"sources": "other"}, "was measured at sources other, and this is"),
        ({"version": 1}, r"is not a file of gpu-check 2\. Give another --output"),
        (
            {"machine": IDENTITY | {"processor": "Tea"}},
            "another machine: its processor is Tea, and here it is Toy",
        ),
        (
            {"machine": IDENTITY | {"device": "cuda"}},
            "another machine: its device is cuda, and here it is cpu",
        ),
    ],
)
def test_a_file_of_another_machine_or_revision_is_refused_and_stays(scripts, change, sentence):
    ran("--only", "facts")
    path = Path("checked/gpu_check.json")
    path.write_text(json.dumps(content() | change))
    before = path.read_text()
    with pytest.raises(RequestError, match=sentence):
        check.check(check.Settings(folder=Path("checked")), lambda _: None)
    assert path.read_text() == before


@pytest.mark.parametrize("change", [{"machine": []}, {"parts": [{"name": "facts"}]}, {"parts": 3}])
def test_a_damaged_file_is_refused_in_a_sentence(scripts, change):
    ran("--only", "facts")
    Path("checked/gpu_check.json").write_text(json.dumps(content() | change))
    with pytest.raises(LogError, match=r"gpu_check\.json has content of another type"):
        check.check(check.Settings(folder=Path("checked")), lambda _: None)


def test_a_probe_gets_the_benchmark_of_its_part_and_on_a_cpu_its_mini():
    part = next(part for part in parts.PARTS if part.name == "profile_bert")
    command = check.probe_command(part, "cpu", Path("out"))
    assert command[1:4] == ("-m", "train_bench.gpu_check.probes", "profile")
    assert command[4:] == (
        "--device",
        "cpu",
        "--folder",
        "out/parts/profile_bert",
        "--benchmark",
        "bert_midi",
    )
    assert Probe("cpu", Path(), "bert_midi").benchmark == "bert_mini"
    assert Probe("cuda", Path(), "bert_midi").benchmark == "bert_midi"


def test_facts_of_the_machine_may_change_from_sitting_to_sitting(scripts):
    scripts["facts"] = "echo 'numbers {\"shm_bytes\": 1}'"
    ran("--only", "facts")
    assert content()["machine"] == IDENTITY | {"shm_bytes": 1}
    _, found = ran()
    assert found["peaks"]["status"] == "ok"


def test_programs_of_bench_find_their_neighbours_from_a_probe_of_a_checkout(scripts, monkeypatch):
    changed = [replace(part, checkout=True) for part in check.PARTS]
    monkeypatch.setattr(check, "PARTS", tuple(changed))
    scripts["facts"] = f"{sys.executable} -c \"import importlib.util as u; assert u.find_spec('planned')\""
    _, found = ran("--only", "facts")
    assert (found["facts"]["status"], found["facts"]["error"]) == ("ok", None)


def test_the_file_is_whole_after_each_part(scripts):
    scripts["peaks"] += f"; cp {Path.cwd()}/checked/gpu_check.json {Path.cwd()}/between.json"
    ran()
    assert [part["name"] for part in json.loads(Path("between.json").read_text())["parts"]] == ["facts"]


def test_without_a_budget_no_part_is_tried(scripts, capsys):
    code, found = ran("--minutes", "0.1")
    assert (code, list(found)) == (0, ["nccl"])
    assert "facts: left out, " in capsys.readouterr().err
    assert "Not tried: nccl (needs a GPU), facts, peaks, " in Path("checked/gpu_check.md").read_text()


def test_a_part_that_is_longer_than_what_is_left_is_left_out_on_a_gpu(scripts, monkeypatch):
    scripts["identity"] = (
        f"echo 'numbers {json.dumps(IDENTITY | {'device': 'cuda', 'accelerator': 'Toy 1'})}'"
    )
    changed = [replace(part, seconds=100) if part.name == "facts" else part for part in check.PARTS]
    monkeypatch.setattr(check, "PARTS", tuple(changed))
    _, found = ran("--minutes", "1")
    assert list(found) == ["peaks", "nccl"]


def test_a_device_that_is_not_there_is_a_sentence(scripts):
    scripts["identity"] = "echo '--device is cuda, and torch finds cpu here.' >&2; exit 1"
    with pytest.raises(
        LaunchError, match=r"The device was not found: --device is cuda, and torch finds cpu here\."
    ):
        ran("--device", "cuda")


def test_without_torch_the_command_that_installs_it_is_said(scripts):
    scripts["identity"] = "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1"
    with pytest.raises(RequestError, match=r"gpu-check needs torch: pip install '.*\[references\]'"):
        ran()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--only", "facts,speed"], "There is no part 'speed'; parts are facts, peaks"),
        (["--minutes", "-1"], "--minutes is -1; give a finite number above 0"),
        (["--minutes", "nan"], "--minutes is nan; give a finite number above 0"),
    ],
)
def test_a_wrong_request_starts_nothing(scripts, words, sentence):
    with pytest.raises(RequestError, match=sentence):
        ran(*words)
    assert not Path("checked").exists()


def test_peaks_and_shares_of_a_comparison_follow_from_the_parts():
    row = {"name": "bert", "precision": "bf16", "batch": 4, "ours": 100.0, "flop_per_step": 4e12}
    content = {"peaks": {"bf16": 4e14}, "machine": {"accelerator": "NVIDIA H100 80GB HBM3"}}
    found = check._row(row, content, {"bert": {"ratio": 0.97}})
    assert found["mfu"] == pytest.approx(0.25)
    assert found["share_of_data_sheet"] == pytest.approx(1e14 / 989.5e12)
    assert found["memory_over_dry"] == 0.97
    unknown = check._row({**row, "precision": "fp32"}, content, {})
    assert (unknown["mfu"], unknown["share_of_data_sheet"], unknown["memory_over_dry"]) == (None, None, None)
    assert check._peaks({"bf16_tflops": 800.0, "h2d_pinned_gb_s": 55.0, "other": 1}) == {
        "bf16": 8e14,
        "h2d": 5.5e10,
    }


@pytest.mark.parametrize(
    ("needs", "device", "reason"),
    [
        ("any", "xpu", None),
        ("gpu", "xpu", None),
        ("gpu", "cpu", "needs a GPU"),
        ("cuda", "xpu", "needs CUDA, and the device is xpu"),
        ("trains", "xpu", "runs train on cpu and cuda, and the device is xpu"),
        ("trains", "cuda", None),
    ],
)
def test_a_part_says_why_it_is_not_tried_on_a_device(needs, device, reason):
    assert Part(name="facts", shows="", seconds=1, limit=1, device=needs).obstacle(device) == reason


def test_parts_of_a_checkout_are_not_tried_without_one(monkeypatch, tmp_path):
    part = next(part for part in parts.PARTS if part.name == "references")
    assert part.obstacle("cpu") is None
    monkeypatch.setattr(parts.discover, "ROOT", tmp_path)
    assert part.obstacle("cpu") == "needs a checkout of train_bench with the extra dev"


def test_every_part_has_its_probe_where_it_says():
    from bench.gpu import probes as of_checkout
    from train_bench.gpu_check import probes as installed

    for module, found in ((parts.HERE, installed), (parts.CHECKOUT, of_checkout)):
        named = {part.probe or part.name for part in parts.PARTS if part.module == module}
        assert {*found.PROBES} - {"identity"} == named
    assert len({*NAMES}) == len(NAMES)


def test_the_page_of_documentation_has_the_table_of_the_parts():
    text = (parts.discover.ROOT / "docs" / "gpu" / "README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")][: len(NAMES)]
    for part, row in zip(parts.PARTS, rows, strict=True):
        star = " *" if part.checkout else ""
        assert row.startswith(f"| `{part.name}`{star} | {part.shows}")
        assert row.endswith(f"| {part.seconds:g} |")
