"""The training step and the evaluation of the decoder, and what its logs tell at full scale."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.fake_campaigns import make
from tests.references.configs import composed, llama31_8b
from tests.references.one_rank import OneRank, in_threads
from tests.references.tasks import same, weights
from tests.run.fakes import FakeTask
from tests.run.fakes import OneRank as QuietRank
from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.judge.official import installed_checkers
from train_bench.logs.log import read
from train_bench.plan import discover
from train_bench.progress import Mark, Progress
from train_bench.quality import Quality
from train_bench.references.llama31_8b.config import Config
from train_bench.references.llama31_8b.model import Decoder
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts.decoder import data
from train_bench.references.parts.decoder import weights as published
from train_bench.rules import checks, ruleset
from train_bench.run.events import Log
from train_bench.run.timed_run import timed_run


def built(config: Config, seed: int = 1, parallel: OneRank | None = None) -> Task:
    task = Task(config)
    task.build(seed, parallel or OneRank())
    return task


@pytest.fixture
def tiny(prepared: object) -> Config:
    """The mini benchmark with one narrow layer and 100 sequences to evaluate, without warm-up."""
    config: Config = llama31_8b(
        "llama31_8b_mini",
        *(
            "model.layers=1",
            "model.width=16",
            "model.head_size=4",
            "model.intermediate=16",
            "warm_up_steps=0",
        ),
        *("eval_samples=100", "hyperparameters.global_batch_size=4", f"data_dir={prepared('llama31_8b')}"),  # type: ignore[operator]
    )
    return config


def test_accumulated_gradients_are_the_mean_over_micro_batches_and_clipped_to_one(tiny: Config) -> None:
    class Noting(OneRank):
        def step(self, *, clip_norm: float | None = None) -> bool:
            assert clip_norm == 1.0
            noted.append(torch.cat([weight.grad.flatten() for weight in self.model.parameters()]).clone())
            return super().step(clip_norm=clip_norm)

    noted: list[torch.Tensor] = []
    whole = data.synthetic(tiny, 4)
    built(tiny, parallel=Noting()).train_step(iter([whole]))
    accumulating = copy.deepcopy(tiny)
    accumulating.hyperparameters.gradient_accumulation_steps = 2
    built(accumulating, parallel=Noting()).train_step(iter(whole.split(2)))
    torch.testing.assert_close(noted[0], noted[1], atol=1e-6, rtol=1e-4)


def test_the_log_perplexity_is_the_mean_over_all_tokens_on_any_number_of_ranks(
    tiny: Config, tmp_path: Path
) -> None:
    """100 sequences are no whole number of batches of three ranks."""
    network = Decoder(tiny.model)
    published.save_weights(network, tmp_path / published.ONE_FILE)
    tiny.start_weights, tiny.hyperparameters.global_batch_size = str(tmp_path), 12

    def found(parallel: OneRank) -> float:
        task = built(tiny, parallel=parallel)
        task.open_data()
        value = task.evaluate().metrics["log_perplexity"]
        task.close()
        return value

    _, val = data.open_sequences(tiny)
    rows = torch.from_numpy(np.stack([val[place] for place in range(100)]).astype(np.int64))
    with torch.no_grad():
        logits = network.double()(rows[:, :-1])
    expected = float(functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
    for values in ([found(OneRank())], in_threads(3, found)):
        assert values == pytest.approx([expected] * len(values), rel=1e-6)


def test_a_loss_that_is_not_finite_makes_the_quality_nan(tiny: Config) -> None:
    task = built(tiny)
    task.open_data()
    task.last_loss = torch.tensor(math.inf)
    assert math.isnan(task.evaluate().metrics["log_perplexity"])
    task.close()


def test_permuted_sequences_have_the_same_tokens_in_another_order_every_time_alike(tiny: Config) -> None:
    train, _ = data.open_sequences(tiny)
    honest, permuted = data.BatchSet(train), data.BatchSet(train, permuted=True)
    assert torch.equal(honest[[3, 4]].sort(dim=1).values, permuted[[3, 4]].sort(dim=1).values)
    assert not torch.equal(honest[[3, 4]], permuted[[3, 4]])
    assert torch.equal(permuted[[3, 4]], permuted[[3, 4]])


def test_training_starts_from_the_start_weights(tiny: Config, tmp_path: Path) -> None:
    torch.manual_seed(5)
    network = Decoder(tiny.model)
    published.save_weights(network, tmp_path / published.ONE_FILE)
    tiny.start_weights = str(tmp_path)
    assert same(weights(built(tiny)), [tensor.detach() for tensor in network.state_dict().values()])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.key_value_heads=3", "heads 4 cannot be divided among 3 heads of keys and values"),
        ("model.head_size=5", "head_size is 5; rotary positions need an even number"),
        ("hyperparameters.opt_name=lamb", r"opt_name.*lamb.*adamw"),
        ("hyperparameters.opt_learning_rate_decay_schedule=linear", "linear.*cosine with linear warmup"),
        (
            "hyperparameters.opt_learning_rate_decay_steps=0",
            "decay_steps is 0; allowed are 0 or more and 1 or more",
        ),
    ],
)
def test_what_cannot_be_is_refused(override: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        built(llama31_8b("llama31_8b_mini", override))


def test_the_larger_network_starts_from_published_weights_and_the_others_from_random_ones() -> None:
    assert "starts from published weights" in str(llama31_8b("llama31_405b").refuse())
    assert "starts from random weights and not from x" in str(
        llama31_8b("llama31_8b", "start_weights=x").refuse()
    )


ROUNDS = {"5.1.0": "llama31_8b_bs96", "6.0.0": "llama31_8b_bs128", "6.1.0": "llama31_8b"}


@pytest.mark.parametrize(
    ("round_name", "variant"),
    others_in_full(
        [
            *ROUNDS.items(),
            ("6.0.0", "llama31_405b_bs2304"),
            ("5.0.0", "llama31_405b_bs1008"),
            ("6.0.0", "gpt_oss_20b_bs32"),
            ("6.1.0", "gpt_oss_20b"),
            ("5.1.0", "flux1_bs4096"),
            ("6.0.0", "flux1_bs2048"),
            ("6.1.0", "flux1"),
            ("5.1.0", "llama2_70b_lora"),
            ("6.0.0", "llama2_70b_lora_bs128"),
            ("6.1.0", "llama2_70b_lora_bs16"),
            ("3.0.0", "dlrm_dcnv2_bs135168"),
            ("5.1.0", "dlrm_dcnv2_bs160000"),
            ("6.0.0", "dlrm_dcnv2"),
            ("5.0.0", "retinanet_bs2560"),
            ("5.1.0", "retinanet"),
        ],
        [("6.1.0", "llama31_8b"), ("5.1.0", "retinanet")],
    ),
)
def test_the_official_checker_accepts_a_log_of_the_full_benchmark(
    tmp_path: Path, round_name: str, variant: str
) -> None:
    """Of a task that reaches its target in its third evaluation and computes nothing."""
    started = ["benchmark.start_weights=x"] if variant.startswith(("llama31_405b", "llama2_70b")) else []
    plan = make(
        f"benchmark={variant}",
        *(f"benchmark.ruleset=training-{round_name}", "precision=bf16", "drop_caches=true", *started),
        *("launcher=torchrun", "launcher.nproc_per_node=2", "submission.submission_org=somebody"),
    )
    assert plan.changes == ()
    job = replace(plan.jobs[0], drop_caches=False)
    job = replace(job, announcement={**job.announcement, "submission_platform": "2x something"})
    (target,) = job.target.thresholds
    sign = -1 if target.higher_is_better else 1
    task = Synthetic([target.value + sign * missing for missing in (0.5, 0.01, 0.0)])
    task.metric, task.eval_samples = target.metric, job.config["eval_samples"]
    log = Log(tmp_path / "result_0.txt", task.clock)
    assert timed_run(task, job, QuietRank(), log) == "success"
    log.close()
    said = installed_checkers.compliance(tmp_path / "result_0.txt", round_name)
    assert said.verdict == installed_checkers.PASS, said.message
    rules = ruleset.load(f"training-{round_name}").benchmark(job.benchmark)
    assert checks.check(rules, read(tmp_path / "result_0.txt").events) == []
    text = (tmp_path / "result_0.txt").read_text()
    assert ('"lowest_numerical_precision_in_linear", "value": "bfloat16"' in text) == (round_name == "6.1.0")
    of_a_rank = job.config["hyperparameters"]["global_batch_size"] // 2
    assert (f'"micro_batch_size", "value": {of_a_rank}' in text) == (round_name == "6.1.0")


class Synthetic(FakeTask):
    """Of the full benchmark's sizes; tells how experts are chosen, as a mixture of them does."""

    metric: str
    eval_samples: int

    def open_data(self) -> object:
        return replace(super().open_data(), eval_samples=self.eval_samples)

    def train_until(self, mark: Mark) -> Progress:
        return replace(super().train_until(mark), extras={"expert_load_entropy": 3.4})

    def evaluate(self) -> Quality:
        return Quality(metrics={self.metric: self.qualities.pop(0)})


