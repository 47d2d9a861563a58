"""A step is bounded by its bricks: unique operators, each measured alone."""

import weakref
from types import SimpleNamespace

import pytest
import torch

from tests.profile import small_task
from tests.profile.test_verdict import profile, rank
from train_bench.core.job import Precision
from train_bench.profile import bound, bricks
from train_bench.profile.bricks import Brick, CallRecorder, TensorSpec
from train_bench.profile.graph import Graph
from train_bench.report.profile import in_sentences

CPU = torch.device("cpu")
aten = torch.ops.aten


def test_calls_of_the_same_operator_with_the_same_shapes_are_one_brick():
    calls = CallRecorder()
    square, wide = torch.ones(4, 4), torch.ones(4, 8)
    for operands in ((square, square), (square, square), (square, wide)):
        calls.add("fc", "forward", aten.mm.default, operands, {})
    for rate in (0.1, 0.3):
        calls.add("", "optimizer", aten.mul.Tensor, (square, rate), {})
    calls.add("fc", "forward", aten.view.default, (square, [16]), {})
    assert len(calls.bricks) == 3
    assert sorted(calls.of["fc", "forward"].values()) == [1, 2]
    assert list(calls.of["", "optimizer"].values()) == [2]


def test_layout_and_type_tell_bricks_apart():
    images = torch.ones(2, 3, 4, 4)
    calls = CallRecorder()
    for one in (
        images,
        images.to(memory_format=torch.channels_last),
        images.double(),
        images[:1].expand(2, 3, 4, 4),
    ):
        calls.add("", "forward", aten.relu.default, (one,), {})
    assert len(calls.bricks) == 4


@pytest.mark.parametrize(
    ("operator", "given"),
    [
        (aten.embedding.default, (torch.ones(3, 4), torch.tensor([2, 0]))),
        (aten.embedding_dense_backward.default, (torch.ones(2, 4), torch.tensor([2, 0]), 3, -1, False)),
        (aten.nll_loss_forward.default, (torch.ones(2, 3), torch.tensor([2, 0]), None, 1, -100)),
        (aten._embedding_bag.default, (torch.ones(3, 4), torch.tensor([2, 0]), torch.tensor([0, 1]))),
        (aten.index.Tensor, (torch.ones(3, 2), [torch.tensor([0, 1])])),
        (aten.gather.default, (torch.ones(3, 2), 1, torch.tensor([[1], [0], [1]]))),
        (aten._foreach_add_.List, ([torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(3)])),
    ],
)
def test_values_are_made_up_that_an_operator_takes(operator, given):
    calls = CallRecorder()
    calls.add("", "forward", operator, given, {})
    (brick,) = calls.bricks.values()
    assert bricks.measure(brick, CPU).least > 0
    assert bricks.measure_in_a_step(brick, CPU, 2) > 0


@pytest.mark.parametrize(
    ("operator", "given", "below"),
    [
        (aten.nll_loss_forward.default, ([4, 3], "labels", None, 1, -100), 3),
        (aten.nll_loss2d_backward.default, ([], [2, 3, 1, 9], "labels", None, 0, -100, []), 3),
        (aten.embedding.default, ([3, 9], "labels"), 3),
        (aten.embedding_dense_backward.default, ([2, 9], "labels", 3, -1, False), 3),
        (aten._embedding_bag.default, ([3, 9], "labels", [2]), 3),
        (aten._embedding_bag_dense_backward.default, ([9, 4], "labels"), 1),
        (aten.gather.default, ([9, 3], 1, "labels"), 3),
        (aten.index.Tensor, ([9, 3], ["labels"]), 3),
    ],
)
def test_an_index_that_is_made_up_names_what_there_is(operator, given, below):
    """Kernels do not check all of them, and write elsewhere."""
    shapes = [
        TensorSpec(tuple(one), (), torch.float32) if isinstance(one, list) and "labels" not in one else one
        for one in given
    ]
    assert bricks._values(Brick(operator, tuple(shapes), {})) == below


class Alive:
    """An operator that counts which of its answers are still there."""

    def __init__(self) -> None:
        self.overloadpacket = SimpleNamespace(__name__="relu")
        self.most, self._alive = 0, weakref.WeakSet()

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        answer = torch.relu(given)
        self._alive.add(answer)
        self.most = max(self.most, len(self._alive))
        return answer


