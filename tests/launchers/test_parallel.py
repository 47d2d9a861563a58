"""Every launcher starts the ranks that were asked for and keeps the promises of `Parallel` with two of them:
the numbers are those of one rank alone, whoever averages the gradients."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import cattrs
import pytest
import torch

from tests import needs
from tests.launchers.promises import training
from tests.references.configs import resnet
from tests.run.fakes import job
from tests.selection import others_in_full
from train_bench.core.job import Precision
from train_bench.launchers.parts.ddp import TorchParallel
from train_bench.plan import discover
from train_bench.references.resnet.data import prepare

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]  # DeepSpeed may have to compile
SEVERAL = {
    "torchrun": ("torchrun", {}),
    "torchrun, FSDP2": ("torchrun", {"shard": "fsdp"}),
    "horovod": ("horovod", {}),
    "deepspeed": ("deepspeed", {"zero_stage": 0}),
    "deepspeed, ZeRO 1": ("deepspeed", {"zero_stage": 1}),
    "deepspeed, ZeRO 2": ("deepspeed", {"zero_stage": 2}),
    "deepspeed, ZeRO 3": ("deepspeed", {"zero_stage": 3}),
    "deepspeed below torchrun": ("deepspeed", {"zero_stage": 1, "starter": "torchrun"}),
}
MIXED = ("torchrun", "torchrun, FSDP2", "horovod", "deepspeed", "deepspeed, ZeRO 2", "deepspeed, ZeRO 3")
"""Enough of them for bfloat16: ZeRO 1 and 2 share that code."""

QUICK = ("torchrun", "horovod")
"""In fp32 these are all of `make test`. DeepSpeed's ranks spin while they wait for each other, which takes minutes
where other tests run beside them."""

ASKED = (
    *((variant, Precision.fp32) for variant in SEVERAL),
    *((variant, Precision.fp16) for variant in (*MIXED, "deepspeed, ZeRO 1")),
    *((variant, Precision.bf16) for variant in MIXED),
)
"""Every variant and precision that a test asks for."""


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """The system's temporary folder of all ranks and launchers."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def start(tmp_path_factory, temporary):
    """What both ranks found under a variant and a precision. A launcher is started once for what is quick and once for
    all others of its own."""
    digits = tmp_path_factory.mktemp("digits")
    prepare(resnet("resnet_mini"), digits, None)

    @cache
    def ended_ranks(starter, quick):
        jobs = {
            asked: _job(tmp_path_factory.mktemp("ranks"), *asked)
            for asked in ASKED
            if (_starter(asked[0]), _is_quick(*asked)) == (starter, quick)
        }
        first = next(iter(jobs.values()))
        written = {"jobs": [cattrs.unstructure(one) for one in jobs.values()], "digits": str(digits)}
        (first.folder / "asked.json").write_text(json.dumps(written))
        module = ("-m", "tests.launchers.promises", str(first.folder / "asked.json"))
        config = cattrs.structure(first.launcher_config, discover.launcher_config(first.launcher))
        launch = discover.launcher(config).launch(first, (sys.executable, *module))
        environment = os.environ | {"TMPDIR": str(temporary)} | dict(launch.env)
        failure = _failure(launch.argv, environment)
        return {asked: job.folder for asked, job in jobs.items()}, failure

    def results(variant, precision=Precision.fp32):
        folders, failure = ended_ranks(_starter(variant), _is_quick(variant, precision))
        if failure is not None:
            raise failure  # the same one each time: the first test to meet it fails, the others are skipped
        files = [folders[variant, precision] / f"{rank}.pt" for rank in range(2)]
        return [torch.load(file, weights_only=True) for file in files]

    return results


def _failure(argv, environment):
    """Start the ranks and wait for their end: None, or why they did not end with exit code 0."""
    how = {"capture_output": True, "text": True, "timeout": 800}
    try:
        ended = subprocess.run(argv, env=environment, **how)
    except subprocess.TimeoutExpired as error:
        return error
    if ended.returncode == 0:
        return None
    return AssertionError(f"exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")


def _starter(variant):
    """Variants with the same one are jobs of the same processes."""
    return "deepspeed below torchrun" if "below" in variant else SEVERAL[variant][0]


def _is_quick(variant, precision):
    return variant in QUICK and precision is Precision.fp32


def _job(folder, variant, precision):
    name, options = SEVERAL[variant]
    config = discover.launcher_config(name)(nproc_per_node=2)
    config = cattrs.structure(cattrs.unstructure(config) | options, type(config))
    return job(
        folder,
        launcher=name,
        launcher_config=cattrs.unstructure(config),
        nproc_per_node=2,
        precision=precision,
    )


@pytest.fixture(scope="module")
def alone():
    """What a single rank computes."""

    def results(**options):
        return training(TorchParallel(job(Path("out")), rank=0, local_rank=0, size=1), **options)

    return results


several = pytest.mark.parametrize("variant", needs.launchers(others_in_full(SEVERAL, QUICK)))
mixed = pytest.mark.parametrize("variant", needs.launchers(others_in_full(MIXED, QUICK)))


@several
def test_ranks_end_with_exit_code_0(start, variant):
    start(variant)


def test_torchrun_leaves_no_folder_of_logs(start, temporary):
    start("torchrun")
    assert not list(temporary.glob("torchelastic*"))


@several
def test_as_many_ranks_answer_as_were_asked(start, variant):
    assert [result["size"] for result in start(variant)] == [2, 2]


@several
@pytest.mark.parametrize(
    ("what", "options"),
    [("training", {}), ("accumulated", {"micro_batches": 2}), ("clipped", {"clip_norm": 0.01})],
)
def test_two_ranks_train_as_one_does(start, alone, variant, what, options):
    for result in start(variant):
        torch.testing.assert_close(result[what], alone(**options))


