"""Refusals of Slurm's commands in sentences, with the next step."""

from __future__ import annotations

import re

REFUSED = (
    (
        r"unable to contact slurm controller|socket timed out|connection refused|zero bytes were transmitted|"
        r"unable to establish|gave no answer|in backup mode",
        "The controller does not answer; scontrol ping shows its state. Try again later.",
    ),
    (
        r"authentication|job credential|munge",
        "munge, its key or the clock differs between hosts; munge -n | ssh NODE unmunge shows it.",
    ),
    (
        r"denied|not permitted to use|invalid user id",
        "Ask for the right to it, or choose another partition or account: launcher.partition=, launcher.account=.",
    ),
    (r"invalid partition", "Choose one with launcher.partition=NAME; sinfo lists them."),
    (
        r"invalid account",
        "Choose one with launcher.account=NAME; sacctmgr show associations user=$USER lists yours.",
    ),
    (
        r"\bqos\b|job violates accounting|assoc(?:grp|max)",
        "Ask for less with launcher.nodes= and launcher.time=, or name another QOS in launcher.extra='[--qos=NAME]'; "
        "sacctmgr show qos lists their limits.",
    ),
    (
        r"time limit|time specification|invalid time",
        "Give launcher.time= within that of the partition; sinfo --format='%P %l' prints it.",
    ),
    (
        r"generic resource|\bgres\b|trackable resource",
        "Give launcher.gres= as the nodes have it; sinfo --format='%P %G' prints it.",
    ),
    (
        r"feature specification",
        "Give --constraint in launcher.extra as the nodes have it; sinfo --format='%P %f' prints it.",
    ),
    (
        r"invalid node name",
        "Check launcher.exclude=, and --nodelist in launcher.extra; sinfo --Node lists the nodes.",
    ),
    (
        r"memory specification|memory required",
        "Reduce launcher.mem=, or leave it to the cluster with launcher.mem=null; sinfo --format='%P %m' prints MB.",
    ),
    (
        r"node configuration is not available|node count|more processors requested|too many (?:nodes|tasks)|"
        r"only allocated",
        "Reduce launcher.nodes, launcher.nproc_per_node, launcher.cpus_per_rank or launcher.gres; "
        "sinfo --format='%P %D %c %m %G' prints what the nodes have.",
    ),
    (
        r"invalid job id|job has already finished",
        "It has ended, or is another cluster's; sacct --jobs=NUMBER prints what the accounting has of it.",
    ),
    (
        r"--container-(?:image|mounts)",
        "This cluster lacks pyxis, whose options these are; launcher.container_runtime=apptainer does without.",
    ),
    (
        r"unrecognized|unknown option|requires an argument|invalid (?:argument|directive|option|.*specification)",
        "Correct it in launcher.extra (options of sbatch) or launcher.srun_extra (of srun).",
    ),
)
"""What Slurm says when it refuses, and the next step."""

OTHERWISE = (
    "sbatch --test-only DIR/slurm/job.sh tries the script again, DIR being the folder of the campaign."
)


def next_step(said: str) -> str | None:
    """The next step after what a command of Slurm said; None if it is not known."""
    return next((step for pattern, step in REFUSED if re.search(pattern, said, re.IGNORECASE)), None)


def explain(said: str) -> str:
    """What sbatch said when it refused, with the next step."""
    return f"{said.rstrip('.')}. {next_step(said) or OTHERWISE}"
