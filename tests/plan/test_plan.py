"""What is decided before anything runs."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import train_bench.references
from tests.fake_campaigns import composed_config, make
from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.launchers.deepspeed.start import Launcher as DeepSpeed
from train_bench.plan import discover, refusals
from train_bench.plan.asked import Asked
from train_bench.rules import ruleset

PREPARED = "drop_caches=true"
STARTED = {
    "bert": ["benchmark.start_weights=start.npz"],
    "llama2_70b_lora": ["benchmark.start_weights=start"],
    "llama31_405b": ["benchmark.start_weights=start"],
    "minigo": ["benchmark.start_weights=start.npz", "benchmark.opponent=target.npz"],
}
"""What a full-scale benchmark has to be told of its published weights."""


def test_a_campaign_has_as_many_runs_as_the_rules_ask_for():
    assert len(make().jobs) == 5
    assert make().runs_required == 5


def test_fewer_runs_may_be_asked_for():
    assert [job.index for job in make("runs=2").jobs] == [0, 1]
    assert make("runs=2").runs_required == 5


@pytest.mark.parametrize(("minutes", "text"), [("30", "minutes > 30"), (".5", "minutes > 0.5")])
def test_a_time_limit_is_in_the_plan(minutes, text):
    plan = make(f"max_minutes={minutes}")
    assert plan.jobs[0].stop_when == plan.request["stop_when"] == text


@pytest.mark.parametrize(
    "text",
    [
        "kill every 60 s",
        "kill rank 0 every .5s",
        "kill host every 60 s on average seed 7",
        "kill launcher every 9 s",
    ],
)
def test_faults_are_in_the_plan_with_checkpoints(text):
    job = make(f"inject_faults='{text}'", "checkpoint_seconds=30").jobs[0]
    assert (job.faults, job.checkpoint_seconds) == (text, 30.0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["inject_faults='kill every 60 s'"], "needs checkpoints"),
        (
            ["inject_faults='kill every 0 s'", "checkpoint_seconds=1"],
            "write inject_faults='kill WHAT every SECONDS s'",
        ),
        (["inject_faults='kill it every 9 s'", "checkpoint_seconds=1"], "write inject_faults="),
        (
            ["inject_faults='kill rank 1 every 9 s'", "checkpoint_seconds=1"],
            "names rank 1; the host that injects faults has ranks 0 to 0",
        ),
        (
            [
                "inject_faults='kill rank 2 every 9 s'",
                "checkpoint_seconds=1",
                "launcher=slurm",
                "launcher.nodes=2",
                "launcher.nproc_per_node=2",
            ],
            "has ranks 0 to 1",
        ),
        (["checkpoint_seconds=1", "grace_seconds=-1"], "grace_seconds is -1"),
        (["checkpoint_seconds=-1"], "checkpoint_seconds is -1"),
        (["checkpoint_seconds=1", "command='true'"], "are for references"),
        (
            ["node_test=true", "command='true'"],
            "node_test=true is for references; a command has its own ways",
        ),
        (
            ["checkpoint_seconds=1", "launcher=deepspeed", "launcher.zero_stage=1"],
            r"launcher.zero_stage=1 cannot continue from a checkpoint, .* shard .*; leave it out, or checkpoint_s",
        ),
        (
            ["checkpoint_seconds=1", "launcher=horovod"],
            "Starts from checkpoints were tried with launcher=.*; launcher=horovod was requested. Choose one of these",
        ),
        (
            ["checkpoint_seconds=1", "launcher=slurm", "launcher.starter=horovod"],
            "horovod was not tried with starts from checkpoints; leave it out, or checkpoint_s",
        ),
    ],
)
def test_faults_checkpoints_and_tests_that_cannot_be_are_refused(words, why, monkeypatch):
    monkeypatch.setattr(DeepSpeed, "refuse", lambda self, benchmark: None)  # it need not be installed
    with pytest.raises(RequestError, match=why):
        make(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["launcher=torchrun", "launcher.shard=fsdp"],
        ["launcher=torchrun", "launcher.tensor_parallel=2"],
        ["launcher=deepspeed", "launcher.zero_stage=2"],
    ],
)
def test_what_a_launcher_divides_of_a_reference_it_does_not_divide_of_a_command(words):
    said = f"{words[-1]} is for references; a command divides its work among ranks by itself. Leave it out."
    with pytest.raises(RequestError, match=re.escape(said)):
        make(*words, "launcher.nproc_per_node=2", "command='true'")


def test_reference_runs_write_no_checkpoints():
    with pytest.raises(RequestError, match="Reference runs are whole"):
        make("checkpoint_seconds=1", reference_runs=True)


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_a_time_limit_that_leaves_no_time_is_refused(minutes):
    with pytest.raises(RequestError, match=rf"max_minutes is {minutes}; give minutes above 0"):
        make(f"max_minutes={minutes}")


def test_reference_runs_are_twice_as_many():
    assert len(make(reference_runs=True).jobs) == 10


def test_seeds_from_entropy_differ_between_runs_and_campaigns():
    first, second = ({job.seed for job in make().jobs} for _ in range(2))
    assert len(first) == len(second) == 5
    assert not first & second


def test_fixed_seeds_differ_between_runs_and_not_between_campaigns():
    first, second = ([job.seed for job in make("seed=7").jobs] for _ in range(2))
    assert first == second
    assert len(set(first)) == 5
    assert make("seed=7").seeds == "fixed"
    assert make("seed=7", "runs=2").jobs[1].seed == first[1]
    assert not set(first) & {job.seed for job in make("seed=8").jobs}


def test_the_target_and_the_schedule_come_from_the_rules():
    job = make("benchmark=resnet", PREPARED).jobs[0]
    assert str(job.target) == "top1 >= 0.759"
    assert [mark.epoch_num for mark in job.schedule.marks()][:3] == [2, 6, 10]
    assert [mark.first_epoch_num for mark in job.schedule.marks()][:3] == [1, 3, 7]
    assert [mark.epoch_count for mark in job.schedule.marks()][:3] == [2, 4, 4]
    assert job.schedule.marks()[0].count == 2 * 1_281_167


@pytest.mark.parametrize(
    ("variant", "first", "period", "last", "samples"),
    [
        ("unet3d", 1000, 20, 10000, 168),
        ("unet3d_bs32", 875, 18, 8741, 192),
        ("unet3d_bs56", 1000, 20, 10000, 168),
        ("unet3d_bs80", 700, 14, 7000, 240),
        ("unet3d_bs84", 1000, 20, 10000, 168),
    ],
)
def test_padded_epochs_are_scheduled_and_counted_with_their_padding(variant, first, period, last, samples):
    schedule = make(f"benchmark={variant}", "drop_caches=true").jobs[0].schedule.marks()
    assert [mark.epoch_num for mark in schedule[:2]] == [first, first + period]
    assert schedule[-1].epoch_num == last
    assert all(mark.count == mark.epoch_num * samples for mark in schedule)


@pytest.mark.parametrize("batch", [1024, 1536, 2048, 4096])
def test_published_points_of_single_shot_detection_may_be_run(batch):
    job = make(f"benchmark=ssd_bs{batch}", "drop_caches=true").jobs[0]
    assert str(job.target) == "mAP >= 0.23"
    assert [mark.epoch_num for mark in job.schedule.marks()[:3]] == [5, 10, 15]
    assert job.schedule.marks()[0].count == 5 * 117_266


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_samples", "2"),
        ("opt_learning_rate_warmup_steps", "0"),
        ("opt_learning_rate_decay_boundary_epochs", "[40,53]"),
    ],
)
def test_what_the_rules_of_single_shot_detection_refuse_is_not_planned(key, value):
    with pytest.raises(RequestError, match=key):
        make("benchmark=ssd_bs1024", "drop_caches=true", f"benchmark.hyperparameters.{key}={value}")


@pytest.mark.parametrize(
    ("batch", "last"), [(16, 18), (48, 22), (64, 22), (96, 22), (128, 22), (256, 26), (272, 26)]
)
def test_instance_segmentation_is_evaluated_after_every_epoch(batch, last):
    variant = "maskrcnn" if batch == 16 else f"maskrcnn_bs{batch}"
    job = make(f"benchmark={variant}", PREPARED).jobs[0]
    assert str(job.target) == "BBOX >= 0.377 and SEGM >= 0.339"
    assert [mark.epoch_num for mark in job.schedule.marks()] == list(range(1, last + 1))
    assert all(mark.count == mark.epoch_num * 117_266 for mark in job.schedule.marks())
    assert job.config["hyperparameters"]["opt_learning_rate_decay_steps"][1] * batch < last * 117_266


def test_a_closed_run_without_its_published_start_weights_is_refused():
    with pytest.raises(RequestError, match=r"model\.ckpt-28252.*benchmark\.start_weights=THAT_FILE"):
        make("benchmark=bert", PREPARED)


@pytest.mark.parametrize("variant", ["bert_mini", "minigo_mini"])
def test_a_benchmark_that_starts_from_nothing_takes_no_start_weights(variant):
    with pytest.raises(RequestError, match=r"and not from trained\.npz; leave benchmark\.start_weights out"):
        make(f"benchmark={variant}", "benchmark.start_weights=trained.npz")


@pytest.mark.parametrize(
    ("variant", "option"),
    [
        ("llama2_70b_lora_mini", "start_weights_sha256"),
        ("maskrcnn_mini", "model.start_weights"),
        ("minigo_mini", "opponent_sha256"),
        ("ssd_mini", "model.start_weights"),
    ],
)
def test_other_start_weights_or_another_opponent_make_another_task(variant, option):
    changed = f"benchmark.{option}=trained.npz"
    assert make(f"benchmark={variant}", changed).changes == (changed,)


@pytest.mark.parametrize("variant", ["dlrm", "dlrm_bs32768", "dlrm_bs55296", "dlrm_bs71680"])
def test_epoch_numbers_that_start_at_1_count_the_part_that_is_trained(variant):
    schedule = make(f"benchmark={variant}", PREPARED).jobs[0].schedule.marks()
    assert [mark.epoch_num for mark in schedule[:2]] == [1.05, 1.1]
    assert [mark.first_epoch_num for mark in schedule[:2]] == [1, 1.05]
    assert [mark.epoch_count for mark in schedule[:2]] == [0.05, 0.05]
    assert [mark.count for mark in schedule] == [round(k * 4195197692 / 20) for k in range(1, 21)]


@pytest.mark.parametrize("launcher", ["horovod", "deepspeed"])
def test_tables_that_ranks_divide_are_refused_by_launchers_that_cannot_exchange(launcher):
    with pytest.raises(RequestError, match=r"(embeddings|tables) of dlrm_mini"):
        make("benchmark=dlrm_mini", f"launcher={launcher}")


def test_a_schedule_that_contradicts_itself_is_refused():
    with pytest.raises(RequestError, match="the warm-up has to end before the decay starts"):
        make("benchmark=dlrm_mini", "benchmark.hyperparameters.lr_decay_start_steps=1")


def test_minigo_without_its_published_checkpoint_and_target_model_is_refused():
    with pytest.raises(RequestError, match=r"not set: benchmark\.start_weights .*and benchmark\.opponent"):
        make("benchmark=minigo", PREPARED)


def test_no_option_changes_the_target():
    with pytest.raises(Exception, match="target"):
        make("benchmark.target=0.5")


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_the_offset_of_the_evaluations_is_free_where_the_rules_say_so(first):
    job = make("benchmark=resnet", PREPARED, f"benchmark.evaluation.first={first}").jobs[0]
    assert job.schedule.marks()[0].epoch_num == first


def test_the_batch_norm_span_is_what_the_ranks_will_do():
    def span(*overrides):
        return make(*overrides).jobs[0].config["hyperparameters"]["model_bn_span"]

    assert span() == 64
    assert span("launcher=torchrun", "launcher.nproc_per_node=2") == 32


@pytest.mark.parametrize(
    "variant",
    others_in_full(discover.variants(), [f"{name}_mini" for name in discover.references()]),
)
def test_every_benchmark_can_be_planned_under_its_own_rules(variant):
    plan = make(f"benchmark={variant}", PREPARED, *STARTED.get(variant.partition("_bs")[0], ()))
    assert len(plan.jobs) == plan.runs_required
    assert plan.jobs[0].schedule.points()


def test_a_closed_full_scale_run_needs_entropy_and_cleared_caches():
    with pytest.raises(RequestError, match=r"seed=3.*entropy.*drop_caches=true"):
        make("benchmark=resnet", "seed=3")


def test_what_round_6_1_asks_to_be_disclosed_is_in_the_plan():
    words = (PREPARED, "launcher=torchrun", "launcher.nproc_per_node=4", "precision=fp16")
    told = make("benchmark=llama31_8b", *words).jobs[0].announcement
    assert told["lowest_numerical_precision_in_attn"] == "fp16"
    assert told["lowest_numerical_precision_in_comm"] == "fp32"
    assert (told["micro_batch_size"], told["expert_parallelism"]) == (4, 1)
    assert told["config_filename"].startswith("conf/benchmark/")
    before = make("benchmark=llama31_8b", *words, "benchmark.ruleset=training-6.0.0").jobs[0].announcement
    own = make("benchmark=llama31_8b", *words, "command='python3 mine.py'").jobs[0].announcement
    assert "micro_batch_size" not in {*before, *own}


def test_a_plan_that_is_only_shown_asks_nothing_of_the_machine():
    assert len(make("benchmark=resnet", to_be_run=False).jobs) == 5


@pytest.mark.parametrize("threads", [0, -2])
def test_a_rank_has_at_least_one_thread(threads):
    with pytest.raises(RequestError, match=f"threads_per_rank is {threads}; it has to be at least 1"):
        make(f"launcher.threads_per_rank={threads}")


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("lars_epsilon", "0.1", "only 0.0"),
        ("lars_opt_end_learning_rate", "0.001", "only 0.0001"),
        ("lars_opt_weight_decay", "0.0003", "0.0001 times a power of two"),
        ("lars_opt_learning_rate_decay_poly_power", "1", "only 2"),
    ],
)
def test_official_rules_refuse_a_forbidden_hyperparameter_in_the_plan(key, value, allowed):
    with pytest.raises(RequestError, match=f"{key} is {value}.*{allowed}"):
        make("benchmark=resnet", PREPARED, f"benchmark.hyperparameters.{key}={value}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("benchmark.compile=quickly",), "benchmark.compile=quickly is unknown; use off, model, blocks"),
        (("benchmark.compile=graphs", "device=cpu"), "CUDA graphs and device=cpu was requested"),
        (("benchmark.compile=graphs", "device=cuda"), "not tried with gradient_accumulation_steps=2"),
        (("benchmark=maskrcnn_mini", "benchmark.compile=true"), "would compile maskrcnn_mini on the clock"),
        (("benchmark=rnnt_mini", "benchmark.compile=blocks"), "the lengths of its utterances change"),
        (
            ("benchmark=bert_mini", "benchmark.compile=true", "benchmark.data.pack=true"),
            "the rows of data.pack",
        ),
    ],
)
def test_a_mode_of_compilation_that_cannot_work_is_refused(words, why):
    accumulates = "benchmark.hyperparameters.gradient_accumulation_steps=2"
    with pytest.raises(RequestError, match=re.escape(why)):
        make(*words, accumulates)
    for taken in ("true", "off", "blocks", "max-autotune"):
        make(f"benchmark.compile={taken}", "device=cpu", accumulates)
    make("benchmark.compile=graphs", "device=cuda")


def test_a_schedule_that_ends_before_the_first_evaluation_is_refused():
    with pytest.raises(RequestError, match="ends before the first evaluation"):
        make("benchmark.evaluation.until=0")


def test_a_batch_that_accumulation_does_not_divide_is_refused():
    with pytest.raises(RequestError, match="multiple of 3"):
        make("benchmark.hyperparameters.gradient_accumulation_steps=3")


def test_a_campaign_goes_into_a_folder_named_after_time_benchmark_and_launcher():
    assert make().jobs[0].folder.name == "20261121T010203Z_resnet_mini_inline"
    assert make().jobs[0].folder.parent.name == "results"


@pytest.mark.parametrize("change", ["benchmark.model.widths=[8,8,8]", "benchmark.data.permute_labels=true"])
def test_an_option_that_makes_another_task_of_the_benchmark_is_written_down(change):
    assert make(change).changes == (change,)


@pytest.mark.parametrize(
    "option", ["benchmark.hyperparameters.global_batch_size=32", "benchmark.evaluation.until=9", "runs=2"]
)
def test_an_option_that_the_rules_leave_free_is_none(option):
    assert make(option).changes == ()


@pytest.mark.parametrize("limit", ["start_limit_seconds", "stall_limit_seconds"])
def test_a_limit_that_leaves_no_time_is_refused(limit):
    with pytest.raises(RequestError, match=f"{limit} is 0; it has to be above 0"):
        make(f"{limit}=0")


def test_a_campaign_can_be_told_to_continue_after_a_failure():
    assert make().request["on_failure"].value == "stop"
    assert make("on_failure=continue").request["on_failure"].value == "continue"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("until=inf", "until is inf; it has to be a finite number above 0"),
        ("until=nan", "until is nan"),
        ("until=1e12", "would take over 100000 evaluations, one every 1"),
        ("period=0", "period is 0.0; allowed: only 1"),
    ],
)
def test_a_schedule_that_never_ends_or_never_evaluates_is_refused(option, sentence):
    with pytest.raises(RequestError, match=sentence):
        make(f"benchmark.evaluation.{option}")


def test_a_period_of_nothing_is_refused_where_the_rules_leave_it_free():
    schedule = make().jobs[0].config["evaluation"]
    rules = replace(ruleset.load("mini-1.0").benchmark("resnet_mini"), schedule=None)
    options = composed_config("benchmark.evaluation.period=0")
    assert schedule["period"] == 1
    asked = Asked(options, rules, SimpleNamespace(cache=Path()), reference_runs=False, to_be_run=False)
    (sentence,) = refusals.evaluations(asked)
    assert "period is 0; it has to be a finite number above 0" in sentence


def test_a_rule_file_that_is_missing_is_said_in_the_plan(monkeypatch):
    rules = ruleset.load("mini-1.0")
    one = replace(rules.benchmark("resnet_mini"), start="absent.yaml")
    monkeypatch.setattr(ruleset, "load", lambda name: replace(rules, benchmarks={"resnet_mini": one}))
    with pytest.raises(RequestError, match=r"No log can be checked.*there is a rule file absent\.yaml"):
        make()


@pytest.fixture
def sibling(tmp_path, monkeypatch):
    """A reference that has files, and nothing in them."""
    folder = tmp_path / "benchmarks" / "hollow"
    folder.mkdir(parents=True)
    for name in ("config", "data", "task"):
        (folder / f"{name}.py").write_text("Taskmaster = None\n")
    monkeypatch.setenv("TRAIN_BENCH_PATH", str(folder))
    monkeypatch.setattr(train_bench.references, "__path__", [str(folder.parent)])
    yield folder
    for name in [name for name in sys.modules if name.startswith("train_bench.references.hollow")]:
        del sys.modules[name]


def test_what_a_reference_lacks_is_said_in_a_sentence(sibling):
    with pytest.raises(RequestError, match=r"benchmarks/hollow/config\.py has no Config"):
        discover.reference_config("hollow")
    with pytest.raises(RequestError, match=r"benchmarks/hollow/data\.py has no prepare"):
        discover.prepare("hollow")
    assert "benchmarks/hollow/task.py has no Task;" in discover.refuse_reference("hollow")
    (sibling / "task.py").write_text("class Task: ...\n")
    assert discover.refuse_reference("hollow") is None


def test_a_file_that_a_reference_lacks_is_said_in_a_sentence(sibling):
    for name in ("data", "task"):
        (sibling / f"{name}.py").unlink()
    with pytest.raises(RequestError, match=r"benchmarks/hollow/data\.py cannot be imported: No module named"):
        discover.prepare("hollow")
    assert "has no Task" in discover.refuse_reference("hollow")


@pytest.mark.parametrize("name", discover.references())
def test_every_reference_has_what_it_is_asked_for(name):
    assert discover.refuse_reference(name) is None


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(RequestError) as refused:
        make("precision=tf32", "device=cpu", "runs=0", "benchmark.evaluation.until=0.5")
    for part in (
        "precision=tf32 exists on GPUs only",
        "runs=0 was requested",
        "ends before the first evaluation",
    ):
        assert part in str(refused.value)


def test_what_ranks_are_needed_for_is_not_asked_without_any():
    with pytest.raises(
        RequestError, match=r"nproc_per_node is 0; it has to be at least 1\. runs=0 was requested"
    ):
        make("launcher=torchrun", "launcher.nproc_per_node=0", "runs=0", "benchmark.evaluation.until=0.5")