def test_in_a_step_as_many_answers_of_a_brick_stay_as_it_has_copies_and_in_a_bound_none():
    """What a step computes stays for its backward pass, so the next answer is not written where the last one was."""
    for copies in (1, 3):
        in_a_step = Alive()
        bricks.measure_in_a_step(Brick(in_a_step, (TensorSpec((4,), (1,), torch.float32),), {}), CPU, copies)
        assert in_a_step.most == copies + 1
    alone = Alive()
    bricks.measure(Brick(alone, (TensorSpec((4,), (1,), torch.float32),), {}), CPU)
    assert alone.most == 1


def test_a_brick_has_as_many_copies_of_its_values_as_a_step_touches_between_two_calls():
    brick = Brick(aten.relu.default, (TensorSpec((256, 1024), (1024, 1), torch.float32),), {})
    assert brick.bytes == 2**20
    assert bricks.copies_of(brick, footprint=6 * 2**20, calls=2) == 3
    assert bricks.copies_of(brick, footprint=6 * 2**20, calls=100) == 1
    assert bricks.copies_of(brick, footprint=2**40, calls=1) == bricks.COPIES
    large = Brick(aten.relu.default, (TensorSpec((2**24,), (1,), torch.float32),), {})
    assert bricks.copies_of(large, footprint=2**40, calls=1) == 1


def test_what_cannot_be_called_alone_is_told_and_counts_nothing():
    calls = CallRecorder()
    sparse = torch.eye(3).to_sparse()
    calls.add("", "forward", aten.add.Tensor, (sparse, sparse), {})
    calls.add("", "forward", aten.index_select.default, (sparse, 0, torch.tensor([1])), {})
    measured = bound.measure(calls, Graph(), 1, CPU, Precision.fp32)
    assert measured["not_measured"] == ["add", "index_select"]
    assert measured["layers"][""]["forward"] == 0.0


def test_a_choice_is_the_same_operator_otherwise():
    images = TensorSpec((2, 3, 4, 4), (48, 16, 4, 1), torch.float32)
    filters = TensorSpec((5, 3, 3, 3), (27, 9, 3, 1), torch.float32)
    brick = Brick(aten.convolution.default, (images, filters, None, [1], [0], [1], False, [0], 1), {})
    choices = bound._choices(brick, CPU, Precision.fp32, layouts=True)
    assert set(choices) == {"all in channels_last", "all without oneDNN", bound.LOWER}
    assert choices["all in channels_last"].args[0].stride == (48, 1, 12, 3)
    assert choices[bound.LOWER].args[1].dtype is torch.bfloat16
    assert not choices["all without oneDNN"].library
    assert bound.LOWER not in bound._choices(brick, CPU, Precision.bf16, layouts=True)


def test_the_bound_of_a_step_is_not_above_what_it_takes(tmp_path):
    seen = []
    for number in range(4):  # others may use the machine while operators are measured
        profile = small_task.profiled(tmp_path / str(number), bound=True)
        told = profile["bound"]
        layers = {layer["name"]: layer["bound_seconds"] for layer in profile["layers"]}
        wide, narrow = layers["2"], layers["4"]
        seen.append((told["ratio"] / (1 + told["error"]), wide, narrow))
        if 0 < seen[-1][0] <= 1 and wide["backward"] > wide["forward"] > narrow["forward"] > 0:
            break
    else:
        pytest.fail(f"ratios and layers {seen}")
    assert told["seconds"] == pytest.approx(sum(row["seconds"] for row in told["phases"]))
    assert 0 < told["parallel_seconds"] <= told["seconds"]
    assert told["not_measured"] == []
    said = "\n".join(in_sentences(profile))
    assert "a step takes at least" in said
    assert "as if" in said


def content(*, ranks=1, batch=1, between=0.0, **phases):
    """Of ten steps; `between` are the seconds of one that lie between the operators of its forward pass."""
    rows = [{"name": name, "seconds": seconds * 10} for name, seconds in phases.items()]
    gaps = {"phase": "forward", "class": "framework", "seconds": between * 10}
    return {
        "window": {"steps": 10},
        "phases": [*rows, {"name": "evaluation", "seconds": 9.0}],
        "classes": [gaps, {"phase": "forward", "class": "matrix", "seconds": 5.0}],
        "ranks": ranks,
        "global_batch_size": batch,
    }


def measured(*, communication=0.0):
    return {
        "layers": {"fc": {"forward": 1.0, "backward": 2.0}, "": {"optimizer": 0.5}},
        "error": 0.02, "saved": {"all in channels_last": 0.25}, "unique": 3, "calls": 9.0,
        "not_measured": [], "communication": communication,
        "path": {"forward": 0.75, "backward": 1.5, "optimizer": 0.5},
    }  # fmt: skip


