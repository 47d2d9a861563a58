"""Tokenization of transcripts: SentencePiece's unigram model, or one symbol per character.

A vocabulary is a list of symbols by number. Number 0 is the unknown symbol, which no transcript may need, and
which is a word of its own where a network emits it, as SentencePiece has it; a symbol that begins a word begins
with U+2581.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from train_bench.errors import RequestError, UnknownName

UNKNOWN = "<unk>"
WORD = "\u2581"


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The symbols, and what turns a transcript into their numbers."""

    symbols: list[str]
    encode: Callable[[str], list[int]]


def text_of(numbers: Iterable[int], symbols: Sequence[str]) -> str:
    """The transcript, words separated by single spaces."""
    pieces = (symbols[number] if number else f"{WORD}{UNKNOWN}{WORD}" for number in numbers)
    return " ".join("".join(pieces).replace(WORD, " ").split())


def characters(alphabet: str, count: int) -> Tokenizer:
    """The space and the letters of `alphabet`, `count` symbols in all. A space comes between words alone."""
    symbols = [UNKNOWN, WORD, *alphabet]
    if len(symbols) != count:
        raise RequestError(
            f"model.labels is {count}; an alphabet of {len(alphabet)} characters makes {len(symbols)} symbols."
        )
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    return Tokenizer(symbols, lambda text: [numbers[letter] for letter in text.replace(" ", WORD)])


def unigram(transcripts: Iterable[str], count: int) -> Tokenizer:
    """SentencePiece's unigram model with `count` symbols, trained on `transcripts`, every character of which it
    knows."""
    import sentencepiece

    trained = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(transcripts),
            model_writer=trained,
            model_type="unigram",
            vocab_size=count,
            character_coverage=1.0,
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise RequestError(f"No vocabulary of model.labels={count} symbols can be made: {reason}.") from error
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    symbols = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
    return Tokenizer(symbols, lambda text: processor.encode(text, out_type=int))


def tokenizer(name: str, alphabet: str, count: int, transcripts: Iterable[str]) -> Tokenizer:
    """The one that the configuration names."""
    if name == "characters":
        return characters(alphabet, count)
    if name == "unigram":
        return unigram(transcripts, count)
    raise UnknownName(what="tokenizer (data.tokenizer)", name=name, known=["characters", "unigram"])
