"""Packed sequences, the dialect, and the weights that the small scale starts from."""

from __future__ import annotations

import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.references.configs import llama2_70b_lora
from train_bench.errors import RequestError
from train_bench.references.llama2_70b_lora import data, dialect, start_weights
from train_bench.references.llama2_70b_lora.config import Config
from train_bench.references.llama2_70b_lora.model import Decoder
from train_bench.references.parts.decoder import grammar

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
        ("{", r"train\.jsonl, line 2 is no JSON: .*Make the file again"),
        ("[3]", "line 2: input_ids are no list of 6 whole numbers"),
        ('{"input_ids": [1, 2]}', "line 2: input_ids are no list of 6 whole numbers"),
        ('{"input_ids": [1, 2, 3, 4, 5, true]}', "line 2: input_ids are no list of 6 whole numbers"),
        ('{"input_ids": [1, 2, 3, 4, 5, 1e99]}', "line 2: input_ids are no list of 6 whole numbers"),
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


@pytest.fixture
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The mini benchmark with a narrow layer that is hardly pretrained."""
    monkeypatch.setattr(start_weights, "STEPS", 3)
    monkeypatch.setattr(start_weights, "WARMUP", 1)
    config: Config = llama2_70b_lora(
        "llama2_70b_lora_mini",
        *("model.layers=1", "model.width=16", "model.head_size=4", "model.intermediate=16"),
        *(f"data_dir={tmp_path / 'data'}", "train_samples=40", "eval_samples=20"),
    )
    return config


def test_start_weights_are_made_beside_the_data_and_only_once(quick: Config, tmp_path: Path) -> None:
    drawn = torch.random.get_rng_state()
    data.prepare(quick, tmp_path / "data", None)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    (file,) = (tmp_path / "llama2_pretrained").glob("*/model.safetensors")
    made = file.stat().st_mtime_ns
    data.prepare(quick, tmp_path / "data", None)
    assert file.stat().st_mtime_ns == made
    decoder = Decoder(quick.model)
    start_weights.load(decoder, quick)
    assert torch.equal(decoder.lm_head.weight, load_file(file)["lm_head.weight"])


def test_corrupt_start_weights_are_refused_and_made_anew(quick: Config) -> None:
    start_weights.make(quick)
    file = start_weights.made_file(quick)
    first = file.read_bytes()
    file.write_bytes(first[:-1] + bytes([first[-1] ^ 1]))
    with pytest.raises(RequestError, match=r"model\.safetensors is corrupt: its sha256 is not the one"):
        start_weights.load(Decoder(quick.model), quick)
    start_weights.make(quick)
    assert file.read_bytes() == first


@pytest.mark.parametrize("other", ["version", "width", "length"])
def test_start_weights_of_another_version_shape_or_length_lie_beside_those_that_are_there(
    quick: Config, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    start_weights.make(quick)
    file = start_weights.made_file(quick)
    first = file.read_bytes()
    changed = copy.deepcopy(quick)
    if other == "version":
        monkeypatch.setattr(start_weights, "VERSION", start_weights.VERSION + 1)
    elif other == "width":
        changed.model.width = 24
    else:
        changed.data.sequence_length = 32
    with pytest.raises(
        RequestError, match=r"There are no start weights .*make them with `train-bench prepare"
    ):
        start_weights.load(Decoder(changed.model), changed)
    start_weights.make(changed)
    start_weights.load(Decoder(changed.model), changed)
    monkeypatch.undo()
    monkeypatch.setattr(start_weights, "STEPS", 3)
    monkeypatch.setattr(start_weights, "WARMUP", 1)
    start_weights.load(Decoder(quick.model), quick)
    assert file.read_bytes() == first


def test_of_two_that_want_the_same_start_weights_one_makes_them_and_the_other_waits(
    quick: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prepares data of its own, so that the locks on these do not keep them apart."""
    making, may_go_on, made = threading.Event(), threading.Event(), []

    def pretrain(_decoder: torch.nn.Module, length: int) -> None:
        made.append(length)
        making.set()
        assert may_go_on.wait(60)

    monkeypatch.setattr(start_weights, "_pretrain", pretrain)
    other = replace(quick, data_dir=str(tmp_path / "other"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(data.prepare, quick, tmp_path / "data", None)
        assert making.wait(60)
        second = pool.submit(data.prepare, other, tmp_path / "other", None)
        assert not wait([second], timeout=0.5).done
        may_go_on.set()
        first.result(60)
        second.result(60)
    assert made == [64]
    start_weights.load(Decoder(other.model), other)


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


def test_pretraining_lowers_the_loss(quick: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what a network says that has not learnt: all tokens alike."""
    monkeypatch.setattr(start_weights, "STEPS", 60)
    torch.manual_seed(0)
    decoder = Decoder(quick.model)
    start_weights._pretrain(decoder, 64)
    tokens = torch.from_numpy(dialect.sequences(32, 64, 5, grammar.VERB_OF)).long()
    with torch.no_grad():
        logits = decoder(tokens[:, :-1])
    assert float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())) < 3.5
