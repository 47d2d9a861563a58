"""Tokens from JSON lines, Megatron's files, text and the grammar: whole, in order, and plain about what is wrong."""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.references.configs import llama31_8b
from tests.references.distributed import json_lines, word_tokenizer
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.references.llama31_8b.config import Config
from train_bench.references.llama31_8b.task import Task
from train_bench.references.parts import prepared
from train_bench.references.parts.decoder import data, grammar, megatron, sources, tokens
from train_bench.run.order import order_fingerprint

WORDS = ["<unknown>", "the", "cat", "dog", "sees", "a"]
TEXTS = ["the cat sees a dog", "a dog", "the dog sees the cat", "cat", "dog sees cat"]
SHARDS = ("c4-train.00768-of-01024.json.gz", "c4-train.00769-of-01024.json.gz")
VALIDATION = "c4-validation.00000-of-00008.json.gz"


def small_c4(folder: Path, *overrides: str) -> Config:
    """The full benchmark with a vocabulary of six words, in sequences of four tokens."""
    return llama31_8b(
        "llama31_8b",
        *(
            "model.vocabulary=6",
            "model.layers=1",
            "model.width=16",
            "model.heads=2",
            "model.key_value_heads=1",
        ),
        *("model.head_size=8", "model.intermediate=16", "eval_samples=2"),
        *("data.train_size=null", "data.eval_size=null"),
        *("hyperparameters.max_sequence_length=4", "hyperparameters.global_batch_size=4", "warm_up_steps=0"),
        *("data.workers=0", f"data_dir={folder}", *overrides),
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    json_lines(folder / SHARDS[0], TEXTS)
    json_lines(folder / SHARDS[1], TEXTS[::-1])
    json_lines(folder / VALIDATION, [text for text in reversed(TEXTS) for _ in range(2)])
    word_tokenizer(folder / sources.TOKENIZER, WORDS)
    return folder


def numbers(texts: Sequence[str]) -> list[int]:
    """Tokens of texts, directly one behind the other."""
    return [WORDS.index(word) for text in texts for word in text.split()]


def test_sequences_are_cut_from_documents_that_follow_each_other_without_a_token_between(
    source: Path, tmp_path: Path
) -> None:
    config = small_c4(tmp_path / "tokens")
    data.prepare(config, tmp_path / "tokens", source)
    train, val = data.open_sequences(config)
    stream = numbers([*TEXTS, *TEXTS[::-1]])
    assert len(train) == (len(stream) - 1) // 4
    assert [train[place].tolist() for place in range(len(train))] == [
        stream[first : first + 5] for first in range(0, len(stream) - 4, 4)
    ]
    assert len(val) == 2 and [val[0].tolist(), val[1].tolist()] == [
        numbers([text for text in TEXTS[::-1] for _ in range(2)])[first : first + 5] for first in (0, 4)
    ]
    assert np.array_equal(train.content(1).view("<u2"), stream[4:8])


def test_files_that_are_finished_are_kept_and_the_rest_is_made_when_it_is_prepared_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = small_c4(tmp_path / "tokens"), tmp_path / "tokens"
    made: list[str] = []
    honest = tokens.write_file

    def interrupted(where: Path, name: str, *rest: Any) -> dict[str, Any]:
        made.append(name)
        if len(made) == 2:
            raise KeyboardInterrupt
        return honest(where, name, *rest)

    monkeypatch.setattr(tokens, "write_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.prepare(config, folder, source)
    assert not (folder / prepared.MANIFEST).exists()
    data.prepare(config, folder, source)
    assert made == ["train_00000", "train_00001", "train_00001", "val_00000"]
    word_tokenizer(source / sources.TOKENIZER, [WORDS[0], *WORDS[:0:-1]])
    (folder / prepared.MANIFEST).unlink()
    data.prepare(config, folder, source)  # another tokenizer: all of it anew
    assert made[4:] == ["train_00000", "train_00001", "val_00000"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda one: one.write_bytes(gzip.compress(b'{"text": "cat"}\n{"text": ca\n')),
            r"line 2 is not valid JSON",
        ),
        (
            lambda one: one.write_bytes(gzip.compress(b'{"txt": "cat"}\n')),
            r"line 1 has no text; a document has one",
        ),
        (
            lambda one: one.write_bytes(gzip.compress(b'{"text": "cat"}\n{"text": " "}\n')),
            r"line 2 has the text ' '",
        ),
        (lambda one: one.write_bytes(one.read_bytes()[:-12]), r"is cut or corrupt behind line \d+: "),
        (lambda one: one.write_bytes(b"no gzip"), r"is cut or corrupt behind line 0: "),
        (
            lambda one: word_tokenizer(one.with_name(sources.TOKENIZER), WORDS[:4]),
            r"tokenizer\.json has 4 tokens; llama31_8b has 6\. Take that of the benchmark",
        ),
        (
            lambda one: one.with_name(sources.TOKENIZER).write_text("{}"),
            r"tokenizer\.json cannot be read as a tokenizer: ",
        ),
        (
            lambda one: one.with_name(VALIDATION).unlink(),
            r"has 2 files c4-train.*, 0 files c4-validation.*; needed are the shards of C4",
        ),
        (
            lambda one: one.with_name(VALIDATION).write_bytes(gzip.compress(b'{"text": "cat"}\n')),
            r"0 for evaluation; llama31_8b has at least 1 and at least 2\.",
        ),
    ],
)
def test_what_is_wrong_with_a_source_is_one_sentence(
    source: Path, tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(source / SHARDS[1])
    with pytest.raises(RequestError, match=message):
        data.prepare(small_c4(tmp_path / "tokens"), tmp_path / "tokens", source)


def test_a_line_without_end_is_not_read_into_memory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LARGEST_LINE", 100)
    json_lines(source / SHARDS[1], ["cat " * 1000])
    with pytest.raises(RequestError, match=r"line 1 has more than 100 bytes; a document is a line"):
        data.prepare(small_c4(tmp_path / "tokens"), tmp_path / "tokens", source)


def megatron_files(stem: Path, documents: Sequence[Sequence[int]], code: int = 4) -> None:
    kind = np.dtype(megatron.KINDS[code])
    lengths = np.array([len(one) for one in documents], dtype="<i4")
    places = np.cumsum([0, *lengths[:-1]], dtype="<i8") * kind.itemsize
    bounds = np.arange(len(documents) + 1, dtype="<i8")
    head = struct.pack("<9sQBQQ", megatron.MAGIC, 1, code, len(documents), len(bounds))
    stem.with_suffix(".idx").write_bytes(head + lengths.tobytes() + places.tobytes() + bounds.tobytes())
    stem.with_suffix(".bin").write_bytes(np.concatenate(documents).astype(kind).tobytes())


@pytest.mark.parametrize("code", [4, 8])
def test_files_of_megatron_become_the_same_tokens_as_the_lines_that_they_were_made_from(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """In pieces, whose ends are those of documents."""
    monkeypatch.setattr(sources, "LARGEST_PIECE", 9)
    other = tmp_path / "megatron"
    other.mkdir()
    for name, texts in (
        ("c4-train.en_6_text_document", [*TEXTS, *TEXTS[::-1]]),
        ("c4-validation-few", TEXTS[::-1]),
    ):
        megatron_files(other / f"{name}.x", [numbers([text]) for text in texts], code)
    found = []
    for folder, root in (("lines", source), ("files", other)):
        config = small_c4(tmp_path / folder)
        data.prepare(config, tmp_path / folder, root)
        train, _ = data.open_sequences(config)
        found.append([train[place].tolist() for place in range(len(train))])
    assert found[0] == found[1]
    assert len(list((tmp_path / "files").glob("train_*.tokens"))) == 4


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda one: one.with_suffix(".idx").write_bytes(b"x" * 40), r"is not a Megatron index"),
        (
            lambda one: one.with_suffix(".idx").write_bytes(one.read_bytes()[:50]),
            r"50 bytes, 3 sequences and 4 bounds",
        ),
        (
            lambda one: one.with_suffix(".bin").write_bytes(b"x" * 8),
            r"tells of 3 documents with 40 bytes .* has 8 bytes",
        ),
        (
            lambda one: megatron_files(one, [[1, 0], [9, 0]]),
            r"document 1: tokens from 0 to 9; allowed are 0 to 5",
        ),
        (
            lambda one: one.rename(one.with_name("other.idx")),
            r"has no file c4-train\.en_6\*\.idx for its split 'train'",
        ),
    ],
)
def test_what_is_wrong_with_files_of_megatron_is_one_sentence(
    tmp_path: Path, spoil: Callable[[Path], Any], message: str
) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("c4-train.en_6", "c4-validation"):
        megatron_files(folder / f"{name}.x", [[1, 2, 3, 0], [4, 5, 0], [1, 1, 0]])
    spoil(folder / "c4-train.en_6.idx")
    with pytest.raises(RequestError, match=message):
        data.prepare(small_c4(tmp_path / "tokens"), tmp_path / "tokens", folder)


