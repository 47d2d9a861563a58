"""A plain loop of torch trains to resnet_mini's target."""

from tests.own_trainer import trained


def test_a_plain_loop_reaches_the_target_as_the_reference_does(plain):
    assert plain[-1] >= 0.86 > max(plain[:-1])


def test_a_benchmark_adds_at_most_fifteen_lines_to_it():
    text = (trained.PROGRAMS / "plain_loop.py").read_text()
    assert 1 <= text.count("  # new\n") <= 15
    for line in text.splitlines():
        if "enchmark" in line.split("#")[0] and not line.startswith('"""') and "def " not in line:
            assert "# new" in line or "benchmark.seed" in line, line
