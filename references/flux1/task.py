"""Text to image by a rectified flow: train until the loss of the evaluation set is low enough."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from train_bench.quality import Quality
from train_bench.references.flux1 import data, sampling
from train_bench.references.flux1.config import Config
from train_bench.references.flux1.data import Batch
from train_bench.references.flux1.model import Flux
from train_bench.references.flux1.recipe import optimizer_of, schedule_of
from train_bench.references.parts import loading, stream
from train_bench.references.parts.recompute import recompute
from train_bench.references.parts.training import TrainingTask, non_finite
from train_bench.task import DataFacts, SampleSheet


class Task(TrainingTask[Config, Batch]):
    """The benchmark `flux1` and its smaller scale."""

    def build_model(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config = self.config
        config.model.check()
        self._schedule = schedule_of(config)
        model = self.parallel.construct(lambda: Flux(config.model))
        if config.activation_checkpointing:
            blocks = (model.get_submodule(f"{kind}_blocks").children() for kind in ("double", "single"))
            recompute(chain.from_iterable(blocks), keep_products=config.keep_products)
        return model, optimizer_of(model, config.hyperparameters)

    def warm_up(self) -> None:
        self.run_warmup(self.synthetic(self.local_batch_size))
        self._errors(self.synthetic(self.config.data.eval_batch_size))

    def synthetic(self, samples: int) -> Batch:
        """A synthetic micro-batch; reads no data."""
        return data.synthetic(self.config, samples)

    def open_data(self) -> DataFacts:
        """Find and check the samples, start the loaders. Training takes them in the order of their files."""
        config, parallel = self.config, self.parallel
        train, val, empty = data.open_samples(config)
        trained = data.BatchSet(
            config=config,
            stored=train,
            empty=empty,
            seed=self.seed,
            permuted=config.data.permute_labels,
        )
        evaluated = data.BatchSet(config=config, stored=val, empty=empty)
        order = self.sampler(stream.InOrder(samples=len(train)))
        mine = stream.evaluation_order(
            len(val), config.data.eval_batch_size, parallel.data_rank, parallel.data_ranks
        )
        fingerprint = self.use_loaders(
            loading.loader(trained, config.data, parallel.device, order, collate=None),
            loading.loader(
                evaluated, config.data, parallel.device, mine, collate=None, padding_from=len(val)
            ),
        )
        return DataFacts(train_samples=len(train), eval_samples=len(val), fingerprint=fingerprint)

    def train_step(self, batches: Iterator[Batch]) -> None:
        """The mean squared error of the velocity from latent to noise, at a point between them."""
        for batch in self.micro_batches(batches):
            text, pooled, latents, noise, times = self._on_device(batch)
            velocity = self.forward(between(latents, noise, times), times, text, pooled)
            self.backward(functional.mse_loss(velocity.float(), noise - latents))
        clip_norm = self.config.hyperparameters.opt_gradient_clip_norm
        self.step(self._schedule(self.optimizer_steps), clip_norm=clip_norm)

    def evaluate(self) -> Quality:
        """`eval_loss`: the mean over all samples of the evaluation set; NaN once the loss is not finite."""
        start = torch.zeros(2, dtype=torch.float64, device=self.parallel.device)
        start[0] = torch.where(non_finite(self.last_loss) > 0, math.nan, 0.0)
        errors, count = self.reduce_over_eval(self._errors, start).tolist()
        return Quality(metrics={"eval_loss": errors / count})

    def draw_samples(self) -> SampleSheet | None:
        """Images of the mixture; latents of encoded images would need the decoder of their encoder."""
        if self.config.data.origin != "mixture":
            return None
        self.forward.eval()

        def velocity(*given: Tensor) -> Tensor:
            found: Tensor = self.infer(*self._on_device(given))
            return found.float().cpu()

        return sampling.draw_sample_sheet(self.config, velocity)

    def _errors(self, batch: Batch) -> Tensor:
        """float64 (2,): mean squared errors of the samples of a batch, added up, and how many samples these are."""
        text, pooled, latents, noise, times = self._on_device(batch)
        velocity = self.infer(between(latents, noise, times), times, text, pooled)
        errors = (velocity.float() - (noise - latents)).square().flatten(1).mean(dim=1)
        counted = times >= 0  # not of padding
        return torch.stack([torch.where(counted, errors, 0.0).double().sum(), counted.double().sum()])

    def _on_device(self, batch: Batch) -> Batch:
        return tuple(part.to(self.parallel.device, non_blocking=True) for part in batch)


def between(latents: Tensor, noise: Tensor, times: Tensor) -> Tensor:
    """(samples, channels, rows, columns): on the straight line from latent, at time 0, to noise, at time 1."""
    share = times[:, None, None, None]
    return (1 - share) * latents + share * noise
