"""TFRecord files, packed rows, examples made of text, order: right, whole, and plain about what is wrong."""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import torch

from tests import needs
from tests.references.configs import bert
from tests.references.distributed import framed, tf_example
from train_bench.errors import RequestError, UnknownName
from train_bench.references.bert import data, grammar, packed, sources, tfrecord
from train_bench.references.bert.config import Config
from train_bench.references.bert.examples import CLS, MASK, SEP, SPECIAL, UNKNOWN, pack
from train_bench.references.parts import prepared, stream

WIKITEXT = needs.DATA / "wikitext2_small"


def a_record(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """8 tokens, of which 6 are used, and 3 predictions, of which 2 are used."""
    return {
        "input_ids": np.array([2, 40000 % 94, 4, 3, 4, 3, 0, 0]),
        "input_mask": np.array([1, 1, 1, 1, 1, 1, 0, 0]),
        "segment_ids": np.array([0, 0, 0, 0, 1, 1, 0, 0]),
        "masked_lm_positions": np.array([2, 4, 0]),
        "masked_lm_ids": np.array([17, 93, 0]),
        "masked_lm_weights": np.array([1.0, 1.0, 0.0]),
        "next_sentence_labels": np.array([1]),
        **changes,
    }


@pytest.fixture
def ready_made() -> Config:
    """A benchmark of ready-made examples of 8 tokens."""
    return bert(
        "bert_mini",
        *("data.origin=wikipedia", "data.sequence_length=8", "data.predictions=3", "model.vocabulary=94"),
        *("train_samples=null", "eval_samples=1", "data.sha256=null"),
        "data.eval_file_bytes=null",
    )


def dataset(folder: Path, *records: dict[str, np.ndarray]) -> Path:
    folder.mkdir()
    (folder / "part-00000-of-00001").write_bytes(framed(*(tf_example(record) for record in records)))
    (folder / "eval_10k").write_bytes(framed(tf_example(a_record())))
    return folder


def test_the_checksum_is_crc32c() -> None:
    """The check value of the polynomial (RFC 3720, appendix B.4: 32 bytes of zeros)."""
    assert google_crc32c.value(b"\0" * 32) == 0x8A9136AA


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(framed(b"one", b"", b"three"))
    assert list(tfrecord.records(path)) == [b"one", b"", b"three"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], r"record 1: the file ends after 8 of 9 bytes"),
        (lambda content: content[:20], r"record 1: the file ends after 1 of 12 bytes in its length"),
        (lambda content: content[:12] + b"X" + content[13:], r"record 0: the checksum \(crc32c\) is wrong"),
        (lambda content: b"\1" + content[1:], r"record 0: the checksum \(crc32c\) is wrong in its length"),
    ],
)
def test_a_damaged_file_is_named_with_the_record(
    tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "records"
    path.write_bytes(damage(framed(b"one", b"three")))
    with pytest.raises(RequestError, match=message):
        list(tfrecord.records(path))


@pytest.mark.parametrize("packed_lists", [True, False])
def test_features_are_read_in_both_encodings_of_lists(packed_lists: bool) -> None:
    wanted = {
        "small": np.array([0, 1, 127, 128, 30521, 2**40]),
        "negative": np.array([-1, 5]),
        "none": np.zeros(0, dtype=np.int64),
        "floats": np.array([1.0, 0.5]),
    }
    found = tfrecord.features(tf_example(wanted, packed_lists=packed_lists))
    assert {name: list(values) for name, values in found.items()} == {
        name: list(values) for name, values in wanted.items()
    }


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_an_example_that_is_cut_is_malformed(cut: int) -> None:
    with pytest.raises(tfrecord.Malformed):
        tfrecord.features(tf_example(a_record())[:-cut])


def test_ready_made_examples_are_packed_and_read_back(ready_made: Config, tmp_path: Path) -> None:
    other = a_record(input_mask=np.array([1, 1, 1, 1, 1, 1, 1, 1]), segment_ids=np.array([0] * 7 + [1]))
    source = dataset(tmp_path / "source", a_record(), other)
    ready_made.data_dir = str(tmp_path / "packed")
    data.prepare(ready_made, tmp_path / "packed", source)
    train, val = data.open_examples(ready_made)
    assert (len(train), len(val)) == (2, 1)
    batch = data.BatchSet(examples=train)[[0, 1, 2]]
    assert batch.tokens[0].tolist() == a_record()["input_ids"].tolist()
    assert batch.segments[:2].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0] * 7 + [1]]
    assert batch.lengths.tolist() == [6, 8, 0]
    assert batch.weights.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert batch.words[0].tolist() == [17, 93, 0] and batch.positions[0].tolist() == [2, 4, 0]
    assert batch.random_next.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"input_ids": np.array([2, 94, 4, 3, 4, 3, 0, 0])},
            "input_ids has values from 0 to 94; allowed are 0 to 93",
        ),
        ({"masked_lm_ids": np.array([17, -1, 0])}, "masked_lm_ids has values from -1 to 17"),
        ({"masked_lm_positions": np.array([2, 6, 0])}, "masked_lm_positions .* allowed are 0 to 5"),
        ({"input_mask": np.array([1, 1, 0, 1, 1, 1, 0, 0])}, "input_mask is not a row of ones"),
        ({"masked_lm_weights": np.array([0.5, 1.0, 0.0])}, "masked_lm_weights is not a row of ones"),
        ({"segment_ids": np.array([0, 1, 0, 0, 1, 1, 0, 0])}, "segment_ids are not zeros, then ones"),
        ({"next_sentence_labels": np.array([2])}, "next_sentence_labels .* allowed are 0 to 1"),
        ({"segment_ids": np.array([0, 0, 0, 0, 1, 1, 1, 0])}, "segment_ids are not zeros, then ones"),
        ({"segment_ids": np.array([0, 1])}, "segment_ids has 2 values; allowed are 8"),
    ],
)
def test_a_wrong_record_is_named_with_its_file(
    ready_made: Config, tmp_path: Path, changes: dict[str, np.ndarray], message: str
) -> None:
    source = dataset(tmp_path / "source", a_record(), a_record(**changes))
    with pytest.raises(RequestError, match=f"part-00000-of-00001, record 1: {message}"):
        data.prepare(ready_made, tmp_path / "packed", source)


