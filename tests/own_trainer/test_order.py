"""The clock of a user's own program keeps the order that a reference's has: barriers, lines and looks at the machine in
one trace."""

import pytest

from tests.own_trainer.test_benchmark import VALUES, benchmark
from tests.run.fakes import TracedLog
from train_bench.run import events, processors


@pytest.fixture
def trace(monkeypatch):
    trace = []
    monkeypatch.setattr(events, "Log", lambda path, clock: TracedLog(trace))
    monkeypatch.setattr(processors, "read_cpu_times", lambda: trace.append("read CPU times"))
    return trace


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_passes_barriers_before_and_behind_the_start_and_nothing_delays_the_stop(
    tmp_path, trace, rank
):
    def broadcast(value):
        trace.append("from rank 0")
        return value

    one = benchmark(tmp_path, rank=rank, world_size=2, broadcast=broadcast)
    one.announce(**VALUES)
    one.init_start()
    trace.append("build")
    one.weights_initialized("weight")
    one.init_stop()
    one.run_start(train_samples=1000, eval_samples=100)
    trace.append("read data")
    one.block_start()
    one.eval_start()
    one.report(0.9)
    assert trace == [
        *("log cache_clear", "log announce"),
        *("from rank 0", "log init_start"),
        *("build", "log initialized"),
        *("from rank 0", "log init_stop"),
        *("from rank 0", "read CPU times", "log run_start", "from rank 0"),
        *("log sizes", "read data"),
        *("log block_start", "log block_stop", "log extras", "log eval_start"),
        *("from rank 0", "log accuracy", "log eval_stop", "log run_stop"),
        *("read CPU times", "log processor_wait", "log loaded_code", "log values", "log close"),
    ]
