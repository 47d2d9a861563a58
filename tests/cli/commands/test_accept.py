"""`train-bench accept` as it is typed, with fake nodes."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from train_bench.cli.exit_codes import guarded
from train_bench.cli.program import command
from train_bench.errors import RequestError
from train_bench.fleet.names import nodes_of
from train_bench.plan.option import with_folder

FAKE = Path(__file__).parents[2] / "fleet" / "fake_node.py"
BY = f"{shlex.join([sys.executable, '-S', str(FAKE)])} {{node}}"


def accept(folder, *words):
    """The exit code of an acceptance, and what it wrote."""
    given = ["benchmark=resnet_mini", with_folder("output", folder), "--by", BY, "--repeats", "2", *words]
    code = guarded(lambda: command("accept")(given))
    written = folder / "accept.json"
    return code, json.loads(written.read_text()) if written.exists() else None


def test_a_good_fleet_gives_0_a_page_and_a_file(tmp_path, capsys):
    code, told = accept(tmp_path / "fleet", "a", "b", "c:10.0.0.3")
    printed = capsys.readouterr().out
    assert (code, told["verdict"]) == (0, "good")
    assert "All nodes are good." in printed
    assert [node["address"] for node in told["nodes"]] == ["a", "b", "10.0.0.3"]
    assert [one["nodes"] for one in told["together"]] == [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b", "c"]]
    assert "seed=1 runs=1 benchmark.evaluation.until=4" in told["job"]["words"]
    assert (tmp_path / "fleet" / "accept.html").stat().st_size < 100_000


def test_an_ill_node_gives_1_and_is_named_first_of_all(tmp_path, capsys):
    page = tmp_path / "vendor" / "fleet.html"
    code, _ = accept(tmp_path / "fleet", "a", "bit", "c", "hostile", "--alone", "--to", str(page))
    told = json.loads(page.with_suffix(".json").read_text())
    assert code == 1
    assert [node["verdict"] for node in told["nodes"]] == ["good", "sick", "good", "cannot tell"]
    assert [finding["nodes"] for finding in told["findings"]] == [["bit"]]
    assert "bit computes incorrectly" in capsys.readouterr().out
    assert "<script>" not in page.read_text().split("</head>")[1]
    assert "bit computes incorrectly" in page.read_text()


def test_each_accelerator_has_a_verdict_and_the_node_its_mfu_by_the_measured_peak(tmp_path, capsys):
    names = ("a", "throttled", "loadless", "d")
    code, told = accept(tmp_path / "fleet", *names, "--alone", "--load", "0.1")
    assert code == 1
    by_name = {node["name"]: node for node in told["nodes"]}
    assert [gpu["verdict"] for gpu in by_name["throttled"]["load"]["gpus"]] == ["good"] * 3 + ["sick"]
    assert by_name["a"]["verdict"] == by_name["d"]["verdict"] == "good"
    assert {finding["nodes"][0]: finding["kind"] for finding in told["findings"]} == {
        "throttled": "gpu",
        "loadless": "lost",
    }
    printed = capsys.readouterr().out
    assert (
        "throttled has GPU 3 (Fake G, throttled-3) with 0.0045 TFLOP/s of matrix products, 25 % below"
        in printed
    )
    assert "under load clocks.sm 1200 MHz" in printed
    # 900 samples in 10 s, 1.84e7 FLOP each, against 6 GFLOP/s of the one accelerator that trains.
    assert by_name["a"]["mfu"] == pytest.approx(90 * 1.84e7 / 6e9)
    assert " 27.6 " in printed
    page = (tmp_path / "fleet" / "accept.html").read_text()
    assert page.count("<td>FAULTY</td>") == 1 and page.count('<td class="text">Fake G</td>') == 12
    (kind,) = told["types"]
    assert kind["accelerators"]["Fake G"]["product"] == pytest.approx(6e9, rel=1e-6)


@pytest.mark.full
def test_what_cannot_be_told_gives_3_and_with_a_baseline_it_can(tmp_path):
    before = tmp_path / "before" / "accept.json"
    assert accept(before.parent, "a")[0] == 3
    assert accept(tmp_path / "same", "b", "--against", str(before))[0] == 0
    code, told = accept(tmp_path / "slow", "slow", "--against", str(before))
    assert code == 1
    assert "slow takes 100 % longer than the baseline" in told["findings"][0]["sentence"]
    code, told = accept(tmp_path / "wrong", "bit", "--against", str(before))
    assert code == 1
    assert "has another result than the baseline" in told["findings"][0]["sentence"]


def test_a_folder_has_any_name_and_options_of_hydra_have_values(tmp_path):
    code, told = accept(tmp_path / "a, b", "a", "--alone", "--config-dir", str(tmp_path))
    assert (code, [node["name"] for node in told["nodes"]]) == (3, ["a"])


def test_nodes_are_told_where_configurations_of_ones_own_are(tmp_path):
    accept(tmp_path / "fleet", "a", "b", "--config-dir", str(tmp_path), "--repeats", "1")
    for training in ("alone_1/a", "pairs/a+b"):
        words = json.loads((tmp_path / "fleet" / training / "words.json").read_text())
        assert words[:2] == ["run", f"--config-dir={tmp_path}"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Name each node of the fleet once"),
        (["a", "a"], "Name each node of the fleet once"),
        (["a b"], "'a b' is not a valid node name"),
        (["../a"], "'../a' is not a valid node name"),
        (["a", "--repeats", "0"], "--repeats is 0; it is at least 1."),
        (["a", "--load", "-1"], "--load is -1; it is 0 to 3600 (seconds)."),
        (["a", "--noise", "0"], "--noise is 0; it is above 0"),
        (["a", "--by", "ssh n1"], "it names the node as {node}"),
        (["a", "--by", "ssh '{node}"], "cannot be split into words: no closing quotation"),
        (["a", "--to", "/proc/none/page.html"], "the folder of --to=/proc/none cannot be written"),
        (["a", "--to", "fleet.html", "--against", "fleet.json"], "would write over fleet.json"),
        (["a", "--to", "page.txt"], "give the name of a page"),
        (["a", "launcher=slurm"], "finds its nodes itself, or queues"),
        (["a", "--against", "nothing.json"], "There is no file nothing.json"),
        (["a", "benchmark=resnet", "drop_caches=true"], "seed=1 fixes the seeds"),
        (["a", "command=true"], "command= is for run, plan, rcp and forecast"),
        (["a", "resume=x"], "resume= is for run and rcp"),
    ],
)
def test_a_wrong_request_is_refused_before_any_node_is_reached(tmp_path, capsys, words, sentence):
    code, told = accept(tmp_path / "fleet", *words)
    assert (code in (1, 2), told) == (True, None)
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "fleet").exists()


TYPES = [
    f'{{"job": {{"digest": "RIGHT"}}, "types": [{{"name": "x", "noise": 0.1, {rest}}}]}}'
    for rest in (
        '"pace": 1, "outcome": null, "versions": []',
        f'"pace": 1{"0" * 400}, "outcome": null, "versions": {{}}',
        '"pace": 1, "outcome": {"order": "o", "evaluations": 3, "weights": "w"}, "versions": {}',
        '"pace": 1, "outcome": null, "versions": {}, "accelerators": {"H": {"product": 0}}',
    )
]


@pytest.fixture(scope="module")
def digest(tmp_path_factory):
    """Of the training that nodes are accepted by."""
    return accept(tmp_path_factory.mktemp("first") / "fleet", "a", "--alone")[1]["job"]["digest"]


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"job": {"digest": "?"}, "types": []}',
        '{"job": {"digest": "RIGHT"}, "types": [{"name": 1}]}',
        *TYPES,
    ],
)
def test_a_baseline_that_is_none_or_of_another_training_is_refused(tmp_path, capsys, content, digest):
    written = tmp_path / "baseline.json"
    written.write_text(content.replace("RIGHT", digest))
    code, told = accept(tmp_path / "fleet", "a", "--against", str(written))
    assert (code, told) == (2, None)
    assert str(written) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "name", "address"),
    [
        ("n1", "n1", "n1"),
        ("me@n1", "me@n1", "n1"),
        ("n1:10.0.0.1", "n1", "10.0.0.1"),
        ("n1:2001:db8::1", "n1", "2001:db8::1"),
        ("n1:[2001:db8::1]", "n1", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1", "2001:db8::1"),
        ("[fd00::7]", "fd00::7", "fd00::7"),
        ("::1", "::1", "::1"),
    ],
)
def test_a_node_may_be_an_ipv6_address(word, name, address):
    (node,) = nodes_of([word])
    assert (node.name, node.address) == (name, address)


def test_an_ipv6_address_with_a_zone_is_no_node():
    with pytest.raises(RequestError, match="is not a valid node name"):
        nodes_of(["fe80::1%eth0"])
