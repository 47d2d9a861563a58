"""`train-bench plan --dry`: what it prints, refuses and says."""

import json

import pytest

from tests.dry_run.measured import mini
from tests.references.configs import composed
from train_bench.cli import plan_dry, program
from train_bench.core.job import Device, Precision
from train_bench.dry_run import bound
from train_bench.dry_run.step import step_of
from train_bench.errors import RequestError
from train_bench.report import dry as report

MACHINE = ["--memory-gb", "80", "--peak-tflops", "312", "--memory-gb-s", "2039", "--network-gb-s=600"]


def plan(capsys, *words):
    assert program.command("plan")(["--dry", *words]) == 0
    return capsys.readouterr().out


def as_json(capsys, *words):
    (one,) = json.loads(plan(capsys, "--json", *words))["dry"]
    return one


@pytest.mark.full
def test_full_bert_is_planned_without_its_start_weights_and_without_its_memory(capsys):
    """340 GFLOP forward are what 512 tokens take in facts of the field."""
    one = as_json(
        capsys, "benchmark=bert_bs8192", "--ranks", "1024", "precision=bf16", "device=cuda", *MACHINE
    )
    assert (one["trainable"], one["frozen"]) == (336_226_108, 0)
    assert one["flop_per_sample"] == pytest.approx(1_019.8e9, rel=1e-4)
    assert (one["samples"], one["micro_batches"], one["global_batch_size"]) == (8, 1, 8192)
    assert one["bound"]["fits"] is True
    assert one["reduced"] == 4 * 336_226_108
    assert one["bound"]["seconds"]["compute"] == pytest.approx(8 * one["flop_per_sample"] / 312e12)
    assert one["training"]["samples"] > 3_000_000
    steps = one["training"]["samples"] / 8192
    assert one["training"]["minutes"] == pytest.approx(steps * one["bound"]["step_seconds"] / 60)


def test_the_page_says_every_part_in_a_line(capsys):
    told = plan(capsys, "benchmark=dlrm_mini", "--ranks=4", *MACHINE)
    for word in (
        "rank 0 of 4",
        "parameters",
        "FLOP",
        "dense",
        "peak",
        "all-reduce",
        "all-to-all",
        "fits",
        "bound",
    ):
        assert word in told, word
    assert "minutes at least, without evaluations" in told


@pytest.mark.parametrize(
    ("more", "cores"),
    [
        (("launcher=kubernetes", "launcher.image=x", "launcher.resources=[cpu=16]"), 8),
        (("launcher=kubernetes", "launcher.image=x", "launcher.resources=[cpu=8000m]"), 4),
        (("launcher=slurm", "launcher.cpus_per_rank=5"), 5),
        (("launcher=slurm",), None),
    ],
)
def test_shared_memory_holds_the_batches_of_all_loader_processes(capsys, more, cores):
    words = ("benchmark=dlrm_mini", "device=cuda", "launcher.nproc_per_node=2", *more)
    need = as_json(capsys, *words)["shared_memory"]
    if cores is None:
        assert need is None
        return
    assert (need["ranks"], need["processes"], need["batches"]) == (2, cores - 1, 3)
    least = 2**30 + 2 * 2 * 2 * (cores - 1) * 3 * need["batch"]
    assert need["batch"] > 0
    assert least <= need["total"] < least + 2**20
    assert need["quantity"] == f"{need['total'] // 2**20}Mi"
    assert f"{need['quantity']} on a host: twice 2 rank(s) x 2 sets of" in plan(capsys, *words)


@pytest.mark.full
def test_a_bound_with_padding_says_so_until_the_share_of_real_tokens_is_stated(capsys):
    words = ["benchmark=bert_mini", "--peak-tflops=1"]
    assert "(with padding;" in plan(capsys, *words)
    told = plan(capsys, *words, "--real-share=0.5")
    assert "(with padding;" not in told
    assert "without padding" in told


@pytest.mark.full
def test_a_benchmark_without_points_is_counted_by_epoch(capsys):
    one = as_json(capsys, "benchmark=resnet_midi", "--peak-tflops=1")
    assert one["training"]["samples"] == composed("resnet_midi").samples_per_epoch
    assert "One epoch is counted" in one["training"]["message"]
    assert one["training"]["minutes"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "2"], "--ranks belongs to --dry"),
        (["--dry", "--memory-gb", "-1"], "--memory-gb is -1; it is finite and above 0"),
        (["--dry", "--peak-tflops=nan"], "--peak-tflops is nan"),
        (["--dry", "--real-share", "1.5"], "it is at most 1 and above 0"),
        (["--dry", "-m"], "leave --multirun out"),
    ],
)
def test_bad_options_are_one_sentence(words, said):
    with pytest.raises(RequestError, match=said):
        plan_dry.parse(words)


