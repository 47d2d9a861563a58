"""Data sets as distributed, read one utterance at a time for preparing."""

from __future__ import annotations

import hashlib
import io
import re
import struct
import wave
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_bench.core import files
from train_bench.core.progress_bar import bar
from train_bench.errors import RequestError
from train_bench.references.parts import archives, prepared
from train_bench.references.rnnt import letters
from train_bench.references.rnnt.config import Config
from train_bench.references.rnnt.recordings import Utterance
from train_bench.seeds import derive

BLOCK = 1 << 22
LARGEST_TRANSCRIPTS = 1 << 24
"""Bytes of a chapter's file."""

MOST_SECONDS = 600
"""Seconds of an utterance; those of LibriSpeech last at most 35."""

PIECES = (2, 3, 4, 3)
"""Spoken digits per utterance, over and over."""

TAKE = re.compile(r"[0-9]_[^_]+_[0-9]{1,4}")
"""Names of recordings of spoken digits: digit, speaker, number."""

OVERLAP = (0.02, 0.12)
"""Seconds before the end of a spoken digit at which the next one begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A data set to be prepared: the names of the utterances that train and evaluate, and what reads one."""

    train: Sequence[str]
    val: Sequence[str]
    read: Callable[[str], Utterance]


def transcript_of(text: str, alphabet: str, where: str) -> str:
    """Lower case, single spaces. Refuses an empty transcript and characters beyond the alphabet."""
    transcript = " ".join(text.lower().split())
    if not transcript:
        raise RequestError(f"{where} has an empty transcript; every utterance needs one.")
    strange = sorted(set(transcript) - set(alphabet) - {" "})
    if strange:
        raise RequestError(
            f"{where} has the character '{strange[0]}' in its transcript; allowed are the space and {alphabet}."
        )
    return transcript


def librispeech(config: Config, root: Path, scratch: Path) -> Source:
    """LibriSpeech: per subset `LibriSpeech/SUBSET/SPEAKER/CHAPTER/*.flac` with one file of transcripts, or
    `SUBSET.tar.gz`, which is unpacked into `scratch` first."""
    listed: dict[str, tuple[Path, str, str]] = {}
    names: list[list[str]] = []
    for subsets in (config.data.train_subsets, config.data.eval_subsets):
        names.append([])
        for subset in subsets:
            for name, entry in _chapters(_subset(config, root, scratch, subset)):
                listed[name] = entry
                names[-1].append(name)

    def read(name: str) -> Utterance:
        path, text, where = listed[name]
        return Utterance(
            name=name,
            samples=read_flac(path, config.data.sample_rate),
            transcript=transcript_of(text, config.data.alphabet, where),
        )

    return Source(train=names[0], val=names[1], read=read)


def _subset(config: Config, root: Path, scratch: Path, subset: str) -> Path:
    """The folder of a subset: as it is, or unpacked from its archive, whose md5 is held."""
    for folder in (root / "LibriSpeech" / subset, root / subset):
        if folder.is_dir():
            return folder
    archive, note = root / f"{subset}.tar.gz", scratch / f"{subset}.json"
    if not archive.is_file():
        raise RequestError(
            f"{root} has neither LibriSpeech/{subset}/ nor {subset}.tar.gz. Fetch {subset}.tar.gz of LibriSpeech "
            "(OpenSLR 12) into this folder, then prepare again."
        )
    size = archive.stat().st_size
    if not note.exists() or files.read_json(note) != size:
        _hold_md5(archive, config.data.md5)
        prepared.scratch_folder(scratch.parent, scratch.name)
        archives.unpack_tar(archive, scratch)
        files.write_json(note, size)
    return scratch / "LibriSpeech" / subset


