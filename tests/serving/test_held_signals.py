"""What a handler of a signal raises reaches no callback of LoadGen: the test ends first, then a sentence says so."""

import signal
import threading

import pytest

from tests import needs
from train_bench.errors import LaunchError
from train_bench.serving.batching import Batching
from train_bench.serving.held_signals import held_signals
from train_bench.serving.loadgen_log import PERFORMANCE


@pytest.fixture(autouse=True)
def interrupt():
    """Ctrl-C raises, also where tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_noted_within_and_raised_again_afterwards():
    noted = []
    with held_signals(noted.append):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert [*map(type, noted)] == [KeyboardInterrupt, KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_error_within_brings_the_handlers_back():
    with pytest.raises(ValueError, match="within"), held_signals(pytest.fail):
        raise ValueError("within")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_raises_nothing_is_called_as_before(monkeypatch):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        with held_signals(pytest.fail):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]


def test_a_thread_that_handles_no_signals_changes_no_handler():
    found = []

    def within():
        with held_signals(pytest.fail):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=within)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


class Interrupted:
    """A system that is interrupted in the midst of `where`."""

    def __init__(self, where):
        self.where, self.answered = where, 0

    def served_samples(self):
        return 10

    def load_samples(self, indices):
        if self.where == "load_samples":
            signal.raise_signal(signal.SIGINT)

    def unload_samples(self, indices):
        pass

    def answer(self, indices):
        self.answered += 1
        if self.where == "answer":
            signal.raise_signal(signal.SIGINT)
        if self.where == "exit":
            raise SystemExit(3)
        return [b"1234" for _ in indices]


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
@pytest.mark.parametrize("where", ["load_samples", "answer", "exit"])
def test_an_interrupted_test_ends_with_a_sentence(tmp_path, scenario, where):
    needs.package("mlperf_loadgen")
    from train_bench.serving import loadgen

    seeds = {"qsl_rng_seed": 1, "sample_index_rng_seed": 2, "schedule_rng_seed": 3}
    load = loadgen.Load(
        scenario=scenario, mode=PERFORMANCE, rate=100.0, min_duration_ms=50, min_queries=64, seeds=seeds
    )
    system = Interrupted(where)
    cause = "SystemExit" if where == "exit" else "KeyboardInterrupt"
    with pytest.raises(LaunchError, match=rf"The test .*test was ended by {cause}, .*; serve again\."):
        loadgen.run_test(tmp_path / "test", load, system, Batching())
    if where == "load_samples" or scenario == "SingleStream":
        assert system.answered == (where != "load_samples")
    assert (tmp_path / "test" / "mlperf_log_detail.txt").stat().st_size