def test_tokens_that_were_changed_or_cut_are_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    config = small_c4(folder, "data.verify=true")
    data.prepare(config, folder, source)
    path = folder / "train_00001.tokens"
    content = path.read_bytes()
    path.write_bytes(b"\1\0" + content[2:])
    with pytest.raises(RequestError, match="corrupt: its sha256 is not the one"):
        data.open_sequences(config)
    path.write_bytes(content[:-2])
    with pytest.raises(RequestError, match=rf"has {len(content) - 2} of {len(content)} bytes"):
        data.open_sequences(config)


def test_a_folder_that_was_prepared_with_ends_of_documents_is_refused(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    config = small_c4(folder)
    data.prepare(config, folder, source)
    manifest = json.loads((folder / prepared.MANIFEST).read_text())
    manifest["preprocessing"]["end_of_document"] = 5
    (folder / prepared.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(RequestError, match=r"prepared with the token 5 after each document.*prepare again"):
        data.open_sequences(config)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ("data.train_size=31", r"has 10 documents and 32 tokens in split 'train'; the files .* 10 and 31"),
        ("data.train_documents=9", r"has 10 documents and 32 tokens in split 'train'; the files .* 9 and 32"),
        ("data.eval_documents=5", None),
    ],
)
def test_other_numbers_of_documents_and_tokens_than_the_published_files_have_are_refused(
    source: Path, tmp_path: Path, size: str, message: str | None
) -> None:
    sizes = ("data.train_documents=10", "data.train_size=32", "data.eval_documents=1", "data.eval_size=1")
    config = small_c4(tmp_path / "tokens", *sizes, size)
    if message is None:  # of JSON lines for evaluation not all files are prepared
        data.prepare(config, tmp_path / "tokens", source)
        return
    with pytest.raises(RequestError, match=message):
        data.prepare(config, tmp_path / "tokens", source)


