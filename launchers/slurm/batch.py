"""Slurm batch scripts, and parsers of what sbatch, squeue, sacct and scontrol print."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from train_bench.core.job import Device, Job
from train_bench.errors import RequestError
from train_bench.launcher import SAFE_PATH, BatchTask, Launch
from train_bench.launchers.slurm import refusals
from train_bench.launchers.slurm.config import Config
from train_bench.launchers.slurm.start import FIRST_NODE

# Job states of Slurm, as its job_state_string() spells them: slurm.h has them all, as base states and flags, of which
# sacct and scontrol show one. A job has not ended in any but ENDS, in those that a later Slurm adds neither.
UNDER_WAY = {
    "PENDING": "is pending",
    "CONFIGURING": "is configuring: its nodes boot",
    "RUNNING": "is running",
    "SUSPENDED": "is suspended",
    "STOPPED": "is stopped by a signal",
    "SIGNALING": "is being signalled",
    "RESIZING": "is resizing",
    "COMPLETING": "is completing",
    "STAGE_OUT": "is staging out data",
    "REQUEUED": "is requeued",
    "REQUEUE_FED": "is requeued by the federation",
    "EXPEDITING": "is checked for an expedited requeue",
    "REQUEUE_HOLD": "is requeued and held (scontrol release lets it run, scancel ends it)",
    "SPECIAL_EXIT": "is requeued and held (scontrol release lets it run, scancel ends it)",
    "RESV_DEL_HOLD": "is held, as its reservation was deleted (scancel ends it)",
}
ENDS = {
    "COMPLETED": "is done",
    "FAILED": "failed",
    "TIMEOUT": "ran into its time limit",
    "DEADLINE": "ran into its deadline",
    "PREEMPTED": "was preempted",
    "CANCELLED": "was cancelled",
    "NODE_FAIL": "ended because a node failed",
    "BOOT_FAIL": "did not start because a node failed to boot",
    "OUT_OF_MEMORY": "ran out of memory",
    "REVOKED": "was revoked, as another cluster of the federation has started it",
}
# Exit code 75 is that of a campaign that can go on from a checkpoint. A job that a user has cancelled does not run.
TASK = '"${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}"'
REQUEUE = (
    f'if [ $code = 75 ] && [ "$(squeue --noheader --format=%T --jobs={TASK})" = RUNNING ]; '
    f"then scontrol requeue {TASK}; fi"
)
# `run` ends with a code only if on_failure=stop: runs that have not begun do not, either.
OTHERS_STAY = 'if [ $code != 0 ] && [ $code != 75 ]; then scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"; fi'
FIELD = re.compile(r"(\w+)=(\S*)")


class Batch:
    """One job, or an array with a task per run."""

    needs = "sbatch"
    elsewhere = False

    def __init__(self, config: Config) -> None:
        self.config = config
        self.wait = config.wait

    def inside(self, environ: Mapping[str, str]) -> bool:
        """In a batch script, or in a shell of salloc."""
        return "SLURM_JOB_ID" in environ

    def refuse_allocation(self, environ: Mapping[str, str]) -> str | None:
        """Fewer nodes than the runs need."""
        allocated = int(environ.get("SLURM_JOB_NUM_NODES", "1"))
        if allocated < self._nodes:
            return (
                f"{self._nodes} node(s) are required, but the allocation of Slurm job "
                f"{environ['SLURM_JOB_ID']} has {allocated}; nothing was started."
            )
        return None

    def refuse_job(self, job: Job) -> str | None:
        """GPUs that are required and not requested."""
        words = " ".join(self.config.extra)
        if (
            job.device is not Device.cuda
            or self.config.gres is not None
            or "--gpus" in words
            or "--gres" in words
        ):
            return None
        return (
            f"device=cuda needs GPUs, and the job requests none; add launcher.gres=gpu:{job.nproc_per_node}, or the "
            "option of this cluster in launcher.extra=\"['--gpus-per-node=N']\". Nothing was started."
        )

    def submission(self, jobs: Sequence[Job], run_argv: tuple[str, ...]) -> Launch:
        """`<folder>/slurm/job.sh`, submitted."""
        path = jobs[0].folder / "slurm" / "job.sh"
        return Launch(argv=("sbatch", "--parsable", str(path)), files={path: self._script(jobs, run_argv)})

    def settlement(self, folder: Path, batch_job: str, settle_argv: tuple[str, ...]) -> Launch:
        """`<folder>/slurm/settle.sh`, submitted to wait for the job."""
        options = [
            f"--job-name=settle_{batch_job}",
            "--ntasks=1",
            f"--output={folder}/slurm/settle_%j.out",
            f"--dependency=afterany:{batch_job}",
            *self._where(),
        ]
        path = folder / "slurm" / "settle.sh"
        text = _text(options, [f"exec {shlex.join(settle_argv)}"])
        return Launch(argv=("sbatch", "--parsable", str(path)), files={path: text})

    def queries(self, batch_job: str) -> tuple[tuple[str, ...], ...]:
        """The queue, which lists what has not ended; the accounting, which not every cluster has; and the controller,
        which forgets after minutes."""
        accounting = ("sacct", "--allocations", "--noheader", "--parsable2", "--jobs", batch_job)
        return (
            ("squeue", "--noheader", "--array", "--format=JobId=%i JobState=%T", "--jobs", batch_job),
            (*accounting, "--format=JobID,State,ExitCode"),
            ("scontrol", "--oneliner", "show", "job", batch_job),
        )

    def tasks(self, accounting: str) -> tuple[BatchTask, ...]:
        """One line per task: `12_0|TIMEOUT|0:0` of sacct, `JobId=12 ... JobState=TIMEOUT ...` of the others."""
        tasks = []
        for line in accounting.splitlines():
            fields = dict(FIELD.findall(line))
            if "JobState" in fields:
                name = fields["JobId"]
                if "ArrayTaskId" in fields:
                    name = f"{fields['ArrayJobId']}_{fields['ArrayTaskId']}"
                tasks.append(_task(name, fields["JobState"], fields.get("ExitCode", "")))
            elif line.count("|") == 2:
                tasks.append(_task(*line.split("|")))
        return tuple(tasks)

    def explain(self, refused: str) -> str:
        """Slurm's own words, with the next step."""
        return refusals.explain(refused)

    def cancellation(self, batch_job: str) -> str:
        """scancel."""
        return f"scancel {batch_job}"

    @property
    def _nodes(self) -> int:
        """Nodes of one job, or of one task of an array."""
        return self.config.nodes * (1 if self.config.array else self.config.parallel)

    def _where(self) -> list[str]:
        config = self.config
        named = {"partition": config.partition, "account": config.account}
        return [f"--{name}={value}" for name, value in named.items() if value is not None]

    def _script(self, jobs: Sequence[Job], run_argv: tuple[str, ...]) -> str:
        config = self.config
        indices = [job.index for job in jobs]
        options = [
            f"--job-name={jobs[0].benchmark}",
            f"--nodes={self._nodes}",
            f"--ntasks={self._nodes * config.nproc_per_node}",
            f"--ntasks-per-node={config.nproc_per_node}",
            *_ends_early(jobs[0]),
            f"--output={jobs[0].folder}/slurm/{'%A_%a' if config.array else '%j'}.out",
            *self._where(),
        ]
        if config.cpus_per_rank is not None:
            options.append(f"--cpus-per-task={config.cpus_per_rank}")
        if config.time is not None:
            options.append(f"--time={config.time}")
        if config.gres is not None:
            options.append(f"--gres={config.gres}")
        options += ["--exclusive"] if config.exclusive else []
        if config.exclude is not None:
            options.append(f"--exclude={config.exclude}")
        if config.mem is not None:
            options.append(f"--mem={config.mem}")
        if config.array:
            options.append(f"--array={','.join(map(str, indices))}%{config.parallel}")
            commands = [f'{shlex.join(run_argv)} "only=[$SLURM_ARRAY_TASK_ID]"']
        elif config.parallel == 1:
            commands = [_command(run_argv, indices)]
        else:
            commands = self._side_by_side(indices, run_argv)
        before = self._on_each_node(jobs[0], "prolog", config.prolog, "exit 1")
        after = self._on_each_node(jobs[0], "epilog", config.epilog, "[ $code = 75 ] || code=1")
        if config.array:
            after.append(OTHERS_STAY)
        if jobs[0].checkpoint_seconds is not None:
            after.append(REQUEUE)
        if len(commands) == 1 and not after:
            return _text([*options, *config.extra], [*before, f"exec {commands[0]}"])
        return _text([*options, *config.extra], [*before, *_together(commands), *after, "exit $code"])

    def _side_by_side(self, indices: list[int], run_argv: tuple[str, ...]) -> list[str]:
        return [
            f"{FIRST_NODE}={slot * self.config.nodes} {_command(run_argv, indices[slot :: self.config.parallel])}"
            for slot in range(min(self.config.parallel, len(indices)))
        ]

    def _on_each_node(self, job: Job, name: str, command: str | None, otherwise: str) -> list[str]:
        """Lines that carry out a command of the user on every node of the job; its output is in a file per node."""
        if command is None:
            return []
        config, nodes = self.config, self._nodes
        step = [
            "srun",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            "--kill-on-bad-exit=1",
        ]
        if config.cpus_per_rank is not None:
            step.append(f"--cpus-per-task={config.cpus_per_rank * config.nproc_per_node}")
        step += [f"--output={job.folder}/slurm/%j_{name}_%N.out", "sh", "-c", command]
        said = f"echo 'launcher.{name} failed; its output is in {job.folder}/slurm' >&2"
        return [f"{shlex.join(step)} || {{ {said}; {otherwise}; }}"]


