"""The weights that adapters are trained for: published ones, or those of a small network that is pretrained here, on
the language that the dialect comes from.

Whoever prepares the data makes the small ones, too. Several folders of data share them, so that those of each shape and
way of making lie in a folder of their own within `start_weights`, named by a digest of what they are made from, with a
lock beside it while they are made:

    DIGEST/model.safetensors   in the published layout
    DIGEST/model.json          what they were made from, bytes and sha256, written last
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn
from torch.nn import functional

from train_bench import lock
from train_bench.errors import RequestError
from train_bench.progress_bar import bar
from train_bench.references.llama2_70b_lora import dialect
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.llama2_70b_lora.model import Decoder
from train_bench.references.parts import prepared
from train_bench.references.parts.decoder import grammar
from train_bench.references.parts.decoder.recipe import CosineSchedule
from train_bench.references.parts.decoder.weights import ONE_FILE, load_start_weights, published_name
from train_bench.references.parts.optimizers import AdamW

VERSION = 1
"""Of how they are made; weights of another one are made anew."""

STEPS, BATCH, WARMUP, RATE = 1500, 32, 100, 0.005
SEED = 20250600


def make(config: Config) -> None:
    """Pretrain the small network; returns at once if that was done before and nothing has changed since. Of several
    processes one does it and the others wait."""
    path = made_file(config)
    made_from = _made_from(config)
    with lock.alone(path.parent):
        entry = prepared.finished(path, made_from)
        if entry is not None and prepared.digest(path) == entry["sha256"]:
            return
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            decoder = Decoder(config.model)
            _pretrain(decoder, config.data.sequence_length)
        tensors = {published_name(name): one.detach() for name, one in decoder.named_parameters()}
        prepared.write_file(path, [save(tensors, metadata={"format": "pt"})], made_from, {})


def find(config: Config) -> None:
    """Raises `RequestError` where published ones are not there."""
    path = config.start_weights_path()
    if path is not None and not path.exists():
        raise RequestError(
            f"benchmark.start_weights={config.start_weights} is {path}, where nothing is. Fetch the weights that "
            f"{config.benchmark} starts from to there, or give an absolute path or one that begins in data_dir "
            f"({config.data_dir})."
        )


def load(decoder: Decoder, config: Config) -> None:
    """Fill `decoder`. Raises `RequestError` for files that are missing or do not fit, and for small ones that are of
    another version or corrupt."""
    path = config.start_weights_path()
    assert path is not None
    if config.data.origin == "dialect":
        path = made_file(config)
        _verify(path, config)
    load_start_weights(decoder, path)


def made_file(config: Config) -> Path:
    """Where `make` writes."""
    folder = config.start_weights_path()
    assert folder is not None
    digest = hashlib.sha256(json.dumps(_made_from(config), sort_keys=True).encode()).hexdigest()
    return folder / digest[:16] / ONE_FILE


def _made_from(config: Config) -> dict[str, Any]:
    shape = asdict(config.model)
    del shape["lora_dropout"]
    pretraining = {"steps": STEPS, "batch": BATCH, "warmup": WARMUP, "rate": RATE, "seed": SEED}
    length = config.data.sequence_length
    return {"version": VERSION, "model": shape, "sequence_length": length, **pretraining}


def _verify(path: Path, config: Config) -> None:
    entry = prepared.finished(path, _made_from(config))
    if entry is None:
        raise RequestError(
            f"There are no start weights of {config.benchmark} in {path.parent}; make "
            f"them with `train-bench prepare benchmark={config.benchmark}`."
        )
    prepared.check_file(path, entry, contents=True)


def _pretrain(decoder: nn.Module, length: int) -> None:
    """AdamW over all weights on text that is never seen twice."""
    texts = dialect.sequences(STEPS * BATCH, length, SEED, grammar.VERB_OF)
    rates = CosineSchedule(base=RATE, end=0.0, warmup_steps=WARMUP, decay_steps=STEPS - WARMUP)
    optimizer = AdamW(decoder.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in bar(range(STEPS), "pretraining"):
        tokens = torch.from_numpy(texts[step * BATCH : (step + 1) * BATCH]).long()
        logits = decoder(tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rates(step)
        optimizer.step()
        optimizer.zero_grad()
