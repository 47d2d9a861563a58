"""The data of DLRM: Criteo's days, generated clicks, the order of a run, and what is refused."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.configs import dlrm
from tests.selection import others_in_full
from train_bench.errors import RequestError
from train_bench.references.dlrm import criteo
from train_bench.references.dlrm.config import Config
from train_bench.references.dlrm.data import as_batch, prepare
from train_bench.references.dlrm.lines import parse
from train_bench.references.parts import loading, prepared, stream
from train_bench.references.parts.recommendation import data, records
from train_bench.references.parts.recommendation.clicks import clicks

MAX_INDEX = 50
LINES = 9

LINE = b"\t".join([b"1", b"-3", b"", *[b"7"] * 11, b"0000001f", b"", *[b"ff"] * 24]) + b"\n"


def test_a_line_becomes_a_record() -> None:
    (record,) = parse(LINE, "day_0", 0, 40_000_000).tolist()
    assert record == [1, 0, 0, *[7] * 11, 31, 0, *[255] * 24]
    assert parse(LINE, "day_0", 0, 100)[0, 16] == 55


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (LINE.replace(b"1", b"2", 1), "Record 11 of day_0 has '2' as field 1, where the label 0 or 1"),
        (LINE[1:], "Record 11 of day_0 has '' as field 1, where the label 0 or 1"),
        (LINE.replace(b"-3", b"3.5"), "Record 11 of day_0 has '3.5' as field 2, where an integer"),
        (LINE.replace(b"-3", b"9999999999"), "Record 11 of day_0 has '9999999999' as field 2"),
        (LINE.replace(b"1f", b"1g"), "Record 11 of day_0 has '0000001g' as field 15, where a hexadecimal"),
        (LINE.replace(b"00001f", b"0000001f"), "Record 11 of day_0 has '000000001"),
        (LINE[2:], "Record 11 of day_0 has 39 fields; 40 are needed"),
        (LINE[:-1] + b"\tff\n", "Record 11 of day_0 has 41 fields; 40 are needed"),
    ],
)
def test_a_line_that_is_no_record_is_refused_by_its_number(line: bytes, sentence: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(LINE + line + LINE, "day_0", 10, 40_000_000)
    assert sentence in str(refused.value)


def write_days(source: Path) -> list[list[str]]:
    """Small days with missing values; the fields of every line of every day. Two days are compressed."""
    rng = np.random.default_rng(1)
    lines: list[list[str]] = []
    for day in range(criteo.DAYS):
        rows = [
            [
                str(rng.integers(2)),
                *("" if rng.random() < 0.2 else str(rng.integers(-3, 90)) for _ in range(13)),
                *("" if rng.random() < 0.1 else f"{rng.integers(90):08x}" for _ in range(26)),
            ]
            for _ in range(LINES)
        ]
        text = "".join("\t".join(row) + "\n" for row in rows).encode()
        if day in (3, 23):
            (source / f"day_{day}.gz").write_bytes(gzip.compress(text))
        else:
            (source / f"day_{day}").write_bytes(text)
        lines += rows
    return lines


def as_numbers(lines: list[list[str]]) -> np.ndarray:
    """The records by the plain definition: missing 0, negative 0, modulo, numbered in the order of values."""
    table = np.array(
        [
            [int(row[0]), *(max(0, int(x or 0)) for x in row[1:14]), *(int(x or "0", 16) for x in row[14:])]
            for row in lines
        ]
    )
    table[:, 14:] %= MAX_INDEX
    for column in range(14, 40):
        table[:, column] = np.unique(table[:, column], return_inverse=True)[1]
    return table


class Criteo:
    """Days as they are distributed, what they should become, and the configuration for it."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "days"
        self.source.mkdir()
        self.wanted = as_numbers(write_days(self.source))
        rows = [int(count) + 1 for count in self.wanted[:, 14:].max(axis=0)]
        train = LINES * (criteo.DAYS - 1)
        self.config = dlrm(
            "dlrm",
            f"model.table_rows={rows}",
            f"data.max_index={MAX_INDEX}",
            f"train_samples={train}",
            f"eval_samples={-(-LINES // 2)}",
        )

    def prepared(self, folder: Path) -> tuple[np.ndarray, np.ndarray]:
        prepare(self.config, folder, self.source)
        self.config.data_dir = str(folder)
        train, val = data.open_records(self.config)
        return train.read(0, len(train)), val.read(0, len(val))


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Criteo:
    monkeypatch.setattr(criteo, "BUCKET", 60)
    monkeypatch.setattr(criteo, "BLOCK", 4)
    monkeypatch.setattr(criteo, "CHUNK", 500)
    return Criteo(tmp_path)