def test_communication_counts_as_far_as_a_backward_pass_cannot_hide_it():
    steps = [{"phases": {"input": 0.2}}, {"phases": {"input": 0.1}}]
    took = content(forward=2.0, backward=3.0, optimizer=1.0, input=0.3, communication=4.0)
    assert bound.described(measured(communication=1.5), took, steps)["seconds"] == pytest.approx(3.6)
    told = bound.described(measured(communication=5.0), took, steps)
    assert told["seconds"] == pytest.approx(3.6 + 3.0)
    assert told["ratio"] == pytest.approx(6.6 / 10.3)
    assert {row["what"]: row["saved_seconds"] for row in told["as_if"]} == pytest.approx(
        {"all in channels_last": 0.25, "input free": 0.3, "communication free": 4.0}
    )


def more_ranks(whole_sum=0.0, **took):
    told = bound.described(measured(communication=whole_sum), content(**took), [{"phases": {}}])
    return {row["what"]: row["saved_seconds"] for row in told["as_if"] if " ranks" in row["what"]}


def test_more_ranks_share_what_samples_take_and_not_what_lies_between_nor_the_optimizer():
    """Half, and three quarters, of 0.3 + (2.0 - 0.4) + 3.0 seconds; 12 samples are no 8 equal parts."""
    told = more_ranks(forward=2.0, backward=3.0, optimizer=1.0, input=0.3, between=0.4, batch=12)
    assert told == pytest.approx(
        {"2 ranks, without their communication": 2.45, "4 ranks, without their communication": 3.675}
    )


def test_more_ranks_send_more_and_hide_less_of_it():
    """A sum of 1.5 s over two ranks, 0.5 s of it seen: over four it takes 1.5 times as long, 2.25 s, and half of the
    1 s that was hidden is seen. Over eight 1.75 times, and three quarters."""
    took = {"forward": 2.0, "backward": 2.0, "communication": 0.5}
    told = more_ranks(whole_sum=1.5, ranks=2, batch=8, **took)
    assert told == pytest.approx({"4 ranks": 2.0 - 0.75 - 0.5, "8 ranks": 3.0 - 1.125 - 0.75})


def test_in_parallel_a_step_takes_its_longest_way_and_what_that_cannot_hide():
    took = content(forward=2.0, backward=3.0, optimizer=1.0, input=0.3)
    steps = [{"phases": {"input": 0.1}}]
    told = [bound.described(measured(communication=seconds), took, steps) for seconds in (1.0, 1.75, 5.0)]
    assert [one["parallel_seconds"] for one in told] == pytest.approx([2.85, 3.1, 6.35])
    assert all(one["parallel_seconds"] <= one["seconds"] for one in told)


def test_the_bound_of_several_ranks_is_their_mean_with_the_largest_error():
    slow = measured(communication=3.0) | {"layers": {"fc": {"forward": 3.0, "backward": 2.0}}, "error": 0.1}
    slow |= {"saved": {"all contiguous": 1.0}, "not_measured": ["add"]}
    told = bound.bound_of_ranks([measured(communication=1.0), slow])
    assert told["layers"] == {"fc": {"forward": 2.0, "backward": 2.0}, "": {"optimizer": 0.25}}
    assert told["path"] == {"forward": 0.75, "backward": 1.5, "optimizer": 0.5}
    assert told["saved"] == {"all in channels_last": 0.125, "all contiguous": 0.5}
    assert (told["error"], told["communication"], told["not_measured"]) == (0.1, 2.0, ["add"])
    assert bound.bound_of_ranks([None, None]) is None


def test_the_bound_is_compared_with_what_ranks_took_in_the_mean():
    ranks = [rank(0), rank(1, forward=6.0)]
    for one, forward in zip(ranks, (1.0, 5.0), strict=True):
        one["bound"] = measured() | {"layers": {"fc": {"forward": forward}}}
    (row,) = [row for row in profile(*ranks)["bound"]["phases"] if row["name"] == "forward"]
    assert row["seconds"] == pytest.approx(3.0)
    assert row["measured_seconds"] == pytest.approx(4.0)


def test_savings_that_overlap_are_told_as_such():
    one = rank()
    one["bound"] = measured()
    assert "they overlap and must not be added" in "\n".join(in_sentences(profile(one)))