def test_a_named_device_needs_no_dry_run():
    options, overrides = plan_dry.parse(["--memory-gb", "80", "seed=1"])
    assert (options.dry, overrides) == (False, ["seed=1", "memory_gb=80.0"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the device has 0.001 GB; try benchmark.activation_checkpointing=true"),
        (
            ("benchmark.activation_checkpointing=true",),
            "0.001 GB; try benchmark.hyperparameters.gradient_accumulation_steps=2",
        ),
    ],
)
def test_a_step_that_does_not_fit_comes_with_an_override_that_needs_less(words, said, capsys):
    small = (
        "benchmark=llama31_8b_mini",
        "benchmark.hyperparameters.global_batch_size=4",
        "--memory-gb=0.001",
    )
    assert said in plan(capsys, *small, *words)


def test_ranks_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(
        RequestError, match=r"64 cannot be divided among 7 ranks x 1 micro-batches. Take ranks that divide 64"
    ):
        dry_step(mini("resnet_mini"), ranks=7)


def test_micro_batches_that_do_not_divide_the_batch_are_refused_without_a_number_of_ranks():
    three = mini("resnet_mini", "hyperparameters.gradient_accumulation_steps=3")
    with pytest.raises(RequestError, match=r"micro-batches. Set benchmark.hyperparameters.gradient_acc"):
        dry_step(three, ranks=1)


def dry_step(config, make=None, **how):
    from train_bench.plan import discover

    how = {"ranks": 1, "device": Device.cpu, "precision": Precision.fp32} | how
    return step_of(make or discover.task(config.reference), config, **how)


def test_a_benchmark_without_the_methods_is_told_so():
    class Other:
        def __init__(self, config):
            self.config = config

    with pytest.raises(RequestError, match=r"its Task has no synthetic\(\)"):
        dry_step(mini("resnet_mini"), Other)


def test_a_step_that_looks_at_values_is_told_so():
    from train_bench.references.resnet.task import Task

    class Looking(Task):
        def train_step(self, batches):
            images, _ = next(batches)
            float(images.sum())

    with pytest.raises(RequestError, match="looks at the values of tensors"):
        dry_step(mini("resnet_mini"), Looking)


def test_a_share_is_refused_where_nothing_is_padded():
    with pytest.raises(RequestError, match="pads no samples; leave --real-share out"):
        dry_step(mini("resnet_mini"), real_share=0.5)


def test_the_bound_is_the_longest_term_and_padding_need_not_be_computed():
    step = dry_step(mini("bert_mini"), real_share=0.5)
    slow = bound.bound_of(step, bound.Machine(peak_tflops=1e-6, memory_gb_s=1e9))
    assert slow.term == "compute"
    assert slow.step_seconds == slow.seconds_real < slow.seconds["compute"]
    assert slow.seconds["compute"] == pytest.approx(step.flop_per_sample * step.samples / 1e6)
    none = bound.bound_of(step, bound.Machine())
    assert (none.fits, none.term, none.step_seconds) == (None, None, None)


def test_an_average_over_ranks_is_sent_nearly_twice():
    step = dry_step(mini("resnet_mini"), ranks=4)
    told = bound.bound_of(step, bound.Machine(network_gb_s=1.0))
    assert told.seconds == {"network": pytest.approx(2 * 3 / 4 * step.reduced / 1e9)}


def test_a_device_that_is_too_small_does_not_fit():
    step = dry_step(mini("resnet_mini"))
    peak = sum(step.peak.values()) / 1e9
    assert bound.bound_of(step, bound.Machine(memory_gb=peak * 1.01)).fits
    assert not bound.bound_of(step, bound.Machine(memory_gb=peak * 0.99)).fits


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0 B"), (999, "999 B"), (1234.5e6, "1.234 GB"), (2e18, "2000 PB"), (1e9, "1 GB")]
)
def test_sizes_have_four_digits(value, said):
    assert report.short(value, "B") == said