def test_a_folder_of_the_user_s_is_not_taken_for_temporary_files(days: Criteo, tmp_path: Path) -> None:
    note = tmp_path / "out" / criteo.SCRATCH / "thesis.txt"
    note.parent.mkdir(parents=True)
    note.write_text("mine")
    with pytest.raises(RequestError, match=r"out/scratch was not made by this preparation"):
        days.prepared(tmp_path / "out")
    criteo.clean(tmp_path / "out")
    assert note.read_text() == "mine"


def test_days_become_numbered_shuffled_records(days: Criteo, tmp_path: Path) -> None:
    train, val = days.prepared(tmp_path / "out")
    cut = LINES * (criteo.DAYS - 1)
    assert np.array_equal(val, days.wanted[cut : cut + -(-LINES // 2)])
    assert Counter(map(tuple, train.tolist())) == Counter(map(tuple, days.wanted[:cut].tolist()))
    places = [[tuple(row) for row in days.wanted[:cut].tolist()].index(tuple(row)) for row in train.tolist()]
    assert abs(np.corrcoef(places, np.arange(cut))[0, 1]) < 0.25
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        "train.bin",
        "val.bin",
    ]


@pytest.mark.parametrize(
    "stage",
    others_in_full(["days read", "features numbered", "days dealt", "buckets shuffled"], ["days dealt"]),
)
def test_preparing_continues_where_it_was_interrupted(
    days: Criteo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    whole = days.prepared(tmp_path / "whole")

    def stopping(items: Iterable[Any], what: str) -> Iterator[Any]:
        for number, item in enumerate(items):
            if what == stage and number == 2:
                raise KeyboardInterrupt
            yield item

    with monkeypatch.context() as patch:
        patch.setattr(criteo, "bar", stopping)
        with pytest.raises(KeyboardInterrupt):
            prepare(days.config, tmp_path / "again", days.source)
    for path in (tmp_path / "again" / criteo.SCRATCH).glob("bucket_00003.bin"):
        if stage == "days dealt":
            path.write_bytes(path.read_bytes() + b"half a day")
    (days.source / "day_0").write_bytes(b"not read again")
    again = days.prepared(tmp_path / "again")
    assert all(np.array_equal(one, other) for one, other in zip(whole, again, strict=True))


def test_a_day_that_is_cut_is_refused_by_its_name(days: Criteo, tmp_path: Path) -> None:
    packed = (days.source / "day_3.gz").read_bytes()
    (days.source / "day_3.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(RequestError, match=r"day_3\.gz is cut or corrupt behind record \d+"):
        prepare(days.config, tmp_path / "out", days.source)
    (days.source / "day_3.gz").write_bytes(packed)
    text = (days.source / "day_5").read_bytes()
    (days.source / "day_5").write_bytes(text[:-20])
    with pytest.raises(RequestError, match=rf"day_5 is cut: its last line, record {LINES - 1}"):
        prepare(days.config, tmp_path / "out", days.source)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"0" * (90 << 20), "has no line end within 1024 bytes behind record 0; a record is a line"),
        (b"0" + b"\t" * 39 + b"\n" + b"7" * 2000, "has no line end within 1024 bytes behind record 1"),
        ((b"0" + b"\t" * 39 + b"\n") * 1000, "has more records than all days of dlrm together, "),
    ],
    ids=["one line", "a long second line", "very many lines"],
)
def test_a_day_that_unpacks_to_far_too_much_is_refused(
    days: Criteo, tmp_path: Path, text: bytes, sentence: str
) -> None:
    (days.source / "day_3.gz").write_bytes(gzip.compress(text))
    with pytest.raises(RequestError, match=rf"day_3\.gz {sentence}"):
        days.prepared(tmp_path / "prepared")


def test_a_missing_day_and_other_tables_are_refused(days: Criteo, tmp_path: Path) -> None:
    days.config.model.table_rows[4] += 1
    with pytest.raises(RequestError, match=r"The categories of all days have \[.*\] values"):
        prepare(days.config, tmp_path / "out", days.source)
    (days.source / "day_9").unlink()
    with pytest.raises(RequestError, match=r"day_9 is not in .* terms have to be accepted"):
        prepare(days.config, tmp_path / "other", days.source)


def test_generated_clicks_are_those_of_the_digest_and_splits_differ(mini_dlrm: Config) -> None:
    assert mini_dlrm.data.sha256 is not None
    train, val = data.open_records(mini_dlrm)
    assert (len(train), len(val)) == (mini_dlrm.train_samples, mini_dlrm.eval_samples)
    assert not np.array_equal(train.read(0, 1000), val.read(0, 1000))


def test_categories_of_clicks_are_skewed() -> None:
    (block,) = clicks(20000, 0, 4, [100, 20])
    shares = np.bincount(block[:, 5], minlength=100) / len(block)
    assert shares[0] > 0.08 and shares[50:].max() < 0.02


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        (0, 2, "the label 2; allowed are 0 and 1"),
        (2, -1, "-1 as dense feature 2; allowed is 0 and above"),
        (6, 200, "200 as categorical feature 2; its table has 200 rows from 0"),
        (6, -1, "-1 as categorical feature 2"),
    ],
)
def test_a_record_that_the_model_cannot_take_is_refused(
    mini_dlrm: Config, tmp_path: Path, column: int, value: int, sentence: str
) -> None:
    block = next(clicks(50, 0, 4, mini_dlrm.model.table_rows))
    entries = {
        split: records.write_split(tmp_path, split, [block], mini_dlrm.model) for split in prepared.SPLITS
    }
    width = records.columns(mini_dlrm.model)
    spoilt = np.memmap(tmp_path / "train.bin", dtype="<i4", mode="r+", shape=(50, width))
    spoilt[17, column] = value
    spoilt.flush()
    train = records.Records(tmp_path, "train", {"splits": entries}, mini_dlrm.model)
    assert len(train.read(0, 17)) == 17
    with pytest.raises(RequestError, match=rf"Record 17 of {tmp_path}/train.bin has {sentence}"):
        train.read(10, 20)