def test_the_evaluation_file_of_megatron_has_the_published_numbers(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("c4-train.en_6", "c4-validation"):
        megatron_files(folder / f"{name}.x", [[1, 2, 3], [4, 5, 1, 1], [1, 2]])
    sizes = ("data.train_documents=3", "data.train_size=9", "data.eval_documents=3")
    data.prepare(small_c4(tmp_path / "a", *sizes, "data.eval_size=9"), tmp_path / "a", folder)
    with pytest.raises(RequestError, match=r"3 documents and 9 tokens in split 'val'; the files .* 3 and 10"):
        data.prepare(small_c4(tmp_path / "b", *sizes, "data.eval_size=10"), tmp_path / "b", folder)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_in_the_order_of_one(prepared: Callable[[str], Path], ranks: int) -> None:
    def taken(rank: int, size: int) -> Any:
        task = Task(llama31_8b("llama31_8b_mini", f"data_dir={prepared('llama31_8b')}", "warm_up_steps=0"))
        task.build(1, OneRank(rank=rank, size=size))
        task.open_data()
        for _ in range(3):
            next(task._batches)  # type: ignore[arg-type]
        list(task._eval)  # type: ignore[arg-type]
        found = task.samples_taken()
        task.close()
        return found

    alone = order_fingerprint([taken(0, 1)])
    several = order_fingerprint([taken(rank, ranks) for rank in range(ranks)])
    assert (several.digest, several.trained, several.evaluated) == (
        alone.digest,
        alone.trained,
        alone.evaluated,
    )
    assert (several.repeated, several.evaluated_again) == (0, 0)


def test_text_is_split_at_an_empty_line(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    content = b"First speech.\n\n" * 60 + b"Last speech.\n\n" * 60
    (tmp_path / "source" / "input.txt").write_bytes(content)
    config = llama31_8b("llama31_8b_shakespeare", "eval_samples=1", f"data_dir={tmp_path}")
    data.prepare(config, tmp_path, tmp_path / "source")
    train, val = ((tmp_path / f"{split}_00000.tokens").read_bytes() for split in ("train", "val"))
    read = [bytes(np.frombuffer(one, "<u2").astype(np.uint8)) for one in (train, val)]
    assert read[0] + read[1] == content and read[0].endswith(b"\n\n")
    assert len(read[1]) / len(content) == pytest.approx(0.1, abs=0.02)
    (tmp_path / "source" / "other.txt").write_bytes(b"")
    with pytest.raises(RequestError, match=r"has 2 files \*\.txt; needed is the one"):
        data._source(config, tmp_path / "source")


def test_the_surprise_of_a_reader_is_that_of_the_generator_where_the_subject_is_told() -> None:
    """The mean over whole documents is the entropy of the language; within a document a reader learns the subject from
    the verbs."""
    documents = list(grammar.documents(4000, 5))
    nats = [grammar.surprise([grammar.END, *document]) for document in documents]
    count = sum(map(len, nats))
    assert math.fsum(map(math.fsum, nats)) / count == pytest.approx(grammar.entropy(), abs=0.01)
    later = [one[5:] for one in documents if len(one) > 40]
    assert np.mean([grammar.surprise(one)[2] for one in later]) > 2.0  # the first verb
    assert np.mean([grammar.surprise(one)[14] for one in later]) < 0.5  # the fourth


def test_no_verb_is_certain_without_the_subject() -> None:
    table = np.array(grammar.VERB_OF)
    assert all(len(set(table[:, noun])) >= 6 for noun in range(grammar.NOUNS))
