"""Packed sequences, the dialect, and the weights that the small scale starts from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.references.configs import llama2_70b_lora
from tests.references.one_rank import OneRank
from train_bench.errors import RequestError
from train_bench.references.llama2_70b_lora import data, dialect
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.llama2_70b_lora.model import Decoder
from train_bench.references.llama2_70b_lora.task import Task
from train_bench.references.parts.decoder import grammar
from train_bench.references.parts.decoder.weights import load_start_weights, save_weights

LENGTH = 6


def packed(folder: Path, *overrides: str) -> Config:
    """The full benchmark with three short sequences to train on and two to evaluate."""
    config: Config = llama2_70b_lora(
        "llama2_70b_lora",
        *("train_samples=3", "eval_samples=2", f"data.sequence_length={LENGTH}", "model.vocabulary=50"),
        *(f"data_dir={folder / 'prepared'}", *overrides),
    )
    return config


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def distributed(folder: Path) -> Path:
    """Sequences in two files that train, and one that evaluates, of which the first tokens do not count."""
    source, tokens = folder / "source", np.arange(5 * LENGTH).reshape(5, LENGTH).tolist()
    lines(source / "train-0.jsonl", {"input_ids": tokens[0]}, {"input_ids": tokens[1], "labels": tokens[1]})
    lines(source / "train-1.jsonl", {"input_ids": tokens[2]})
    masked = [{"input_ids": row, "labels": [-100] * 3 + row[3:]} for row in tokens[3:]]
    lines(source / "validation.jsonl", *masked)
    return source


def test_packed_sequences_are_read_with_the_labels_that_count(tmp_path: Path) -> None:
    config, source = packed(tmp_path), distributed(tmp_path)
    data.prepare(config, tmp_path / "prepared", source)
    train, val = data.open_splits(config)
    labels, tokens = train[[0, 1, 2]]
    assert tokens.tolist() == labels.tolist() == np.arange(18).reshape(3, 6).tolist()
    labels, tokens = val[[1]]
    assert tokens.tolist() == [[24, 25, 26, 27, 28, 29]]
    assert labels.tolist() == [[-100, -100, -100, 27, 28, 29]]
    data.prepare(config, tmp_path / "prepared", None)  # returns at once


GOOD = list(range(LENGTH))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"train\.jsonl, line 2 is not valid JSON: .*Make the file again"),
        ("[3]", "line 2: input_ids has to be a list of 6 integers"),
        ('{"input_ids": [1, 2]}', "line 2: input_ids has to be a list of 6 integers"),
        ('{"input_ids": [1, 2, 3, 4, 5, true]}', "line 2: input_ids has to be a list of 6 integers"),
        ('{"input_ids": [1, 2, 3, 4, 5, 1e99]}', "line 2: input_ids has to be a list of 6 integers"),
        ('{"input_ids": [1, 2, 3, 4, 5, 50]}', "input_ids go from 1 to 50; allowed are 0 to 49"),
        (json.dumps({"input_ids": GOOD, "labels": [0, 0, 2, 3, 4, 5]}), "labels are the tokens themselves"),
        (json.dumps({"input_ids": GOOD, "labels": [0] + [-100] * 5}), "at least one behind the first counts"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    source = tmp_path / "source"
    lines(source / "validation.jsonl", {"input_ids": GOOD})
    (source / "train.jsonl").write_text(json.dumps({"input_ids": GOOD}) + f"\n{line}\n")
    with pytest.raises(RequestError, match=message):
        data.prepare(packed(tmp_path), tmp_path / "prepared", source)
    assert not (tmp_path / "prepared").exists()


def test_missing_files_other_counts_and_unknown_origins_are_refused(tmp_path: Path) -> None:
    source, folder = distributed(tmp_path), tmp_path / "prepared"
    with pytest.raises(RequestError, match="has 4 training and 2 evaluation samples; found 3 and 2"):
        data.prepare(packed(tmp_path, "train_samples=4"), folder, source)
    with pytest.raises(RequestError, match=r"data origin .words.*dialect, packed"):
        data.prepare(packed(tmp_path, "data.origin=words"), folder, source)
    with pytest.raises(RequestError, match="needs the data set 'packed' as it is distributed"):
        data.prepare(packed(tmp_path), folder, None)
    with pytest.raises(RequestError, match="vocabulary is 50; the generated text has 69 tokens"):
        data.prepare(packed(tmp_path, "data.origin=dialect"), folder, None)
    (source / "validation.jsonl").write_bytes(b"")
    with pytest.raises(RequestError, match=r"has no sequences in files validation\*\.jsonl; needed are"):
        data.prepare(packed(tmp_path), folder, source)


def test_in_the_dialect_subjects_have_the_verbs_of_their_neighbours() -> None:
    stream = dialect.sequences(20, 64, 7).flatten().tolist()
    other = dialect.sequences(20, 64, 7, grammar.VERB_OF).flatten().tolist()
    assert stream != other
    verbs = range(grammar.FIRST_VERB, grammar.VOCABULARY)
    assert all(one == two or {one, two} <= set(verbs) for one, two in zip(stream, other, strict=True))
    subject, seen = None, 0
    for place, token in enumerate(stream):
        if grammar.FIRST_SUBJECT <= token < grammar.FIRST_ADJECTIVE:
            subject = token - grammar.FIRST_SUBJECT
        elif token in verbs and subject is not None and place >= 2:
            neighbour = subject + 1 if subject % 2 == 0 else subject - 1
            noun = stream[place - 2] - grammar.FIRST_NOUN
            assert token == grammar.FIRST_VERB + grammar.VERB_OF[neighbour][noun]
            seen += 1
    assert seen > 200


def small(*overrides: str) -> Config:
    config: Config = llama2_70b_lora("llama2_70b_lora_mini", *overrides)
    return config


def test_the_small_scale_starts_from_a_file_of_the_reference_which_prepare_checks(tmp_path: Path) -> None:
    config = small("train_samples=40", "eval_samples=20", f"data_dir={tmp_path / 'data'}")
    file = data.start_weights_file(config)
    assert file is not None and file.parent == Path(data.__file__).parent
    assert file.stat().st_size < 500_000
    decoder = Decoder(config.model)
    load_start_weights(decoder, file)
    assert torch.equal(decoder.lm_head.weight, load_file(file)["lm_head.weight"])
    data.prepare(config, tmp_path / "data", None)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    with pytest.raises(
        RequestError, match=r"have sha256 c7f9901b.*is defined on 0000\. Leave benchmark\.start"
    ):
        data.prepare(small("start_weights_sha256='0000'"), tmp_path / "other", None)
    assert not (tmp_path / "other").exists()


def test_a_changed_byte_of_the_start_weights_is_refused_by_its_digest(tmp_path: Path) -> None:
    shipped = data.start_weights_file(small())
    assert shipped is not None
    content, copy = shipped.read_bytes(), tmp_path / "copy.safetensors"
    config = small(f"start_weights={copy}", f"data_dir={tmp_path}")
    copy.write_bytes(content)
    Task(config).build(1, OneRank())
    copy.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        RequestError, match=rf"{copy} have sha256 \w+; llama2_70b_lora_mini is defined on c7f9901b"
    ):
        Task(config).build(1, OneRank())


def test_start_weights_of_the_small_scale_may_lie_elsewhere_and_missing_ones_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "start").mkdir()
    save_weights(Decoder(small().model), tmp_path / "start" / "model.safetensors")
    folder = small("start_weights=../start", "start_weights_sha256=null", f"data_dir={tmp_path / 'data'}")
    assert data.start_weights_file(folder) == tmp_path / "start"
    Task(folder).build(1, OneRank())
    absent = rf"llama2_70b_lora_mini: there is no file {Path(data.__file__).parent}/absent\.safetensors"
    with pytest.raises(RequestError, match=f"{absent} to start from.*Leave benchmark"):
        data.prepare(small("start_weights=absent.safetensors"), tmp_path / "data", None)
    with pytest.raises(RequestError, match=r"there is no file \S*/start to start from"):
        data.start_weights_file(small(f"start_weights={tmp_path / 'start'}"))


def test_published_start_weights_that_are_not_there_are_refused_before_anything_is_read(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "prepared"
    with pytest.raises(
        RequestError,
        match=rf"start_weights=weights is {folder}/weights, where nothing is.*data_dir \({folder}\)",
    ):
        data.prepare(packed(tmp_path, "start_weights=weights"), folder, distributed(tmp_path))
    assert not folder.exists()