def test_changed_cut_and_missing_files_are_refused(mini_dlrm: Config, tmp_path: Path) -> None:
    mini_dlrm.train_samples, mini_dlrm.eval_samples = 100, 50
    mini_dlrm.data.sha256, mini_dlrm.data_dir = None, str(tmp_path)
    with pytest.raises(RequestError, match="There are no prepared data"):
        data.open_records(mini_dlrm)
    prepare(mini_dlrm, tmp_path, None)
    mini_dlrm.data.sha256 = "0" * 64
    with pytest.raises(RequestError, match="is defined on 000"):
        data.open_records(mini_dlrm)
    mini_dlrm.data.sha256 = None
    content = bytearray((tmp_path / "val.bin").read_bytes())
    content[4] ^= 1
    (tmp_path / "val.bin").write_bytes(content)
    with pytest.raises(RequestError, match=r"val\.bin is corrupt"):
        data.open_records(mini_dlrm)
    (tmp_path / "val.bin").write_bytes(content[:-4])
    with pytest.raises(RequestError, match=r"val\.bin has \d+ of \d+ bytes"):
        data.open_records(mini_dlrm)


def test_data_for_other_tables_or_of_other_sizes_are_refused(mini_dlrm: Config) -> None:
    mini_dlrm.train_samples = 7
    with pytest.raises(RequestError, match="has 7 training and 50000 evaluation samples; found 400000"):
        data.open_records(mini_dlrm)
    mini_dlrm.model.table_rows = [3]
    with pytest.raises(RequestError, match=r"were prepared with .*choose another data_dir"):
        data.open_records(mini_dlrm)


