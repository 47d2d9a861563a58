"""Configuration of any benchmark that pretrains a decoder. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from train_bench import task
from train_bench.errors import RequestError


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "llama31_8b"). Steps are steps of the global batch.

    max_sequence_length              tokens of a sample
    max_steps                        where the rate would have decayed to its end
    opt_end_learning_rate            there; default: a tenth of the base
    opt_learning_rate_warmup_steps   in which the rate rises to the base
    opt_learning_rate_decay_steps    from there to `max_steps`; default: the remaining steps
    init_checkpoint_step             of the start weights; null where weights are random
    """

    max_sequence_length: int = 8192
    max_steps: int = 1200000
    opt_name: str = "adamw"
    opt_base_learning_rate: float
    opt_end_learning_rate: float | None = None
    opt_learning_rate_warmup_steps: int
    opt_learning_rate_decay_steps: int | None = None
    opt_learning_rate_decay_schedule: str = "cosine with linear warmup"
    opt_adamw_beta_1: float = 0.9
    opt_adamw_beta_2: float = 0.95
    opt_adamw_epsilon: float = 1e-5
    opt_adamw_weight_decay: float = 0.1
    opt_gradient_clip_norm: float = 1.0
    init_checkpoint_step: int | None = None


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of any decoder; a benchmark adds what is its own.

    vocabulary       tokens, and rows of the embedding and of the output layer unless a benchmark has more of these
    width            of a token's vector
    heads            of queries
    key_value_heads  of keys and values, each shared by `heads / key_value_heads` of queries
    head_size        numbers in each
    intermediate     width inside the feed-forward part of a layer
    rope_base        of the slowest rotation's wave
    """

    vocabulary: int = 128256
    layers: int
    width: int
    heads: int
    key_value_heads: int
    head_size: int
    intermediate: int
    norm_epsilon: float = 1e-5
    rope_base: float

    @property
    def rows(self) -> int:
        """Rows of the embedding and of the output layer."""
        return self.vocabulary

    @property
    def parameters(self) -> int:
        """Number of parameters: embedding, output layer and last norm, and in every layer two norms, four projections
        of attention, and the feed-forward part."""
        projections = 2 * self.width * self.head_size * (self.heads + self.key_value_heads)
        layer = 2 * self.width + projections + self.feed_forward_parameters
        return 2 * self.rows * self.width + self.width + self.layers * layer

    @property
    def feed_forward_parameters(self) -> int:
        """Of a layer: three matrices."""
        return 3 * self.width * self.intermediate

    def check(self) -> None:
        """Raises `RequestError` for heads that cannot be."""
        if self.heads % self.key_value_heads:
            raise RequestError(
                f"model.heads {self.heads} cannot be divided among {self.key_value_heads} heads of keys and values "
                "(model.key_value_heads)."
            )
        if self.head_size % 2:
            raise RequestError(f"model.head_size is {self.head_size}; rotary positions need an even number.")


@dataclass(slots=True, kw_only=True)
class Data:
    """Source, format and loading of the tokens.

    origin           "c4" (JSON lines or token files of Megatron), "text" (bytes of one plain text) or "grammar"
                     (generated): what `prepare` knows how to read
    train_files, eval_files          patterns of the names of C4's files of JSON lines
    train_tokens, eval_tokens        patterns of the names of Megatron's files, without .bin and .idx
    train_documents, eval_documents  number of documents: of generated text, or that the distributed files must have
    train_size, eval_size            number of tokens that the distributed files must have; null: not checked
    eval_share       last part of a plain text, which evaluates
    sha256           digest that the prepared tokens together must have; None: not checked
    verify           hash the prepared files whenever they are opened; else only their sizes are compared
    eval_batch_size  sequences per rank in an evaluation step
    workers          loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch         batches that each worker holds ready
    permute_labels   shuffle the tokens of every training sequence: nothing but their frequency can be learnt
    train_parts      parts of equally many training files, by name, from which samples are taken in turn
    """

    origin: str
    train_files: list[str] = field(default_factory=list)
    eval_files: list[str] = field(default_factory=list)
    train_tokens: list[str] = field(default_factory=list)
    eval_tokens: list[str] = field(default_factory=list)
    train_documents: int | None = None
    eval_documents: int | None = None
    train_size: int | None = None
    eval_size: int | None = None
    eval_share: float = 0.1
    sha256: str | None = None
    verify: bool = False
    eval_batch_size: int
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False
    train_parts: int = 1


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """Decoder pretraining at any scale; a benchmark adds `model`, with its own type.

    pretrained     the definition starts from published weights, not from random ones
    start_weights  the folder or file that holds them, in the format of `weights.py`
    warm_up_steps  taken on synthetic batches before the clock and then undone
    activation_checkpointing  a layer keeps its inputs alone, and is computed again in the backward pass: less memory,
                   a forward pass more, the same numbers
    decay_counts_warmup  the steps of the decay are counted from the first step on, as Megatron does; false: from the
                   end of the warm-up
    """

    hyperparameters: Hyperparameters
    data: Data
    pretrained: bool = False
    start_weights: str | None = None
    warm_up_steps: int = 2
    activation_checkpointing: bool = False
    decay_counts_warmup: bool = False

    BUILT_IN_SHARDS: ClassVar[bool] = True

    GENERATES: ClassVar[tuple[str, ...]] = ("grammar",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("start_weights", "data.workers", "data.prefetch", "data.verify", "data.eval_batch_size"),
        *("ruleset", "warm_up_steps", "activation_checkpointing"),
    )
    """Rounds 5.1 to 6.1 define the same task."""

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "tokenizers")

    WARMUP_FROM: ClassVar[int] = 0
    """Number of the first step of the warm-up (`recipe.CosineSchedule`)."""

    if TYPE_CHECKING:
        model: Model  # no field here, as in `task.BenchmarkConfig`

    def parameter_count(self, ranks: int) -> task.ParameterCount:
        """All of it is trained."""
        return task.ParameterCount(trained=self.model.parameters)

    def for_ranks(self, ranks: int) -> Config:
        """With the end of the learning rate and the steps of its decay."""
        given = self.hyperparameters
        end, decay = given.opt_end_learning_rate, given.opt_learning_rate_decay_steps
        filled = replace(
            given,
            opt_end_learning_rate=0.1 * given.opt_base_learning_rate if end is None else end,
            opt_learning_rate_decay_steps=given.max_steps - given.opt_learning_rate_warmup_steps
            if decay is None
            else decay,
        )
        return replace(self, hyperparameters=filled)

    def refuse(self) -> str | None:
        """Missing or contradictory fields, as a sentence."""
        if self.activation_checkpointing and self.compile_mode:
            return (
                "benchmark.activation_checkpointing=true was not tried with benchmark.compile=true; leave one of them "
                "out."
            )
        if self.pretrained and self.start_weights is None:
            return (
                f"{self.benchmark} starts from published weights, and benchmark.start_weights names none. Fetch them "
                "as safetensors, and set benchmark.start_weights=FOLDER."
            )
        if not self.pretrained and self.start_weights is not None:
            return (
                f"{self.benchmark} starts from random weights and not from {self.start_weights}; leave "
                "benchmark.start_weights out."
            )
        return None