def _ends_early(job: Job) -> list[str]:
    """Options for the end of a job before its time. One that is requeued would hide its preemption, unless its runs go
    on from checkpoints, and log it."""
    if job.checkpoint_seconds is None:
        return ["--no-requeue"]
    return ["--requeue", "--open-mode=append", f"--signal=B:TERM@{math.ceil(job.grace_seconds)}"]


def _text(options: list[str], commands: list[str]) -> str:
    """A batch script. Its commands find no modules in the folder from which it was submitted."""
    for option in options:
        if not option.isprintable():
            raise RequestError(f"{option!r} is more than one option of sbatch; each is one line.")
    environment = [f"export {name}={value}" for name, value in SAFE_PATH.items()]
    return "\n".join(
        ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "", *environment, *commands, ""]
    )


def _together(commands: list[str]) -> list[str]:
    """Lines that carry out commands at the same time and pass signals on; `$code` is that of one that fails, before all
    others 75."""
    again = 'while kill -0 "$process" 2> /dev/null; do wait "$process"; done; wait "$process"; last=$?'
    return [
        "trap 'kill -TERM $(jobs -p)' HUP TERM USR1 USR2",
        *(f"{command} & processes+=($!)" for command in commands),
        "code=0",
        f'for process in "${{processes[@]}}"; do {again}; [ $last = 0 ] || [ $code = 75 ] || code=$last; done',
    ]


def _command(run_argv: tuple[str, ...], indices: list[int]) -> str:
    return shlex.join((*run_argv, f"only=[{','.join(map(str, indices))}]"))


def _task(name: str, state: str, exit_code: str) -> BatchTask:
    word = state.partition(" ")[0]  # sacct appends the user who cancelled: "CANCELLED by 0"
    code, _, number = exit_code.partition(":")
    how = ENDS.get(word) or UNDER_WAY.get(word) or f"is in the state {word!r}, which counts as not ended"
    if word == "FAILED":
        how = f"failed with exit code {code}" if number in ("", "0") else f"failed with signal {number}"
    return BatchTask(name=name, ended=word in ENDS, good=word == "COMPLETED", how=how)