def test_an_unknown_origin_and_a_missing_source_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"There is no data origin 'click'\. Did you mean 'clicks'"):
        prepare(dlrm("dlrm_mini", "data.origin=click"), tmp_path, None)
    with pytest.raises(RequestError, match="needs the data set 'criteo'"):
        prepare(dlrm("dlrm"), tmp_path, None)


def sampler(
    ranks: int = 1, rank: int = 0, samples: int = 23, batch: int = 4, **options: int
) -> stream.Sampler:
    return stream.Sampler(
        order=data.ShuffledBlocks(samples=samples, seed=5, global_batch_size=batch),
        global_batch_size=batch,
        microbatches=options.get("microbatches", 1),
        rank=rank,
        ranks=ranks,
        first_iteration=options.get("first_iteration", 0),
    )


def indices(stretches: list[tuple[int, int]]) -> list[int]:
    return [index for first, count in stretches for index in range(first, first + count)]


def test_every_record_comes_once_per_epoch_in_another_order_each() -> None:
    stream = [index for stretches in islice(sampler(), 46) for index in indices(stretches)]
    first, second = (stream[epoch * 23 : epoch * 23 + 23] for epoch in range(2))
    assert sorted(first) == sorted(second) == list(range(23))
    assert first != second


def test_the_order_does_not_depend_on_ranks_or_micro_batches_and_continues_anywhere() -> None:
    batches = [indices(stretches) for stretches in islice(sampler(), 20)]
    for ranks, microbatches in ((2, 1), (4, 1), (2, 2)):
        shares = [
            islice(sampler(ranks, rank, microbatches=microbatches), 20 * microbatches)
            for rank in range(ranks)
        ]
        parts = [[indices(stretches) for stretches in share] for share in shares]
        for step, batch in enumerate(batches):
            steps = range(step * microbatches, (step + 1) * microbatches)
            assert batch == [index for at in steps for part in parts for index in part[at]]
    assert [indices(stretches) for stretches in islice(sampler(first_iteration=7), 13)] == batches[7:]


@pytest.mark.parametrize(("samples", "ranks"), [(10, 1), (10, 3), (2, 4), (12, 2)])
def test_every_evaluation_record_is_scored_once_in_as_many_batches_by_each_rank(
    samples: int, ranks: int
) -> None:
    parts = [data.evaluation_order(samples, 3, rank, ranks) for rank in range(ranks)]
    assert len({len(part) for part in parts}) == 1
    assert sorted(index for part in parts for batch in part for index in indices(batch)) == list(
        range(samples)
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_processes_change_nothing(mini_dlrm: Config, workers: int) -> None:
    train, _ = data.open_records(mini_dlrm)
    mini_dlrm.data.workers = workers
    dataset = data.RecordSet(records=train, as_batch=partial(as_batch, model=mini_dlrm.model))
    batches = sampler(samples=len(train), batch=64)
    loaded = loading.loader(
        dataset, mini_dlrm.data, torch.device("cpu"), batches, collate=None, numbers=data.numbers_of
    )
    for stretches, batch in islice(zip(sampler(samples=len(train), batch=64), loaded, strict=False), 5):
        assert all(torch.equal(one, other) for one, other in zip(dataset[stretches], batch, strict=True))


def test_a_batch_has_logarithms_and_rows_below_the_cap() -> None:
    config = dlrm("dlrm", "model.max_table_rows=10")
    block = np.zeros((1, 40), dtype=np.int32)
    block[0, [0, 1, 14]] = 1, 99, 38
    labels, dense, rows = as_batch(block, config.model)
    assert labels.tolist() == [1.0] and rows[0, 0] == 8 and rows.dtype == torch.int64
    torch.testing.assert_close(dense[0, 0], torch.tensor(100.0).log())
    assert dense.shape == (1, 13) and rows.shape == (1, 26)


def test_permuted_labels_are_those_of_other_records(mini_dlrm: Config) -> None:
    honest, _ = data.open_records(mini_dlrm)
    mini_dlrm.data.permute_labels = True
    permuted, val = data.open_records(mini_dlrm)
    one, other = honest.read(0, 500), permuted.read(0, 500)
    assert np.array_equal(one[:, 1:], other[:, 1:])
    assert np.array_equal(other[:, 0], honest.read(len(honest) // 2, 500)[:, 0])
    assert not val.permuted
