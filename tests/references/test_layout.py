import pytest
import torch

from train_bench.check.one_rank import OneRank
from train_bench.references.parts.layout import layout_of


class Contiguous(OneRank):
    channels_last = False


@pytest.mark.parametrize(
    ("configured", "parallel", "dims", "layout"),
    [
        (None, OneRank(), 2, torch.channels_last),
        (None, OneRank(), 3, torch.channels_last_3d),
        (None, Contiguous(), 2, torch.contiguous_format),
        (None, Contiguous(), 3, torch.contiguous_format),
        (True, Contiguous(), 2, torch.channels_last),
        (False, OneRank(), 3, torch.contiguous_format),
    ],
)
def test_what_is_configured_wins_over_what_is_faster(configured, parallel, dims, layout):
    assert layout_of(configured, parallel, dims=dims) is layout
