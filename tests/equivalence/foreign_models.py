"""A model of somebody else's for DLRM, which adds up what the reference's multiplies or does it as the reference."""

import cattrs
import torch

from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.model import DLRM


class Renamed(torch.nn.Module):
    """The reference's layers under other names, with a counter that nobody needs."""

    def __init__(self, config, scale):
        super().__init__()
        shape = cattrs.structure(dict(config), Config).model
        self.net = DLRM(shape, seed=torch.initial_seed(), rank=0, ranks=1, device=torch.device("cpu"))
        self.scale = scale
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, dense, rows):
        return self.scale * self.net(dense, rows)


def same(config):
    return Renamed(config, 1.0)


def louder(config):
    return Renamed(config, 1.001)


def fewer(config):
    model = Renamed(config, 1.0)
    model.forward = lambda dense, rows: model.net(dense, rows)[:-1]
    return model