def test_a_file_without_records_is_refused(ready_made: Config, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="part-00000-of-00001 has no records"):
        data.prepare(ready_made, tmp_path / "packed", dataset(tmp_path / "source"))


def test_an_evaluation_file_of_another_size_than_the_published_one_is_refused(
    ready_made: Config, tmp_path: Path
) -> None:
    ready_made.data.eval_file_bytes = bert("bert").data.eval_file_bytes
    with pytest.raises(RequestError, match=r"eval_10k has \d+ bytes; .* has 25382591"):
        data.prepare(ready_made, tmp_path / "packed", dataset(tmp_path / "source", a_record()))


def test_a_vocabulary_with_another_digest_than_the_published_one_is_refused(
    ready_made: Config, tmp_path: Path
) -> None:
    source = dataset(tmp_path / "source", a_record())
    (source / "vocab.txt").write_text("[PAD]\n")
    ready_made.data.md5 = bert("bert").data.md5
    with pytest.raises(
        RequestError, match=r"vocab\.txt has md5 585d089ae2f7891d9142ca02f3a7268d; .* 64800d5d"
    ):
        data.prepare(ready_made, tmp_path / "packed", source)
    ready_made.data.md5 = {"vocab.txt": "585d089ae2f7891d9142ca02f3a7268d"}
    data.prepare(ready_made, tmp_path / "packed", source)


def test_a_record_without_a_feature_says_which_it_has(ready_made: Config, tmp_path: Path) -> None:
    record = a_record()
    del record["input_mask"]
    with pytest.raises(RequestError, match="no feature input_mask; it has input_ids, "):
        data.prepare(ready_made, tmp_path / "packed", dataset(tmp_path / "source", record))


def test_preparing_continues_with_the_files_that_are_missing(ready_made: Config, tmp_path: Path) -> None:
    source, folder = dataset(tmp_path / "source", a_record()), tmp_path / "packed"
    data.prepare(ready_made, folder, source)
    (folder / prepared.MANIFEST).unlink()
    (folder / "val_00000.rows").unlink()
    kept = (folder / "train_00000.rows").stat().st_mtime_ns
    data.prepare(ready_made, folder, source)
    assert (folder / "train_00000.rows").stat().st_mtime_ns == kept
    assert (folder / "val_00000.rows").exists()


def test_a_folder_without_tfrecord_files_is_refused(ready_made: Config, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"0 files part-\* and 0 files eval_10k"):
        data.prepare(ready_made, tmp_path / "packed", tmp_path)


def test_data_that_have_to_be_fetched_are_asked_for(ready_made: Config, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="source=FOLDER_THAT_HOLDS_IT"):
        data.prepare(ready_made, tmp_path / "packed", None)
    ready_made.data.origin = "wikipidia"
    with pytest.raises(UnknownName, match="Did you mean 'wikipedia'"):
        data.prepare(ready_made, tmp_path / "packed", tmp_path)


