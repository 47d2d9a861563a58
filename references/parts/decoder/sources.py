"""Text as distributed or generated, and its division into prepared files."""

from __future__ import annotations

import fnmatch
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from train_bench.core import files
from train_bench.errors import RequestError
from train_bench.references.parts import prepared
from train_bench.references.parts.decoder import grammar, megatron
from train_bench.references.parts.decoder.config import Config

TOKENIZER = "tokenizer.json"
LARGEST_LINE = 64 * 2**20
"""Bytes of a document as a line of JSON; those of C4 have some thousand."""

LARGEST_TEXT = 256 * 2**20
"""Bytes of a plain text, which is held in memory."""

LARGEST_PIECE = 1 << 27
"""Tokens of a file of Megatron's that become one prepared file."""

AT_ONCE = 256
"""Documents that are tokenized together."""

SEEDS = {"train": 20250501, "val": 20250502}
"""Seeds of generated text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One prepared file: its name, its source, and its documents."""

    name: str
    made_from: Mapping[str, Any]
    documents: Callable[[], Iterable[np.ndarray]]


Source = Mapping[str, Sequence[Part]]
"""Parts by split."""


def c4(config: Config, root: Path) -> Source:
    """JSON lines with a tokenizer, or Megatron token files, whichever `root` contains."""
    if any(root.rglob("*.idx")):
        return _from_megatron(config, root)
    patterns = {"train": config.data.train_files, "val": config.data.eval_files}
    found = {split: _matching(root, each) for split, each in patterns.items()}
    where = root / TOKENIZER
    if not where.is_file() or not all(found.values()):
        raise RequestError(
            f"{root} has {len(found['train'])} files {', '.join(patterns['train'])}, {len(found['val'])} files "
            f"{', '.join(patterns['val'])} and {'a' if where.is_file() else 'no'} {TOKENIZER}; needed are the shards "
            "of C4 (en) for training and validation with the benchmark's tokenizer, or the files .bin and .idx that "
            "Megatron's preprocessing makes of them."
        )
    tokenizer = _tokenizer(where, config)
    made_with = {"tokenizer": prepared.digest(where)}
    return {
        split: [
            Part(
                name=path.name,
                made_from={"file": path.name, "bytes": path.stat().st_size, **made_with},
                documents=partial(json_lines, path, tokenizer),
            )
            for path in paths
        ]
        for split, paths in found.items()
    }


def _matching(root: Path, patterns: Sequence[str]) -> list[Path]:
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [path for path in paths if any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)]


def _tokenizer(path: Path, config: Config) -> Any:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the reader raises plain Exception
        raise RequestError(f"{path} cannot be read as a tokenizer: {error}.") from error
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if size != config.model.vocabulary:
        raise RequestError(
            f"The tokenizer {path} has {size} tokens; {config.benchmark} has {config.model.vocabulary}. Take that of "
            "the benchmark."
        )
    return tokenizer


def json_lines(path: Path, tokenizer: Any) -> Iterator[np.ndarray]:
    """The tokens of a file of documents, a JSON object with a `text` in each line; no token marks where one begins
    or ends (reference: preprocess without --append-eod)."""
    texts = []
    for number, line in enumerate(_lines(path)):
        texts.append(_text(line, f"{path}, line {number + 1}"))
        if len(texts) == AT_ONCE:
            yield from _tokens(tokenizer, texts)
            texts = []
    yield from _tokens(tokenizer, texts)


def _lines(path: Path) -> Iterator[bytes]:
    number = 0
    with files.opened(path) as plain, gzip.GzipFile(fileobj=plain) if path.suffix == ".gz" else plain as file:
        while True:
            try:
                line = file.readline(LARGEST_LINE)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise RequestError(
                    f"{path} is cut or corrupt behind line {number}: {error}. Fetch it again."
                ) from error
            if not line:
                return
            number += 1
            if len(line) == LARGEST_LINE:
                raise RequestError(
                    f"{path}, line {number} has more than {LARGEST_LINE} bytes; a document is a line. Fetch it again."
                )
            yield line


def _text(line: bytes, where: str) -> str:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where} is not valid JSON: {error}. Fetch the file again.") from error
    text = document.get("text") if isinstance(document, dict) else None
    if not isinstance(text, str) or not text.strip():
        said = "has no text" if text is None else f"has the text {text!r}"
        raise RequestError(f"{where} {said}; a document has one that is not empty. Fetch the file again.")
    return text


def _tokens(tokenizer: Any, texts: list[str]) -> Iterator[np.ndarray]:
    for encoded in tokenizer.encode_batch(texts, add_special_tokens=False):
        yield np.array(encoded.ids, dtype=np.int64)


def _from_megatron(config: Config, root: Path) -> Source:
    patterns = {"train": config.data.train_tokens, "val": config.data.eval_tokens}
    source: dict[str, list[Part]] = {}
    for split, names in patterns.items():
        paths = _matching(root, [f"{name}.idx" for name in names])
        if not paths:
            raise RequestError(
                f"{root} has no file {' or '.join(f'{name}.idx' for name in names)} for its split '{split}'."
            )
        source[split] = [part for path in paths for part in _pieces(path, config)]
    return source


def _pieces(path: Path, config: Config) -> Iterator[Part]:
    index = megatron.read(path)
    size = index.tokens.stat().st_size
    for first, last in megatron.pieces(index, LARGEST_PIECE):
        yield Part(
            name=f"{index.tokens.name} {first}",
            made_from={"file": index.tokens.name, "bytes": size, "first": first, "last": last},
            documents=partial(megatron.documents, index, first, last, vocabulary=config.model.vocabulary),
        )


def text(config: Config, root: Path) -> Source:
    """The bytes of the only .txt file in `root`: the first part trains and the last `data.eval_share`, from the next
    empty line on, evaluates."""
    paths = sorted(root.glob("*.txt"))
    if len(paths) != 1:
        raise RequestError(f"{root} has {len(paths)} files *.txt; needed is the one that is learnt.")
    content = files.read_bytes(paths[0], largest=LARGEST_TEXT)
    cut = content.find(b"\n\n", round(len(content) * (1 - config.data.eval_share))) + 2
    if cut < 2:
        raise RequestError(f"{paths[0]} has no empty line in its last part, where the text is divided.")
    parts = {"train": content[:cut], "val": content[cut:]}
    return {
        split: [
            Part(
                name=paths[0].name,
                made_from={"file": paths[0].name, "bytes": len(content), "share": config.data.eval_share},
                documents=partial(_whole, part),
            )
        ]
        for split, part in parts.items()
    }


def _whole(content: bytes) -> list[np.ndarray]:
    return [np.frombuffer(content, dtype=np.uint8)]


def generated(config: Config) -> Source:
    """Text of the invented language, other draws for each split."""
    if config.model.vocabulary != grammar.VOCABULARY:
        raise RequestError(
            f"model.vocabulary is {config.model.vocabulary}; the generated text has {grammar.VOCABULARY} tokens."
        )
    counts = {"train": config.data.train_documents, "val": config.data.eval_documents}
    return {
        split: [
            Part(
                name="grammar",
                made_from={"documents": count},
                documents=partial(_generated, count or 0, SEEDS[split]),
            )
        ]
        for split, count in counts.items()
    }


def _generated(count: int, seed: int) -> Iterator[np.ndarray]:
    return map(np.array, grammar.documents(count, seed))