@several
def test_collectives_give_every_rank_what_they_promise(start, variant):
    first, second = (result["collectives"] for result in start(variant))
    for seen in (first, second):
        assert torch.equal(seen["started"], torch.zeros(3))
        assert torch.equal(seen["buffer"], torch.full((3,), 0.5))
        assert (seen["sum"], seen["mean"], seen["told"]) == (3.0, 1.5, "from 0")
        assert seen["counts"].tolist() == [1, 4]
    assert first["gathered"] == [{"rank": 0}, {"rank": 1}]
    assert second["gathered"] is None


@pytest.mark.parametrize("precision", others_in_full([Precision.fp32, Precision.fp16], [Precision.fp32]))
@mixed
def test_ranks_hold_the_same_after_training(start, variant, precision):
    found = start(variant, precision)[0]["replicas"]["shared"]
    assert found["equal"], found
    pieces = SEVERAL[variant][1].get("zero_stage", 0) > 0
    assert found["tensors"] == 7 + (1 if pieces else 6), "6 parameters and a buffer; momenta, or a probe"


@pytest.mark.parametrize(
    "variant", needs.launchers(others_in_full(["torchrun", "horovod", "deepspeed"], QUICK))
)
def test_ranks_whose_gradients_are_not_averaged_are_found(start, variant):
    found = start(variant)[0]["replicas"]["not averaged"]
    assert (found["equal"], found["first"]) == (False, "1.weight")
    assert found["largest_difference"] > 0


@pytest.mark.full
@pytest.mark.parametrize(
    "variant", needs.launchers(["deepspeed, ZeRO 1", "deepspeed, ZeRO 2", "deepspeed, ZeRO 3"])
)
def test_below_zero_a_probe_finds_gradients_that_are_not_averaged(start, variant):
    """Each rank has updated its piece of the one model that all hold."""
    found = start(variant)[0]["replicas"]["not averaged"]
    assert (found["differing"], found["first"]) == (1, "the average of a probe")
    assert found["largest_difference"] == 1.0, "gradients of 1 and 2"


@pytest.mark.full
@pytest.mark.parametrize("variant", needs.launchers(["deepspeed, ZeRO 1", "deepspeed, ZeRO 2"]))
def test_below_zero_pieces_that_are_not_gathered_are_found(start, variant):
    assert start(variant)[0]["replicas"]["not gathered"]["first"] == "1.weight"


@pytest.mark.parametrize("variant", needs.launchers(["torchrun", "horovod"]))
def test_local_parameters_are_neither_broadcast_nor_reduced(start, variant):
    for rank, result in enumerate(start(variant)):
        assert torch.equal(result["local"]["table"], torch.full((1, 4), float(rank)))
        assert torch.equal(result["local"]["gradient"], torch.full((1, 4), rank + 1.0))


@pytest.mark.full
@pytest.mark.parametrize("variant", needs.launchers(["deepspeed", "torchrun, FSDP2"]))
def test_local_parameters_are_refused_where_all_are_shared(start, variant):
    assert "sharded tables" in start(variant)[0]["local"]


@several
def test_batch_norm_over_several_ranks_is_refused_in_a_sentence(start, variant):
    assert "model_bn_span" in start(variant)[0]["batch norm"]


@several
def test_what_another_process_saved_is_continued_or_refused_where_only_a_piece_was_saved(start, variant):
    pieces = SEVERAL[variant][1].get("zero_stage", 0) > 0
    said = start(variant)[1]["checkpoint"]
    assert (said is not None) == pieces
    assert not pieces or "cannot continue from a checkpoint" in said


@pytest.mark.parametrize("variant", needs.launchers(others_in_full(list(SEVERAL)[1:], QUICK[1:])))
def test_the_first_epoch_of_the_benchmark_is_the_same_with_every_launcher(start, variant):
    ours, theirs = (start(name)[0]["first epoch"] for name in ("torchrun", variant))
    assert len(ours["losses"]) == 43
    torch.testing.assert_close(theirs["losses"], ours["losses"], atol=1e-4, rtol=0)
    torch.testing.assert_close(theirs["weights"], ours["weights"], atol=1e-4, rtol=0)
    assert theirs["top1"] == pytest.approx(ours["top1"], abs=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("variant", needs.launchers([*MIXED, "deepspeed, ZeRO 1"]))
def test_an_overflow_on_one_rank_is_skipped_on_all_in_fp16(start, variant):
    for result in start(variant, Precision.fp16):
        assert result["overflow"] == dict.fromkeys(("skipped", "unchanged", "halved", "went on"), True)


@pytest.mark.full
@pytest.mark.parametrize("variant", needs.launchers([*MIXED, "deepspeed, ZeRO 1"]))
@pytest.mark.parametrize(("what", "options"), [("training", {}), ("clipped", {"clip_norm": 0.01})])
def test_scaled_training_in_fp16_is_near_that_in_fp32(start, alone, variant, what, options):
    for result in start(variant, Precision.fp16):
        torch.testing.assert_close(result[what], alone(**options), atol=0.01, rtol=0.01)


@mixed
@pytest.mark.parametrize(
    ("precision", "dtype"),
    others_in_full(
        [(Precision.fp32, "float32"), (Precision.bf16, "bfloat16"), (Precision.fp16, "float16")],
        [(Precision.fp32, "float32")],
    ),
)
def test_precision_decides_the_numerics_and_weights_stay_in_fp32(start, variant, precision, dtype):
    assert start(variant, precision)[1]["precision"] == {
        "forward": f"torch.{dtype}",
        "inference": f"torch.{dtype}",
        "weight": "torch.float32",
        "no gradients": True,
    }