WIDE_STEP = """
import math, torch
from tests.references.configs import llama31_8b
from tests.references.one_rank import OneRank
from train_bench.references.llama31_8b import data
from train_bench.references.llama31_8b.task import Task
torch.set_num_threads(2)
config = llama31_8b(
    "llama31_8b",
    *("model.layers=1", "model.vocabulary=2048", "warm_up_steps=0"),
    *("hyperparameters.global_batch_size=1", "hyperparameters.opt_learning_rate_warmup_steps=0"),
    "hyperparameters.max_sequence_length=128",
)
task = Task(config)
task.build(1, OneRank())
before = [one[:2].clone() for one in task.model.state_dict().values()]
task.train_step(iter([data.synthetic(config, 1)]))
after = list(task.model.state_dict().values())
assert math.isfinite(float(task.last_loss)) and all(bool(torch.isfinite(one).all()) for one in after)
assert not any(torch.equal(old, new[:2]) for old, new in zip(before, after, strict=True))
"""


@pytest.mark.full
def test_a_step_of_a_layer_of_full_width_changes_every_tensor() -> None:
    """Of 128 tokens, because the full 8192 take minutes; in a process that gives its gigabytes back."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", WIDE_STEP], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["llama31_8b_mini", "gpt_oss_20b_mini"])
def test_layers_that_are_computed_again_give_the_same_gradients_bit_by_bit(name: str) -> None:
    def gradients(*overrides: str) -> dict[str, torch.Tensor]:
        config = composed(name, "warm_up_steps=0", *overrides)
        task = discover.task(config.reference)(config)
        task.build(1, OneRank())
        tokens = task.synthetic(2)
        loss = functional.cross_entropy(task.forward(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        return {"loss": loss.detach()} | {n: one.grad for n, one in task.model.named_parameters()}

    plain, again = gradients(), gradients("activation_checkpointing=true")
    assert all(torch.equal(again[name], one) for name, one in plain.items()) and len(again) == len(plain)


def test_layers_that_are_computed_again_are_not_compiled() -> None:
    config = llama31_8b("llama31_8b_mini", "activation_checkpointing=true", "compile=true")
    assert "was not tried with benchmark.compile=true" in str(config.refuse())
