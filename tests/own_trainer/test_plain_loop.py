"""A plain loop of torch trains to resnet_mini's target, and libraries that train alike find the same on the way."""

import pytest

from tests.own_trainer import trained

EPOCHS = 3


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The accuracies of a plain loop of torch, to the target."""
    folder = tmp_path_factory.mktemp("plain") / "out"
    trained.output("plain_loop.py", str(folder), "1")
    return trained.accuracies(folder)


@pytest.mark.full
def test_a_plain_loop_reaches_the_target_as_the_reference_does(plain):
    assert plain[-1] >= 0.73 > max(plain[:-1])


@pytest.mark.full
@pytest.mark.parametrize("program", ["accelerate_loop.py", "lightning_loop.py"])
def test_a_library_finds_on_one_rank_to_the_last_digit_what_the_plain_loop_finds(
    tmp_path, plain, program, monkeypatch
):
    monkeypatch.setenv("EPOCHS", str(EPOCHS))
    trained.output(program, str(tmp_path / "out"), "1")
    assert trained.evaluated(tmp_path / "out") == plain[:EPOCHS]


def test_a_benchmark_adds_at_most_eight_lines_to_it():
    text = (trained.PROGRAMS / "plain_loop.py").read_text()
    assert 1 <= text.count("  # new\n") <= 8
    for line in text.splitlines():
        if "enchmark" in line.split("#")[0] and not line.startswith('"""') and "def " not in line:
            assert "# new" in line or "benchmark.seed" in line, line
