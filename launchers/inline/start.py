"""One worker process, started directly."""

from __future__ import annotations

from train_bench.core.job import Job
from train_bench.launcher import Death, Launch
from train_bench.launchers.inline.config import Config
from train_bench.launchers.parts.exit_codes import how_it_ended
from train_bench.task import BenchmarkConfig


class Launcher:
    """Runs the only rank as a child process."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def refuse(self, benchmark: BenchmarkConfig) -> str | None:
        """Only one process on one machine."""
        if self.config.world_size != 1:
            return (
                f"launcher=inline runs one process; nodes={self.config.nodes} and "
                f"nproc_per_node={self.config.nproc_per_node} were requested. Use launcher=torchrun for more."
            )
        return None

    def launch(self, job: Job, rank_argv: tuple[str, ...]) -> Launch:
        """The rank's own command."""
        return Launch(argv=rank_argv)

    def deaths(self, exit_code: int, stderr: str) -> tuple[Death, ...]:
        """The exit code, which is all there is to report."""
        return (Death(rank=0, how=how_it_ended(exit_code)),) if exit_code else ()
