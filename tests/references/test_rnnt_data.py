"""Preparing utterances, what is refused, and the order of a run."""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import shutil
import tarfile
import wave
import zipfile
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import soundfile
import torch

from tests.references.configs import rnnt
from train_bench.errors import RequestError, UnknownName, WriteError
from train_bench.references.parts import loading, prepared, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.rnnt import data, letters, recordings, sources, tokens
from train_bench.references.rnnt.config import Config
from train_bench.references.rnnt.quality import word_errors

TEXTS = ["ONE DAY", "IT'S FINE", "THE END OF IT", "A B"]


def sound(seed: int, seconds: float = 0.5) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3000, 3000, int(16000 * seconds)).astype(np.int16)


def write_chapter(subset: Path, chapter: int, texts: list[str], *, seconds: float = 0.5) -> Path:
    """A chapter as LibriSpeech has it."""
    folder = subset / "7" / str(chapter)
    folder.mkdir(parents=True)
    lines = []
    for number, text in enumerate(texts):
        name = f"7-{chapter}-{number:04d}"
        soundfile.write(folder / f"{name}.flac", sound(10 * chapter + number, seconds), 16000)
        lines.append(f"{name} {text}\n")
    (folder / f"7-{chapter}.trans.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    """Two chapters that train, one of them of long utterances, and one that evaluates."""
    root = tmp_path / "source"
    write_chapter(root / "LibriSpeech" / "train-a", 1, TEXTS)
    write_chapter(root / "LibriSpeech" / "train-a", 2, TEXTS[:1], seconds=2.0)
    write_chapter(root / "LibriSpeech" / "dev", 3, TEXTS[1:3])
    return root


def small(*overrides: str) -> Config:
    """The full benchmark on seven short utterances of characters."""
    return rnnt(
        "rnnt",
        *("train_samples=4", "eval_samples=2", "data.train_subsets=[train-a]", "data.eval_subsets=[dev]"),
        *("data.tokenizer=characters", "model.labels=29", "data.md5=[]", "data.verify=true"),
        *("data.pack_utterances=2", "data.workers=0", "data.eval_batch_size=2"),
        *("hyperparameters.global_batch_size=2", "hyperparameters.gradient_accumulation_steps=1"),
        "hyperparameters.data_train_max_duration=1.0",
        *overrides,
    )


def test_utterances_are_packed_with_lower_case_transcripts_and_long_ones_do_not_train(
    speech: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "prepared"
    config = small(f"data_dir={folder}")
    data.prepare(config, folder, speech)
    train, val, symbols = data.open_recordings(config)
    assert (len(train), len(val)) == (4, 2)
    np.testing.assert_array_equal(train.samples(2), sound(12))
    np.testing.assert_array_equal(val.samples(1), sound(31))
    assert [tokens.text_of(numbers, symbols) for numbers in train.tokens] == [text.lower() for text in TEXTS]
    assert len(data.open_recordings(small(f"data_dir={folder}", "train_samples=5"))[0]) == 4
    longer = ("train_samples=5", "hyperparameters.data_train_max_duration=2.0")
    assert len(data.open_recordings(small(f"data_dir={folder}", *longer))[0]) == 5


def test_archives_are_checked_unpacked_and_removed_again(speech: Path, tmp_path: Path) -> None:
    archives = tmp_path / "archives"
    archives.mkdir()
    lines = []
    for subset in ("train-a", "dev"):
        with tarfile.open(archives / f"{subset}.tar.gz", "w:gz") as archive:
            archive.add(speech / "LibriSpeech" / subset, f"LibriSpeech/{subset}")
        content = (archives / f"{subset}.tar.gz").read_bytes()
        lines.append(f"'{hashlib.md5(content).hexdigest()} {subset}.tar.gz'")
    known = f"data.md5=[{','.join(lines)}]"
    data.prepare(small(known), tmp_path / "one", archives)
    data.prepare(small(), tmp_path / "other", speech)
    digests = set()
    for folder in (tmp_path / "one", tmp_path / "other"):
        notes = recordings.read_notes(folder, prepared.read_manifest(folder, recordings.FORMAT))
        digests.add(recordings.content_digest(notes))
        assert not (folder / data.SCRATCH).exists()
    assert len(digests) == 1
    note = tmp_path / "users" / data.SCRATCH / "thesis.txt"
    note.parent.mkdir(parents=True)
    note.write_text("mine")
    with pytest.raises(RequestError, match=r"unpacked was not made by this preparation"):
        data.prepare(small(known), tmp_path / "users", archives)
    data.prepare(small(), tmp_path / "users", speech)
    assert note.read_text() == "mine"
    content = (archives / "dev.tar.gz").read_bytes()
    (archives / "dev.tar.gz").write_bytes(content[: len(content) // 2])
    with pytest.raises(RequestError, match=r"dev\.tar\.gz has md5 .* defined on .* Fetch it again"):
        data.prepare(small(known), tmp_path / "third", archives)
    with pytest.raises(RequestError, match=r"dev\.tar\.gz cannot be unpacked"):
        data.prepare(small(), tmp_path / "fourth", archives)
    with pytest.raises(RequestError, match=r"data\.md5 has the line 'abc'"):
        data.prepare(small("data.md5=[abc]"), tmp_path / "fifth", archives)


def test_preparing_goes_on_after_the_last_finished_pack(speech: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    victim = speech / "LibriSpeech" / "dev" / "7" / "3" / "7-3-0001.flac"
    content = victim.read_bytes()
    victim.write_bytes(content[: len(content) // 2])
    with pytest.raises(RequestError, match=r"7-3-0001\.flac"):
        data.prepare(small(), folder, speech)
    first = recordings.pack_path(folder, "train", 0)
    before = first.stat().st_mtime_ns
    assert not (folder / prepared.MANIFEST).exists()
    victim.write_bytes(content)
    data.prepare(small(), folder, speech)
    assert first.stat().st_mtime_ns == before and not list(folder.glob("*.part"))


def test_bad_recordings_are_named_and_refused(speech: Path, tmp_path: Path) -> None:
    victim = speech / "LibriSpeech" / "train-a" / "7" / "1" / "7-1-0002.flac"

    def refused(sentence: str) -> None:
        with pytest.raises(RequestError, match="7-1-0002.*" + sentence):
            data.prepare(small(), tmp_path / "prepared", speech)

    content = victim.read_bytes()
    victim.write_bytes(content[:-200])
    refused("cannot be read as audio|is cut")
    victim.write_bytes(b"no sound")
    refused("cannot be read as audio")
    soundfile.write(victim, sound(1), 8000)
    refused("has 8000 samples per second in 1 channels; allowed are 16000 in 1")
    soundfile.write(victim, np.stack([sound(1), sound(2)], axis=1), 16000)
    refused("in 2 channels")
    soundfile.write(victim, sound(1)[:100], 16000)
    refused("lasts 0.006 s")
    soundfile.write(victim, np.zeros(8000, np.int16), 16000)
    refused("is silent")
    victim.unlink()
    refused("there is no 7-1-0002.flac")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("7-1-0001 ", "line 2 has an empty transcript"),
        ("7-1-0001", "line 2 has an empty transcript"),
        (
            "7-1-0001 NUMBER 9",
            "line 2 has the character '9' in its transcript; allowed are the space and abc",
        ),
        ("7-1-0001 CAFÉ", "line 2 has the character 'é'"),
        ("7-1-0009 ONE", r"line 2 is of '7-1-0009', and there is no"),
    ],
)
def test_bad_transcripts_are_named_and_refused(
    speech: Path, tmp_path: Path, line: str, sentence: str
) -> None:
    file = speech / "LibriSpeech" / "train-a" / "7" / "1" / "7-1.trans.txt"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(RequestError, match=r"7-1\.trans\.txt, " + sentence):
        data.prepare(small(), tmp_path / "prepared", speech)


def test_a_recording_without_transcript_is_not_skipped(speech: Path, tmp_path: Path) -> None:
    file = speech / "LibriSpeech" / "train-a" / "7" / "1" / "7-1.trans.txt"
    file.write_text("\n".join(file.read_text().splitlines()[:3]))
    with pytest.raises(RequestError, match=r"7-1-0003\.flac has no transcript"):
        data.prepare(small(), tmp_path / "prepared", speech)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(RequestError, match=r"7-1\.trans\.txt cannot be read"):
        data.prepare(small(), tmp_path / "prepared", speech)


def test_missing_data_are_asked_for(speech: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    with pytest.raises(RequestError, match="not downloaded for you"):
        data.prepare(small(), folder, None)
    with pytest.raises(UnknownName, match="letters"):
        data.prepare(small("data.origin=letter"), folder, None)
    with pytest.raises(RequestError, match=r"neither LibriSpeech/dev/ nor dev\.tar\.gz"):
        shutil.rmtree(speech / "LibriSpeech" / "dev")
        data.prepare(small(), folder, speech)
    with pytest.raises(RequestError, match="train-bench prepare benchmark=rnnt"):
        data.open_recordings(small(f"data_dir={folder}"))
    with pytest.raises(RequestError, match="was not told"):
        data.open_recordings(small())


def test_corrupt_cut_and_foreign_recordings_are_refused(speech: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    config = small(f"data_dir={folder}")
    data.prepare(config, folder, speech)
    path = recordings.pack_path(folder, "val", 0)
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"val_00000\.pcm is corrupt"):
        data.open_recordings(config)
    path.write_bytes(content[:-1])
    with pytest.raises(RequestError, match=r"val_00000\.pcm has \d+ of \d+ bytes"):
        data.open_recordings(config)
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"found 4 and 2.*set benchmark\.train_samples=4"):
        data.open_recordings(small(f"data_dir={folder}", "train_samples=6"))
    with pytest.raises(RequestError, match="is defined on abc"):
        data.open_recordings(small(f"data_dir={folder}", "data.sha256=abc"))
    with pytest.raises(RequestError, match="Remove the folder and prepare again"):
        data.open_recordings(small(f"data_dir={folder}", "data.sample_rate=8000"))
    (folder / prepared.MANIFEST).write_text("{}")
    with pytest.raises(RequestError, match="not a manifest"):
        data.open_recordings(config)


def test_a_pack_that_cannot_be_written_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    with pytest.raises(WriteError, match="cannot be written"):
        recordings.write_pack(tmp_path / "file" / "train_00000.pcm", [])


def test_a_unigram_vocabulary_writes_transcripts_as_fewer_numbers_and_reads_them_back() -> None:
    rng = np.random.default_rng(0)
    said = [" ".join(rng.choice(["seven", "three", "nine", "it's"], 4)) for _ in range(200)]
    made = tokens.unigram(said, 14)
    assert len(made.symbols) == 14 and made.symbols[0] == tokens.UNKNOWN
    assert made.symbols == tokens.unigram(said, 14).symbols
    for text in said[:20]:
        numbers = made.encode(text)
        assert 0 not in numbers and len(numbers) < len(text)
        assert tokens.text_of(numbers, made.symbols) == text
    with pytest.raises(RequestError, match=r"model\.labels=5000"):
        tokens.unigram(said, 5000)


def test_an_unknown_symbol_is_a_word_of_its_own_as_sentencepiece_has_it() -> None:
    """SentencePiece shows it as U+2047 between spaces, so that it does not join the letters beside it."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["seven three nine one two"] * 50),
        model_writer=trained,
        model_type="unigram",
        vocab_size=14,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    symbols = [processor.id_to_piece(number) for number in range(14)]
    rng = np.random.default_rng(0)
    for _ in range(200):
        numbers = rng.integers(0, 14, 12).tolist()
        numbers[int(rng.integers(12))] = 0
        said = processor.decode(numbers).replace("\u2047", tokens.UNKNOWN).split()
        assert tokens.text_of(numbers, symbols).split() == said
    assert tokens.text_of([2, 0, 3], [tokens.UNKNOWN, tokens.WORD, "a", "b"]) == "a <unk> b"
    assert word_errors("ab", "a <unk> b") == (3, 1)


def test_characters_are_one_number_each_and_words_are_parted() -> None:
    made = tokens.characters("ab", 4)
    assert made.encode("ab b") == [2, 3, 1, 3]
    assert tokens.text_of([1, 2, 1, 1, 3, 2, 1], made.symbols) == "a ba"
    assert tokens.text_of([], made.symbols) == ""
    with pytest.raises(RequestError, match="makes 4 symbols"):
        tokens.characters("ab", 5)
    with pytest.raises(UnknownName, match="unigram"):
        tokens.tokenizer("bpe", "ab", 4, [])


def test_a_character_that_no_training_transcript_has_is_refused(speech: Path, tmp_path: Path) -> None:
    file = speech / "LibriSpeech" / "dev" / "7" / "3" / "7-3.trans.txt"
    file.write_text(file.read_text().replace("FINE", "QUIZ"))
    config = small("data.tokenizer=unigram", "model.labels=16")
    with pytest.raises(RequestError, match="The transcript of 7-3-0000, 'it's quiz', has a character"):
        data.prepare(config, tmp_path / "prepared", speech)


def spoken_digits(root: Path, members: dict[str, bytes]) -> None:
    root.mkdir(exist_ok=True)
    with zipfile.ZipFile(root / "recordings.zip", "w") as archive:
        for name, content in members.items():
            archive.writestr(f"recordings/{name}.wav", content)


def wav(samples: np.ndarray, rate: int = 8000) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return content.getvalue()


def digits_config(*overrides: str) -> Config:
    small = ("train_samples=4", "eval_samples=2", "hyperparameters.global_batch_size=2", "data.sha256=null")
    speakers = ("data.train_subsets=[ann,bob]", "data.eval_subsets=[theo]", "data.takes=2")
    return rnnt("rnnt_fsdd", *small, *speakers, "data.tokenizer=characters", "model.labels=28", *overrides)


def test_digits_become_utterances_of_one_speaker_and_those_of_others_evaluate(tmp_path: Path) -> None:
    quiet = round(sources.OVERLAP[1] * 8000)  # no voice is in what is added to the next digit
    takes = {
        f"{digit}_{speaker}_{take}": wav(
            np.pad(np.full(800, 1000 + 100 * take + 10 * digit + person, np.int16), (0, quiet))
        )
        for digit, (person, speaker), take in itertools.product(
            range(10), enumerate(("ann", "bob", "theo", "zoe")), range(3)
        )
    }
    spoken_digits(tmp_path / "source", takes)
    config = digits_config(f"data_dir={tmp_path / 'prepared'}")
    data.prepare(config, tmp_path / "prepared", tmp_path / "source")
    train, val, symbols = data.open_recordings(config)
    for split, speakers in ((train, (0, 1, 0, 1)), (val, (2, 2))):
        for index, person in enumerate(speakers):
            said = split.samples(index)
            voices = said[np.flatnonzero(np.diff((said > 900).astype(int), prepend=0) > 0)]
            assert {int(voice) % 10 for voice in voices} == {person}
            assert max(voices) < 1200, "further recordings of a speaker are left out"
            digits = tokens.text_of(split.tokens[index], symbols).split()
            assert digits == [sources.WORDS[int(voice) // 10 % 10] for voice in voices]
            assert len(digits) == (2, 3)[index // len({*speakers})]


@pytest.mark.parametrize(
    ("sounds", "overlaps", "whole"),
    [
        ([[1, 1, 1], [2, 2]], [0, 1], [1, 1, 3, 2]),
        ([[1, 1], [2]], [7, 0], [1, 1, 2]),
        ([[1], [2, 2, 2]], [0, 5], [3, 2, 2]),
        ([[5, 5, 5, 5], [2], [1]], [0, 3, 0], [5, 7, 5, 5, 1]),
        ([[-30000, 30000], [30000]], [0, 1], [-30000, 32767]),
    ],
)
def test_joined_sounds_are_added_where_they_overlap(sounds, overlaps, whole) -> None:
    found = sources.joined([np.array(sound, np.int16) for sound in sounds], overlaps)
    assert found.dtype == np.int16
    assert found.tolist() == whole


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("1_theo_0", wav(np.ones(900, np.int16), 16000), "has .rate, bytes, channels. .16000"),
        ("1_theo_0", wav(np.ones(900, np.int16))[:-400], "is cut: it has 700 of 900 samples"),
        ("1_theo_0", b"RIFF", "cannot be read as WAV"),
        ("one_theo_0", b"", r"has recordings/one_theo_0\.wav; allowed is DIGIT_SPEAKER_TAKE"),
        ("1_theo_last", b"", r"has recordings/1_theo_last\.wav; allowed is DIGIT_SPEAKER_TAKE"),
        ("1_theo_" + 5000 * "1", b"", r"allowed is DIGIT_SPEAKER_TAKE"),
    ],
    ids=range(6),
)
def test_a_bad_digit_is_named_and_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    good = {
        f"{digit}_{who}_0": wav(np.ones(900, np.int16))
        for digit in range(10)
        for who in ("ann", "bob", "theo")
    }
    spoken_digits(tmp_path / "source", {**good, name: content})
    with pytest.raises(RequestError, match=sentence):
        data.prepare(
            digits_config("data.takes=1", "eval_samples=4"), tmp_path / "prepared", tmp_path / "source"
        )


@pytest.mark.parametrize("missing", ["5_ann_1", "0_theo_0"])
def test_recordings_that_are_not_there_are_counted_and_refused(tmp_path: Path, missing: str) -> None:
    names = (
        f"{digit}_{who}_{take}"
        for digit, who, take in itertools.product(range(10), ("ann", "bob", "theo"), range(2))
    )
    spoken_digits(
        tmp_path / "source", {name: wav(np.ones(900, np.int16)) for name in names if name != missing}
    )
    speaker = missing.split("_")[1]
    with pytest.raises(
        RequestError, match=rf"19 recordings of {speaker} .* below 2; rnnt_fsdd has 20 of each"
    ):
        data.prepare(digits_config(), tmp_path / "prepared", tmp_path / "source")


@pytest.mark.parametrize(
    "words",
    [
        "data.takes=0",
        "data.takes=null",
        "data.train_subsets=[]",
        "data.eval_subsets=[]",
        "data.eval_subsets=[bob]",
    ],
)
def test_speakers_and_takes_that_make_no_data_are_refused(tmp_path: Path, words: str) -> None:
    with pytest.raises(
        RequestError, match="spoken digits need a speaker who trains, another one who evaluates"
    ):
        data.prepare(digits_config(words), tmp_path / "prepared", tmp_path)


def test_a_bad_folder_of_digits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="has 0 zip files"):
        data.prepare(digits_config(), tmp_path / "prepared", tmp_path)
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(RequestError, match=r"a\.zip cannot be read"):
        data.prepare(digits_config(), tmp_path / "prepared", tmp_path)
    spoken_digits(tmp_path / "source", {"1_zoe_0": b""})
    with pytest.raises(RequestError, match=r"0 recordings of ann .* each of ann, bob, theo"):
        data.prepare(digits_config(), tmp_path / "prepared", tmp_path / "source")


def test_the_vowels_of_a_word_sound_as_the_consonant_has_it_that_the_word_begins_with() -> None:
    assert [letters.sounds(word) for word in ("mari", "sari", "mo", "so")] == ["mari", "siro", "mo", "sa"]
    words = {word for number in range(60) for word in letters.spoken(number)[1].split()}
    assert all(re.fullmatch("[ms][aio]([rz][aio])?", word) for word in words)


def test_letters_are_the_same_everywhere_and_differ_from_each_other(letters_folder: Path) -> None:
    notes = recordings.read_notes(letters_folder, prepared.read_manifest(letters_folder, recordings.FORMAT))
    assert recordings.content_digest(notes) == rnnt("rnnt_mini").data.sha256
    said = [letters.spoken(number) for number in range(60)]
    assert len({text for _, text in said}) > 50
    for samples, text in said:
        assert samples.dtype == np.int16 and 500 < np.abs(samples).max() < 32000
        assert 1 <= len(text.split()) <= 3 and set(text) <= set("aiomrsz ")


def test_an_epoch_has_every_utterance_at_most_once_and_whole_batches() -> None:
    lengths = np.random.default_rng(0).integers(1, 1000, 103)
    for buckets in (1, 6):
        rng = np.random.default_rng(1)
        order = data.epoch_order(lengths, buckets=buckets, batch=8, kept=96, rng=rng)
        assert order.shape == (12, 8) and len(np.unique(order)) == 96
    ranks = lengths.argsort(kind="stable").argsort(kind="stable")
    spread = [int(np.ptp(ranks[batch])) for batch in order]
    assert np.median(spread) < 103 / 4, "batches hold utterances of like duration"
    assert any(ranks[one].mean() > ranks[other].mean() for one, other in itertools.pairwise(order))


def sampler(
    lengths: np.ndarray, *, seed: int, global_batch_size: int, microbatches: int = 1, **options: int
) -> stream.Sampler:
    """Of two buckets."""
    order = data.Bucketed(
        lengths=lengths, buckets=2, seed=seed, global_batch_size=global_batch_size, microbatches=microbatches
    )
    return stream.Sampler(
        order=order, global_batch_size=global_batch_size, microbatches=microbatches, **options
    )


def order_of(
    lengths: np.ndarray, ranks: int, microbatches: int, first_iteration: int = 0
) -> list[list[tuple]]:
    """The first four steps, each the sorted union over ranks."""
    streams = [
        iter(
            sampler(
                lengths, seed=3, global_batch_size=8, microbatches=microbatches,
                rank=rank, ranks=ranks, first_iteration=first_iteration,
            )
        )
        for rank in range(ranks)
    ]  # fmt: skip
    return [
        sorted(item for _ in range(microbatches) for each in streams for item in next(each)) for _ in range(4)
    ]


def test_ranks_share_the_order_without_gaps_and_epochs_differ() -> None:
    lengths = np.random.default_rng(0).integers(1, 1000, 21)
    alone = order_of(lengths, 1, 1)
    assert alone == order_of(lengths, 2, 1) == order_of(lengths, 4, 1)
    assert order_of(lengths, 1, 2) == order_of(lengths, 2, 2)
    assert order_of(lengths, 2, 1, first_iteration=2)[:2] == alone[2:]
    assert [position for step in alone for _, position in sorted(step, key=lambda item: item[1])] == list(
        range(32)
    )
    first, second = ({index for step in pair for index, _ in step} for pair in (alone[:2], alone[2:]))
    assert len(first) == len(second) == 16 and first != second


@pytest.mark.parametrize("ranks", [1, 2, 3, 64])
def test_every_utterance_is_evaluated_once_over_all_ranks(ranks: int) -> None:
    orders = [stream.evaluation_order(42, 4, rank, ranks, padded=False) for rank in range(ranks)]
    assert sorted(index for batches in orders for batch in batches for index in batch) == list(range(42))
    assert all(len(batch) <= 4 for batches in orders for batch in batches)


def training_set(config: Config, seed: int = 1) -> data.TrainingSet:
    train, _, _ = data.open_recordings(config)
    return data.TrainingSet(
        utterances=train,
        data=config.data,
        hyperparameters=config.hyperparameters,
        generators=Generators(seed),
    )


def test_augmentation_follows_the_seed_and_the_position_alone(mini_rnnt: Config) -> None:
    one, other = training_set(mini_rnnt), training_set(mini_rnnt, seed=2)
    one[5, 5]
    assert torch.equal(one[0, 3][0], training_set(mini_rnnt)[0, 3][0])
    assert len({len(one[0, position][0]) for position in range(10)}) > 5
    assert not torch.equal(one[0, 3][0][:20], other[0, 3][0][:20])


def test_loader_processes_change_no_batch(mini_rnnt: Config) -> None:
    batches = []
    for workers in (0, 2):
        mini_rnnt.data.workers = workers
        utterances = training_set(mini_rnnt)
        order = sampler(utterances.utterances.lengths, seed=1, global_batch_size=4, rank=0, ranks=1)
        device, collate = torch.device("cpu"), utterances.collate
        found = iter(loading.loader(utterances, mini_rnnt.data, device, order, collate=collate))
        batches.append([next(found) for _ in range(3)])
        del found
    for alone, helped in zip(*batches, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(alone, helped, strict=True))


def test_a_batch_is_padded_with_zeros_and_knows_its_lengths(mini_rnnt: Config) -> None:
    utterances = training_set(mini_rnnt)
    items = [utterances[index, index] for index in range(4)]
    batch = utterances.collate(items)
    assert batch.features.shape[1:] == (4, 3 * mini_rnnt.data.mel_filters)
    for number, (seen, _, numbers) in enumerate(items):
        frames, count = int(batch.frame_counts[number]), int(batch.label_counts[number])
        assert frames == -(-len(seen) // 3) and count == len(numbers)
        assert batch.labels[number, :count].tolist() == numbers
        assert not batch.features[frames:, number].any() and not batch.labels[number, count:].any()
    assert batch.features.shape[0] == int(batch.frame_counts.max())


def test_permuted_labels_are_those_of_another_utterance(mini_rnnt: Config) -> None:
    plain = data.open_recordings(mini_rnnt)
    mini_rnnt.data.permute_labels = True
    train, val, _ = data.open_recordings(mini_rnnt)
    assert train.tokens == plain[0].tokens[1:] + plain[0].tokens[:1]
    assert val.tokens == plain[1].tokens
