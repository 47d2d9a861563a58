"""Configuration of the speech recognition benchmark.

Imports nothing heavy, so that listing and planning need no torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from train_bench import task


@dataclass(slots=True, kw_only=True)
class Hyperparameters(task.Hyperparameters):
    """Spelled as the mllog keys (closed division table, "speech recognition").

    Rates are per step of the global batch; `*_epochs` count epochs. Durations are in seconds, masks of
    frequency in mel channels, masks of time in shares of an utterance's frames. The two `alt` functions are
    the only ones there are.

    opt_gradient_clip_norm              largest global norm of a gradient; None: not clipped, logged as infinite
    data_train_max_duration             longer utterances do not train
    data_train_num_buckets              groups of like duration from which batches are formed; 1: none
    data_speed_perturbaton_min, _max    bounds of the factor of the sampling rate, drawn per training sample
    eval_max_prediction_symbols         an utterance is given up at the frame after this many symbols
    model_eval_ema_factor               share of the old average in the averaged weights that are evaluated
    model_weights_initialization_scale  multiplies all start weights and biases of LSTMs
    """

    opt_name: str
    opt_base_learning_rate: float
    opt_learning_rate_warmup_epochs: int
    opt_lamb_learning_rate_hold_epochs: int
    opt_lamb_learning_rate_decay_poly_power: float
    opt_lamb_learning_rate_min: float = 1e-5
    opt_learning_rate_alt_decay_func: bool = True
    opt_learning_rate_alt_warmup_func: bool = True
    opt_lamb_beta_1: float = 0.9
    opt_lamb_beta_2: float = 0.999
    opt_lamb_epsilon: float = 1e-9
    opt_weight_decay: float = 1e-3
    opt_gradient_clip_norm: float | None = 1.0
    data_train_max_duration: float = 16.7
    data_train_num_buckets: int = 1
    data_speed_perturbaton_min: float = 0.85  # the key is spelled so
    data_speed_perturbaton_max: float = 1.15
    data_spec_augment_freq_n: int = 2
    data_spec_augment_freq_min: int = 0
    data_spec_augment_freq_max: int = 20
    data_spec_augment_time_n: int = 10
    data_spec_augment_time_min: float = 0.0
    data_spec_augment_time_max: float = 0.03
    model_eval_ema_factor: float
    model_weights_initialization_scale: float = 0.5
    eval_max_prediction_symbols: int = 300

    def logged(self) -> dict[str, Any]:
        """The rules ask for a norm, which is infinite where nothing is clipped."""
        clip_norm = math.inf if self.opt_gradient_clip_norm is None else self.opt_gradient_clip_norm
        return task.Hyperparameters.logged(self) | {"opt_gradient_clip_norm": clip_norm}


@dataclass(slots=True, kw_only=True)
class Model:
    """The shape of the network.

    labels          symbols of the vocabulary; blank is one more output, the last
    encoder         units of each LSTM of the encoder
    pre_rnn         layers before frames are joined
    time_stack      frames that are joined between the two stacks of the encoder
    post_rnn        layers after it
    prediction      units of each LSTM of the prediction network, and of the embedding
    prediction_rnn  its layers
    joint           units where both meet
    *_dropout       after every layer of the encoder, of the prediction network, and in the joint
    """

    labels: int
    encoder: int
    pre_rnn: int
    time_stack: int = 2
    post_rnn: int
    prediction: int
    prediction_rnn: int
    joint: int
    encoder_dropout: float = 0.1
    prediction_dropout: float = 0.3
    joint_dropout: float = 0.3


@dataclass(slots=True, kw_only=True)
class Data:
    """Source of the utterances and processing on the clock.

    origin           "librispeech", "joined_digits" (spoken) or "letters" (generated): what `prepare` knows how to read
    train_subsets    folders of LibriSpeech, or speakers of the digits, that train
    eval_subsets     those that evaluate
    takes            recordings of each digit by each speaker: the first so many
    alphabet         characters that a transcript may have, besides the space
    tokenizer        "unigram" (SentencePiece, trained on the training transcripts) or "characters"
    md5              lines as md5sum prints them, for archives whose digest is known
    sha256           digest that all prepared utterances together must have; None: not checked
    verify           hash the prepared files whenever they are opened; else only their sizes are compared
    pack_utterances  utterances per prepared file
    sample_rate      samples per second
    trim_decibels    quieter than this below the loudest part is silence, cut away at both ends
    dither           standard deviation of the noise that is added to samples (full scale is 1)
    preemphasis      share of the sample before that is subtracted
    fft              samples per Fourier transform
    window, hop      seconds per window and from one to the next
    mel_filters      channels, from 0 Hz to half the sampling rate
    frame_stack      frames that become one
    eval_batch_size  utterances per rank in an evaluation step
    workers          loader processes per rank; 0 loads in the training process, None suits the machine
    prefetch         batches that each worker holds ready
    permute_labels   give every training utterance the transcript of another one: nothing can be learnt
    """

    origin: str
    train_subsets: list[str] = field(default_factory=list)
    eval_subsets: list[str] = field(default_factory=list)
    takes: int | None = None
    alphabet: str
    tokenizer: str
    md5: list[str] = field(default_factory=list)
    sha256: str | None = None
    verify: bool = False
    pack_utterances: int = 2000
    sample_rate: int = 16000
    trim_decibels: float = -60.0
    dither: float = 1e-5
    preemphasis: float = 0.97
    fft: int = 512
    window: float = 0.02
    hop: float = 0.01
    mel_filters: int = 80
    frame_stack: int = 3
    eval_batch_size: int
    workers: int | None = None
    prefetch: int = 2
    permute_labels: bool = False


@dataclass(slots=True, kw_only=True)
class Config(task.BenchmarkConfig):
    """The speech recognition benchmark at any scale.

    train_samples  training utterances of at most `data_train_max_duration`
    eval_symbols   a frame emits at most this many symbols
    warm_up_steps  taken on synthetic batches before the clock and then undone
    """

    hyperparameters: Hyperparameters
    model: Model
    data: Data
    eval_symbols: int = 30
    warm_up_steps: int = 2

    GENERATES: ClassVar[tuple[str, ...]] = ("letters",)

    TUNABLE: ClassVar[tuple[str, ...]] = (
        *task.BenchmarkConfig.TUNABLE,
        *("train_samples", "data.verify", "data.pack_utterances", "data.eval_batch_size"),
        *("data.workers", "data.prefetch", "warm_up_steps"),
    )

    REQUIRES: ClassVar[tuple[str, ...]] = ("torch", "sentencepiece", "soundfile")
    """`train_samples` follows from `data_train_max_duration`, which the rules leave free."""

    @property
    def samples_per_epoch(self) -> int | None:
        """The training set without the remainder by the global batch, which is redrawn every epoch."""
        batch = self.hyperparameters.global_batch_size
        return None if self.train_samples is None else self.train_samples // batch * batch

    def refuse(self) -> str | None:
        """Refuse a clip norm that no plan can represent, and compilation, as a sentence."""
        norm = self.hyperparameters.opt_gradient_clip_norm
        if norm is not None and not math.isfinite(norm):
            return f"opt_gradient_clip_norm is {norm}; where nothing is to be clipped, it is null."
        return self.refuse_compilation("the lengths of its utterances change")
