"""Configuration of the language model pretraining benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from train_bench import task


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Hyperparameters by mllog key (closed division table, "NLP"); all are free and all are logged.

    Rates are per step of the global batch, steps are steps of the global batch. The warm-up stands under
    two keys, `opt_learning_rate_warmup_steps` and `num_warmup_steps`, which have to agree;
    `start_warmup_step` may be negative, so that the first rate is not 0.
    """

    opt_base_learning_rate: float
    opt_epsilon: float = 1e-6
    opt_learning_rate_training_steps: int
    opt_learning_rate_warmup_steps: int = 0
    num_warmup_steps: int = 0
    start_warmup_step: int = 0
    opt_lamb_beta_1: float = 0.9
    opt_lamb_beta_2: float = 0.999
    opt_lamb_weight_decay_rate: float = 0.01


@dataclass(slots=True, kw_only=True)
class Model:
    """Network dimensions. BERT-Large: 24 layers of width 1024 with 16 heads.

    vocabulary      word pieces
    positions       longest sequence, in tokens
    width           of a token's vector
    intermediate    width inside the feed-forward part of a layer
    dropout         probability, on hidden vectors and on attention probabilities
    """

    layers: int
    width: int
    heads: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512
    token_types: int = 2
    dropout: float = 0.1


@dataclass(slots=True, kw_only=True)
class Data:
    """Source, format and loading of the examples.

    origin            "wikipedia" (TFRecord files of ready examples), "text" (plain text, masked by `prepare`)
                      or "grammar" (generated): the formats that `prepare` reads
    sequence_length   tokens per example, padding included
    predictions       masked positions per example, padding included
    masked_share      share of the tokens that are masked by `prepare`
    copies            differently masked copies of a training text that `prepare` makes
    train_file, eval_file            names of the files of plain text
    train_documents, eval_documents  how many documents are generated
    eval_file_bytes   size of the published file of evaluation examples; None: not checked
    md5               published digests by file name of the source; checked for every file that is there
    sha256            digest that the packed examples together must have; None: not checked
    verify            hash the packed files on every opening; else only compare their sizes
    eval_batch_size   examples per rank in an evaluation step
    pack              put several short examples of a batch into one row, without attention between them;
                      changes no number beyond rounding and dropout
    workers           loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch          batches that each worker holds ready
    permute_labels    give every training example the masked words of another one: permuted-label control
    """

    origin: str
    sequence_length: int = 512
    predictions: int = 76
    masked_share: float = 0.15
    copies: int = 10
    train_file: str = "train.txt"
    eval_file: str = "valid.txt"
    train_documents: int = 0
    eval_documents: int = 0
    eval_file_bytes: int | None = None
    md5: dict[str, str] = field(default_factory=dict)
    sha256: str | None = None
    verify: bool = False
    eval_batch_size: int
    pack: bool = False
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The language model benchmark at any scale.

    pretrained     the definition starts from published weights, not from random ones
    start_weights  the file that holds them, in the format of `weights.py`
    warm_up_steps  taken on synthetic batches before the clock and then undone
    """

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    pretrained: bool = True
    start_weights: str | None = None
    clip_norm: float = 1.0
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("grammar",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("start_weights", "data.workers", "data.prefetch", "data.verify", "data.eval_batch_size"),
        *("data.pack", "warm_up_steps"),
    )

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "google_crc32c")

    def refuse(self) -> str | None:
        """Missing or contradictory fields, as a sentence."""
        hyperparameters = self.hyperparameters
        if self.pretrained and self.start_weights is None:
            return (
                f"{self.benchmark} starts from published weights, and benchmark.start_weights names no file. Fetch the "
                "checkpoint model.ckpt-28252 of the benchmark's reference implementation, save its tensors under "
                "their names as an .npz file (references/bert/README.md shows how), and set "
                "benchmark.start_weights=THAT_FILE."
            )
        if not self.pretrained and self.start_weights is not None:
            return (
                f"{self.benchmark} starts from random weights and not from {self.start_weights}; leave "
                f"benchmark.start_weights out."
            )
        if hyperparameters.num_warmup_steps != hyperparameters.opt_learning_rate_warmup_steps:
            return (
                f"num_warmup_steps is {hyperparameters.num_warmup_steps} and opt_learning_rate_warmup_steps is "
                f"{hyperparameters.opt_learning_rate_warmup_steps}; both are the length of the warm-up and have to "
                "agree."
            )
        return self.refuse_compilation("the rows of data.pack=true change") if self.data.pack else None
