"""The recurrent neural network transducer, at any size.

After Graves, "Sequence Transduction with Recurrent Neural Networks" (2012), in the form of the MLPerf
reference: frames are joined inside the encoder, all LSTMs look at the past alone. The full benchmark has
49,006,080 parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.references.rnnt.config import Model

State = list[tuple[Tensor, Tensor]]
"""Per layer the hidden and the cell state, each (1, samples, units)."""


class StackedLSTM(nn.Module):
    """LSTM layers, each followed by dropout, the last one too."""

    def __init__(self, inputs: int, units: int, layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [inputs, *[units] * (layers - 1)]
        self.layers = nn.ModuleList([nn.LSTM(size, units) for size in sizes])
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """(time, samples, inputs) -> (time, samples, units), and the states after the last step."""
        after: State = []
        for number, layer in enumerate(self.layers):
            x, last = layer(x, state[number] if state else None)
            x = self.dropout(x)
            after.append(last)
        return x, after

    @torch.no_grad()
    def start(self, scale: float) -> None:
        """Initialise: the forget gates' bias is 1, in `bias_ih` alone. Then everything is scaled."""
        for name, weight in self.layers.named_parameters():
            if "bias" in name:
                forget = weight.chunk(4)[1]  # torch orders the gates: input, forget, cell, output
                forget.fill_(1.0 if "bias_ih" in name else 0.0)
            weight.mul_(scale)


class RNNT(nn.Module):
    """Names follow the rules' tensor names. Linear layers and the embedding keep torch's start weights; those
    of LSTMs are torch's, times `scale`."""

    def __init__(self, shape: Model, *, features: int, scale: float) -> None:
        super().__init__()
        self.time_stack = shape.time_stack
        stacked = shape.encoder * shape.time_stack
        self.pre_rnn = StackedLSTM(features, shape.encoder, shape.pre_rnn, shape.encoder_dropout)
        self.post_rnn = StackedLSTM(stacked, shape.encoder, shape.post_rnn, shape.encoder_dropout)
        self.pred_embed = nn.Embedding(shape.labels, shape.prediction)
        self.dec_rnn = StackedLSTM(
            shape.prediction, shape.prediction, shape.prediction_rnn, shape.prediction_dropout
        )
        self.joint_enc = nn.Linear(shape.encoder, shape.joint)
        self.joint_pred = nn.Linear(shape.prediction, shape.joint)
        self.joint_dropout = nn.Dropout(shape.joint_dropout)
        self.joint_net = nn.Linear(shape.joint, shape.labels + 1)
        for stack in (self.pre_rnn, self.post_rnn, self.dec_rnn):
            stack.start(scale)

    def forward(self, features: Tensor, labels: Tensor) -> Tensor:
        """(T, samples, features) and int64 (samples, U) -> (samples, ceil(T / time_stack), U + 1, labels + 1)
        logits."""
        encoded = self.encode(features)
        embedded = self.pred_embed(labels).transpose(0, 1)
        start = embedded.new_zeros(1, *embedded.shape[1:])
        predicted, _ = self.dec_rnn(torch.cat([start, embedded]))
        return self.join(encoded.unsqueeze(2), self.joint_pred(predicted.transpose(0, 1)).unsqueeze(1))

    def encode(self, features: Tensor) -> Tensor:
        """(T, samples, features) -> (samples, ceil(T / time_stack), joint): the encoder and its part of the
        joint."""
        x, _ = self.pre_rnn(features)
        x, _ = self.post_rnn(join_frames(x, self.time_stack))
        return self.joint_enc(x.transpose(0, 1))

    def predict(self, labels: Tensor | None, state: State | None, samples: int) -> tuple[Tensor, State]:
        """(samples, joint) and the state after one more label of each sample, int64 (samples,); without
        labels, those of the start."""
        if labels is None:
            embedded = self.pred_embed.weight.new_zeros(samples, self.pred_embed.embedding_dim)
        else:
            embedded = self.pred_embed(labels)
        output, state = self.dec_rnn(embedded.unsqueeze(0), state)
        return self.joint_pred(output[0]), state

    def join(self, encoded: Tensor, predicted: Tensor) -> Tensor:
        """(..., joint) of both, in shapes that broadcast -> (..., labels + 1) logits."""
        return self.joint_net(self.joint_dropout(torch.relu(encoded + predicted)))


def join_frames(x: Tensor, count: int) -> Tensor:
    """(T, samples, units) -> (ceil(T / count), samples, count * units): neighbours side by side, zeros after
    the last."""
    x = functional.pad(x, (0, 0, 0, 0, 0, -x.shape[0] % count))
    time, samples, units = x.shape
    return (
        x.view(time // count, count, samples, units)
        .transpose(1, 2)
        .reshape(time // count, samples, count * units)
    )


def joined_length(frames: Tensor, count: int) -> Tensor:
    """Number of frames left of each utterance."""
    return (frames + count - 1) // count


def tensor_names(model: nn.Module) -> list[str]:
    """Parts with weights as the rules name them: 7, at any size."""
    return [name for name, part in model.named_children() if any(True for _ in part.parameters())]