def _hold_md5(archive: Path, lines: list[str]) -> None:
    known = prepared.md5_by_name(lines)
    if archive.name not in known:
        return
    digest = hashlib.md5(usedforsecurity=False)
    with archive.open("rb") as file:
        blocks = iter(lambda: file.read(BLOCK), b"")
        for block in bar(blocks, f"checking {archive.name}", total=-(-archive.stat().st_size // BLOCK)):
            digest.update(block)
    if digest.hexdigest() != known[archive.name]:
        raise RequestError(
            f"{archive} has md5 {digest.hexdigest()}; the benchmark is defined on {known[archive.name]}. "
            "Fetch it again."
        )


def _chapters(subset: Path) -> Iterator[tuple[str, tuple[Path, str, str]]]:
    """Per utterance its name, recording, text and the text's location. Every recording has a transcript and every
    transcript a recording."""
    chapters = sorted(path for path in subset.glob("*/*") if path.is_dir())
    if not chapters:
        raise RequestError(f"{subset} has no folders SPEAKER/CHAPTER; it is not a subset of LibriSpeech.")
    for chapter in chapters:
        file = chapter / f"{chapter.parent.name}-{chapter.name}.trans.txt"
        try:
            content = files.read_bytes(file, largest=LARGEST_TRANSCRIPTS)
            lines = content.decode("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise RequestError(f"The transcripts {file} cannot be read: {error}.") from error
        recordings = {path.stem: path for path in chapter.glob("*.flac")}
        for number, line in enumerate(lines, start=1):
            name, _, text = line.partition(" ")
            if name not in recordings:
                raise RequestError(
                    f"{file}, line {number} is of '{name}', and there is no {name}.flac beside it."
                )
            yield name, (recordings.pop(name), text, f"{file}, line {number}")
        if recordings:
            raise RequestError(f"{min(recordings.values())} has no transcript in {file}.")


def read_flac(path: Path, sample_rate: int) -> np.ndarray:
    """int16 (n,). Refuses what is cut or has another rate or several channels."""
    import soundfile

    try:
        with files.opened(path) as opened, soundfile.SoundFile(opened) as file:
            promised, rate, channels = file.frames, file.samplerate, file.channels
            if promised > sample_rate * MOST_SECONDS:
                raise RequestError(
                    f"{path} says that it has {promised} samples; an utterance lasts at most {MOST_SECONDS} s."
                )
            samples = file.read(dtype="int16", always_2d=True)
    except (soundfile.SoundFileError, OSError, RuntimeError) as error:
        raise RequestError(f"{path} cannot be read as audio: {error}. Fetch it again.") from error
    if len(samples) != promised:
        raise RequestError(f"{path} is cut: it has {len(samples)} of {promised} samples. Fetch it again.")
    if (rate, channels) != (sample_rate, 1):
        raise RequestError(
            f"{path} has {rate} samples per second in {channels} channels; allowed are {sample_rate} in 1."
        )
    return samples[:, 0]


def joined_digits(config: Config, root: Path) -> Source:
    """The Free Spoken Digit Dataset as one zip file of `recordings/DIGIT_SPEAKER_TAKE.wav`. Utterances are two
    to four digits of one speaker without pauses, drawn without replacement until all are used, then again."""
    asked = config.data
    wanted, each = [*asked.train_subsets, *asked.eval_subsets], asked.takes or 0
    if each < 1 or not asked.train_subsets or not asked.eval_subsets or len({*wanted}) < len(wanted):
        raise RequestError(
            f"data.train_subsets is {asked.train_subsets}, data.eval_subsets {asked.eval_subsets} and data.takes "
            f"{asked.takes}; spoken digits need a speaker who trains, another one who evaluates, nobody twice, and 1 "
            "take or more."
        )
    read = _Takes(root)
    takes: dict[str, list[str]] = {speaker: [] for speaker in wanted}
    for member in sorted(read.names):
        _, speaker, take = Path(member).stem.split("_")
        if speaker in takes and int(take) < each:
            takes[speaker].append(member)
    for speaker, members in takes.items():
        if len(members) != len(WORDS) * each:
            raise RequestError(
                f"{root} has {len(members)} recordings of {speaker} with numbers below {each}; {config.benchmark} has "
                f"{len(WORDS) * each} of each of {', '.join(wanted)}. Fetch it again."
            )
    spoken: dict[str, list[str]] = {}
    train = _sentences(takes, asked.train_subsets, config.train_samples or 0, spoken)
    val = _sentences(takes, asked.eval_subsets, config.eval_samples or 0, spoken)

    def utterance(name: str) -> Utterance:
        members = spoken[name]
        rng = np.random.Generator(np.random.Philox(key=derive(0, "overlaps", name)))
        overlaps = (round(rng.uniform(*OVERLAP) * config.data.sample_rate) for _ in members)
        samples = joined([read.wave(member, config.data.sample_rate) for member in members], overlaps)
        words = [WORDS[int(Path(member).stem.split("_")[0])] for member in members]
        text = transcript_of(" ".join(words), config.data.alphabet, name)
        return Utterance(name=name, samples=samples, transcript=text)

    return Source(train=train, val=val, read=utterance)


def joined(sounds: Iterable[np.ndarray], overlaps: Iterable[int]) -> np.ndarray:
    """int16 (n,): one after the other, each beginning so many samples before the end of those before it, and the
    samples of both added there."""
    whole = np.zeros(0, np.int64)
    for sound, overlap in zip(sounds, overlaps, strict=True):
        start = max(0, len(whole) - overlap)
        longer = np.zeros(max(len(whole), start + len(sound)), np.int64)
        longer[: len(whole)] += whole
        longer[start : start + len(sound)] += sound
        whole = longer
    return np.clip(whole, -32768, 32767).astype(np.int16)


WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _sentences(
    takes: Mapping[str, list[str]], speakers: list[str], count: int, spoken: dict[str, list[str]]
) -> list[str]:
    """Names of `count` utterances, speakers by turns; what each consists of goes into `spoken`."""
    names: list[str] = []
    rests: dict[str, list[str]] = {speaker: [] for speaker in speakers}
    for number in range(count):
        speaker = speakers[number % len(speakers)]
        wanted = PIECES[number // len(speakers) % len(PIECES)]
        if len(rests[speaker]) < wanted:
            rng = np.random.Generator(np.random.Philox(key=derive(0, "digits", speaker, number)))
            rests[speaker] = [str(member) for member in rng.permutation(takes[speaker])]
        names.append(f"{speaker}_{number:05d}")
        spoken[names[-1]] = [rests[speaker].pop() for _ in range(wanted)]
    return names


class _Takes:
    """The recordings of the zip file in a folder."""

    def __init__(self, root: Path) -> None:
        archives_here = sorted(root.glob("*.zip"))
        if len(archives_here) != 1:
            raise RequestError(
                f"{root} has {len(archives_here)} zip files; there has to be one, the recordings."
            )
        self._path = archives_here[0]
        self._archive = archives.Zip(self._path)
        self.names = [name for name in self._archive.names if name.endswith(".wav")]
        strange = [name for name in self.names if not TAKE.fullmatch(Path(name).stem)]
        if strange:
            raise RequestError(f"{self._path} has {strange[0]}; allowed is DIGIT_SPEAKER_TAKE.wav.")

    def wave(self, member: str, sample_rate: int) -> np.ndarray:
        """int16 (n,)."""
        where = f"{member} of {self._path}"
        content = self._archive.read(member)
        try:
            with wave.open(io.BytesIO(content)) as file:
                shape = (file.getframerate(), file.getsampwidth(), file.getnchannels())
                promised, samples = file.getnframes(), file.readframes(file.getnframes())
        except (OSError, EOFError, RuntimeError, struct.error, wave.Error) as error:
            raise RequestError(f"{where} cannot be read as WAV: {error}. Fetch it again.") from error
        if shape != (sample_rate, 2, 1):
            raise RequestError(
                f"{where} has (rate, bytes, channels) {shape}; allowed is ({sample_rate}, 2, 1)."
            )
        if len(samples) != 2 * promised:
            raise RequestError(f"{where} is cut: it has {len(samples) // 2} of {promised} samples.")
        return np.frombuffer(samples, dtype="<i2")


def generated(config: Config) -> Source:
    """Words of `letters.py`: the first `train_samples` utterances train, the rest evaluate."""
    train, val = config.train_samples or 0, config.eval_samples or 0

    def read(name: str) -> Utterance:
        samples, text = letters.spoken(int(name))
        return Utterance(
            name=name, samples=samples, transcript=transcript_of(text, config.data.alphabet, name)
        )

    names = [str(number) for number in range(train + val)]
    return Source(train=names[:train], val=names[train:], read=read)
