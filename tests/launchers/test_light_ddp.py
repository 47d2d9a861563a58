"""The compiler is kept out of the start of ranks only in versions of torch that ask it what is known."""

import sys

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from train_bench.launchers.parts import light_ddp


def known():
    return torch._dynamo.utils.get_optimize_ddp_mode() == "python_reducer" and torch._dynamo.trace_rules.X


def asks_more():
    return torch._dynamo.utils.get_optimize_ddp_mode(), torch._dynamo.utils.another()


def asks_elsewhere():
    return torch._dynamo.utils.get_optimize_ddp_mode(), torch._dynamo.config.optimize_ddp


def asks_nothing():
    return "ddp_optimizer"


def test_the_installed_torch_asks_what_is_known():
    assert light_ddp.asks_as_known(DistributedDataParallel.__init__)
    assert light_ddp.asks_as_known(known)


@pytest.mark.parametrize("constructor", [asks_more, asks_elsewhere, asks_nothing])
def test_another_torch_is_left_as_it_is(constructor, monkeypatch):
    monkeypatch.setattr(light_ddp, "DistributedDataParallel", type("Other", (), {"__init__": constructor}))
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    before = vars(torch).get("_dynamo")
    with light_ddp._compiler_unconfigured():
        assert vars(torch).get("_dynamo") is before


def test_a_context_of_the_forward_pass_that_is_unknown_is_left_as_it_is():
    class Other:
        def _inside_ddp_forward(self):
            return "a context of another kind"

    assert light_ddp.without_mark(Other) is Other._inside_ddp_forward
    assert light_ddp.without_mark(type("None", (), {})) is None
    assert light_ddp.without_mark(DistributedDataParallel) is not DistributedDataParallel._inside_ddp_forward
