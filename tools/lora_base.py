"""Make the start weights of llama2_70b_lora_mini: its network without adapters, pretrained on the language that the
dialect is derived from.

    python tools/lora_base.py [STEPS [FILE]]

Processors round differently, so that another machine writes other bytes; the benchmark is defined by the file that the
reference has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.planned import composed
from train_bench.core.progress_bar import bar
from train_bench.plan import discover
from train_bench.references.llama2_70b_lora import dialect
from train_bench.references.llama2_70b_lora.model import Decoder
from train_bench.references.parts import prepared
from train_bench.references.parts.decoder import grammar
from train_bench.references.parts.decoder.recipe import CosineSchedule
from train_bench.references.parts.decoder.weights import save_weights
from train_bench.references.parts.optimizers import AdamW

SEED = 20250600
STEPS, BATCH, WARMUP, RATE = 3000, 32, 100, 0.005
FILE = discover.PACKAGE / "references" / "llama2_70b_lora" / "mini_start.safetensors"


def main() -> None:
    """Pretrain and write."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else FILE
    config = composed(["benchmark=llama2_70b_lora_mini"]).benchmark
    torch.manual_seed(SEED)
    decoder = Decoder(config.model)
    pretrain(decoder, steps, config.data.sequence_length)
    save_weights(decoder, file)
    print(f"{file}: {file.stat().st_size} bytes, sha256 {prepared.digest(file)}")


def pretrain(decoder: nn.Module, steps: int, length: int) -> None:
    """AdamW over all weights on text that is never seen twice."""
    texts = dialect.sequences(steps * BATCH, length, SEED, grammar.VERB_OF)
    rates = CosineSchedule(base=RATE, end=0.0, warmup_steps=WARMUP, decay_steps=steps - WARMUP)
    optimizer = AdamW(decoder.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    for step in bar(range(steps), "pretraining"):
        tokens = torch.from_numpy(texts[step * BATCH : (step + 1) * BATCH]).long()
        logits = decoder(tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rates(step)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