def test_a_damaged_packed_file_is_refused(mini_bert: Config, language_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(language_folder, folder)
    mini_bert.data_dir = str(folder)
    rows = folder / "val_00000.rows"
    content = rows.read_bytes()
    rows.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(RequestError, match="corrupt"):
        data.open_examples(mini_bert)
    rows.write_bytes(content[:-1])
    with pytest.raises(RequestError, match=rf"{len(content) - 1} of {len(content)} bytes"):
        data.open_examples(mini_bert)


def test_examples_prepared_otherwise_are_refused(mini_bert: Config) -> None:
    mini_bert.data.copies += 1
    with pytest.raises(RequestError, match="choose another data_dir"):
        data.open_examples(mini_bert)


def test_missing_examples_are_refused_with_the_command_that_makes_them(
    mini_bert: Config, tmp_path: Path
) -> None:
    mini_bert.data_dir = str(tmp_path)
    with pytest.raises(RequestError, match="train-bench prepare benchmark=bert_mini"):
        data.open_examples(mini_bert)


def test_an_example_is_two_segments_with_a_share_of_the_words_masked(mini_bert: Config) -> None:
    texts = grammar.documents(40, seed=3)
    rows = pack(texts, mini_bert.data, grammar.VOCABULARY, seed=4, copies=2)
    became: Counter[str] = Counter()
    for row in rows:
        tokens = row["tokens"][: row["length"]].tolist()
        assert tokens[0] == CLS and tokens[-1] == SEP and tokens[row["first"] - 1] == SEP
        assert tokens.count(SEP) == 2 and not row["tokens"][row["length"] :].any()
        assert row["masked"] == min(5, max(1, round(0.15 * len(tokens))))
        positions = row["positions"][: row["masked"]].tolist()
        assert positions == sorted(set(positions))
        for place, word in zip(positions, row["words"].tolist(), strict=False):
            assert word >= SPECIAL
            became["mask" if tokens[place] == MASK else "kept" if tokens[place] == word else "random"] += 1
            tokens[place] = word
        assert min(tokens[1 : row["first"] - 1]) >= SPECIAL
    total = sum(became.values())
    assert became["mask"] / total == pytest.approx(0.8, abs=0.03)
    assert became["kept"] / total == pytest.approx(0.1, abs=0.03)
    assert 0.4 < rows["random_next"].mean() < 0.7


def test_a_second_segment_that_follows_is_the_text_that_follows(mini_bert: Config) -> None:
    """Every document counts upwards, so that what follows is known."""
    texts = [[list(range(5 + 9 * line, 14 + 9 * line)) for line in range(9)] for _ in range(3)]
    mini_bert.data.masked_share = 0.0
    rows = pack(texts, mini_bert.data, 94, seed=1, copies=5)
    followed = 0
    for row in rows:
        tokens = row["tokens"][: row["length"]].tolist()
        for place, word in zip(
            row["positions"][: row["masked"]].tolist(), row["words"].tolist(), strict=False
        ):
            tokens[place] = word
        first, second = tokens[1 : row["first"] - 1], tokens[row["first"] : -1]
        for segment in (first, second):
            assert segment == list(range(segment[0], segment[0] + len(segment)))
        if not row["random_next"] and row["length"] < 32:
            assert second[0] == first[-1] + 1
            followed += 1
    assert followed > 3


def test_the_generated_language_keeps_its_grammar() -> None:
    """In one document every noun has one verb, which all other dialects give to another noun; about one clause in
    six ends with the dialect's particle."""
    verbs: dict[int, dict[int, int]] = {}
    clauses = particles = 0
    for document in grammar.documents(200, seed=1):
        words = [word for sentence in document for word in sentence]
        told = [word for word in words if word >= grammar.FIRST_PARTICLE]
        assert len(set(told)) < 2
        plain = [word for word in words if word < grammar.FIRST_PARTICLE]
        assert len(plain) == 2 * grammar.CLAUSES * grammar.SENTENCES
        clauses, particles = clauses + len(plain) // 2, particles + len(told)
        for noun, verb in zip(plain[::2], plain[1::2], strict=True):
            assert grammar.FIRST_NOUN <= noun < grammar.FIRST_VERB <= verb
            if told:
                assert verbs.setdefault(told[0], {}).setdefault(noun, verb) == verb
    assert len(verbs) == grammar.DIALECTS
    for noun in range(grammar.FIRST_NOUN, grammar.FIRST_VERB):
        assert len({of[noun] for of in verbs.values()}) == grammar.DIALECTS
    assert particles / clauses == pytest.approx(1 / grammar.PARTICLE_EVERY, abs=0.02)


def test_generated_text_is_the_same_everywhere_and_other_text_for_evaluation(language_folder: Path) -> None:
    manifest = prepared.read_manifest(language_folder, packed.FORMAT)
    assert manifest is not None
    assert prepared.content_digest(manifest) == bert("bert_mini").data.sha256
    seen = {str(document) for document in grammar.documents(1500, sources.SEEDS["train"])}
    assert not seen & {str(document) for document in grammar.documents(380, sources.SEEDS["val"])}


@pytest.mark.parametrize("samples", [1, 2, 5, 64, 1000])
def test_every_epoch_has_every_example_once_in_another_order(samples: int) -> None:
    shuffle = data.Shuffle(samples=samples, seed=3)
    epochs = [[shuffle(epoch * samples + place) for place in range(samples)] for epoch in range(2)]
    assert all(sorted(order) == list(range(samples)) for order in epochs)
    if samples > 5:
        assert epochs[0] != epochs[1] != list(range(samples))
        assert epochs[0] != [data.Shuffle(samples=samples, seed=4)(place) for place in range(samples)]


def test_neighbours_in_the_order_are_not_neighbours_in_the_set() -> None:
    shuffle = data.Shuffle(samples=5000, seed=1)
    order = np.array([shuffle(place) for place in range(5000)])
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.06
    assert np.abs(np.diff(order)).mean() == pytest.approx(5000 / 3, rel=0.05)


def test_the_order_is_that_of_the_stream_whatever_the_ranks_and_micro_batches() -> None:
    def first_steps(ranks: int, microbatches: int) -> list[set[int]]:
        orders = [
            iter(
                stream.Sampler(
                    order=data.Shuffle(samples=100, seed=1),
                    global_batch_size=8,
                    microbatches=microbatches,
                    rank=rank,
                    ranks=ranks,
                )
            )
            for rank in range(ranks)
        ]
        return [
            {index for order in orders for _ in range(microbatches) for index in next(order)}
            for _ in range(3)
        ]

    assert first_steps(1, 1) == first_steps(2, 1) == first_steps(2, 2)


def test_permuted_words_are_those_of_another_example(mini_bert: Config) -> None:
    train, _ = data.open_examples(mini_bert)
    honest, permuted = (data.BatchSet(examples=train, permuted=how)[[3, 4]] for how in (False, True))
    assert permuted.tokens.equal(honest.tokens) and permuted.positions.equal(honest.positions)
    assert permuted.words[0].tolist() == np.resize(honest.words[1][honest.weights[1] > 0], 5).tolist()
    assert not permuted.words.equal(honest.words)


@needs.shared(WIKITEXT)
def test_real_text_becomes_examples_of_known_words(tmp_path: Path) -> None:
    config = bert(
        "bert_wikitext", "data.copies=1", "train_samples=2000", "eval_samples=500", "data.sha256=null"
    )
    config.data_dir = str(tmp_path / "packed")
    data.prepare(config, tmp_path / "packed", WIKITEXT)
    train, val = data.open_examples(config)
    words = np.concatenate([train[index]["words"][: train[index]["masked"]] for index in range(500)])
    assert words.min() >= SPECIAL and words.max() < config.model.vocabulary
    tokens = np.concatenate([train[index]["tokens"] for index in range(500)])
    assert 0.05 < (tokens == UNKNOWN).mean() < 0.35
    assert len(val) == 500


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no articles here .\n", "has 1 articles"),
        (b"\xff\xfe", "cannot be read as text"),
        (None, "cannot be read"),
    ],
)
def test_text_that_is_none_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "test.txt").write_bytes(content)
    with pytest.raises(RequestError, match=message):
        data.prepare(bert("bert_wikitext"), tmp_path / "packed", tmp_path)


def test_examples_share_rows_by_first_fit_and_every_token_stands_once() -> None:
    lengths = np.random.default_rng(0).integers(1, 33, 40)
    packing = data.packing_of(torch.from_numpy(lengths), 32)
    standing = packing[packing >= 0]
    expected = [32 * number + token for number, count in enumerate(lengths) for token in range(count)]
    assert sorted(standing.tolist()) == expected
    assert math.ceil(lengths.sum() / 32) <= len(packing) <= 11 / 9 * math.ceil(lengths.sum() / 32) + 4
    assert data.packing_of(torch.tensor([3, 2, 3]), 5).tolist() == [[0, 1, 2, 5, 6], [10, 11, 12, -1, -1]]
