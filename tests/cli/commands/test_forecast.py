"""train-bench forecast: from each of its sources, and what it refuses."""

import json

import pytest

from tests import needs
from tests.command_line import train_bench, typed
from tests.needs import CORPUS
from train_bench.cli.commands import forecast
from train_bench.errors import RequestError

NVIDIA = ("--published", "NVIDIA", "--accelerator", "NVIDIA A100-SXM4-80GB")


def asked(capsys, *arguments):
    """The object of `forecast --json`."""
    assert forecast.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_published_entries_forecast_a_system_that_nobody_has_built(capsys):
    found = asked(
        capsys, "benchmark=resnet", *NVIDIA, "--accelerators", "512", "--batch-size", "16384", "--price", "2"
    )

    assert (found["batch_size"], found["ranks"], found["ruleset"]) == (16384, 512, "training-2.1.0")
    assert found["score"]["80%"][0] < found["score"]["median"] < found["score"]["80%"][1]
    assert (
        0.6 < found["score"]["median"] < 1.2
    )  # between the 64 and the 1024 accelerators that were published
    assert found["cost"]["median"] == pytest.approx(found["run"]["median"] / 60 * 512 * 2 * found["runs"])
    assert "NVIDIA in v2.1" in found["pace"]["message"]


def test_what_lies_beyond_the_entries_or_the_points_is_called_extrapolated(capsys):
    found = asked(capsys, "benchmark=resnet", *NVIDIA, "--accelerators", "8192", "--batch-size", "131072")

    assert found["convergence"]["extrapolated"]
    assert "above the largest point" in found["convergence"]["message"]
    assert any("8192 accelerators, fitted to 8 to 4216" in note for note in found["pace"]["notes"])


@pytest.mark.full
@pytest.mark.parametrize("columns", ["80", "200"])
def test_advice_is_a_table_of_batch_sizes_on_each_number_of_ranks(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert (
        forecast.main(
            [
                "benchmark=resnet",
                *NVIDIA,
                "--accelerators",
                "64",
                "--batch-size",
                "4096",
                "--advise",
                "64,512",
            ]
        )
        == 0
    )

    told = " ".join(capsys.readouterr().out.split())
    assert "fastest" in told
    assert "point -" in told
    assert "above points" in told
    assert "extrapolated" in told
    assert "…" not in told


@needs.corpus
def test_logs_of_others_forecast_what_they_needed(capsys):
    entry = CORPUS / "v1.1" / "Graphcore" / "results" / "ipu-pod16-POPART-closed" / "bert"

    found = asked(capsys, "--from", str(entry))

    low, high = found["score"]["95%"]
    assert low < 32.697 < high  # published minutes
    assert found["ranks"] is None


def test_a_stated_throughput_takes_the_benchmark_as_it_would_be_run():
    answer = typed("forecast", "benchmark=resnet_mini", "--throughput", "900", "--json")

    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["run"]["median"] == pytest.approx(found["position"]["median"] * 2691 / 900 / 60, rel=0.01)
    assert found["pace"]["source"] == "stated"


@pytest.mark.full
def test_a_probe_runs_as_many_blocks_as_it_is_told_and_its_folder_can_be_asked_again(tmp_path, capsys):
    answer = train_bench(
        "forecast", "benchmark=resnet_mini", f"output={tmp_path / 'probe'}", "--probe-blocks", "2", "--json"
    )

    assert answer.returncode == 0, answer.stderr
    probed = json.loads(answer.stdout)
    assert probed["pace"]["source"] == "probe"
    assert "2 block(s) of 1 run(s)" in probed["pace"]["message"]
    assert probed["points_digest"]
    again = asked(capsys, "--from", str(tmp_path / "probe"))
    assert again["score"] == probed["score"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["benchmark=resnet", "--throughput", "0"], "The throughput is 0"),
        (["benchmark=bert_wikitext", "--throughput", "9"], "has no reference convergence points"),
        (["benchmark=minigo_mini", "--throughput", "9"], "counts generations"),
        (["launcher=slurm", "benchmark=resnet_mini"], "add launcher.wait=true"),
        (["--probe-blocks", "0"], "a probe has at least 1 block"),
        (["--runs", "0"], "--runs is 0"),
        (["--price", "-1"], "--price is -1"),
        (["--accelerators", "8"], "--accelerators is for --published"),
        (["--evaluation-seconds", "8"], "--evaluation-seconds is for --throughput"),
        (["--from", "results", "benchmark=resnet_mini"], "leave out benchmark=resnet_mini"),
        (
            ["benchmark=resnet", "--published", "NVIDIA"],
            "--published needs --accelerator, --accelerators, --batch",
        ),
        (
            ["benchmark=resnet", *NVIDIA, "--accelerators", "0", "--batch-size", "8"],
            "--accelerators is 0",
        ),
        (
            ["benchmark=resnet", *NVIDIA[:3], "A", "--accelerators", "8", "--batch-size", "8"],
            "no published entries of resnet by NVIDIA with A",
        ),
        (
            ["benchmark=resnet", *NVIDIA, "--accelerators", "8", "--batch-size", "8", "--advise", "x"],
            "--advise is x",
        ),
    ],
)
def test_what_cannot_be_forecast_is_refused_with_a_sentence(arguments, sentence, capsys):
    if arguments[0] == "launcher=slurm" or "--throughput" in arguments:
        answer = typed("forecast", *arguments)
        assert answer.returncode == 2
        assert sentence in answer.stderr
        return
    with pytest.raises(RequestError) as refused:
        forecast.main(arguments)
    assert sentence in str(refused.value)


@needs.corpus
def test_the_logs_of_two_campaigns_are_not_mixed(capsys):
    with pytest.raises(RequestError, match="campaigns; give one of them"):
        forecast.main(["--from", str(CORPUS / "v1.1" / "Graphcore")])
