"""Encoded data sets as Hugging Face `datasets` saved them, indexed in place; generated ones; what is drawn with each
use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.references.configs import flux1
from train_bench.errors import RequestError
from train_bench.references.flux1 import arrow, data, mixture, sources
from train_bench.references.flux1.config import Config
from train_bench.seeds import derive

RECORDED = Path(__file__).parent / "recorded" / "flux1"
"""Written by `datasets` 5.2.0 with pyarrow 26.0.1: bench/studies/record_flux1.py."""

SETS = (("cc12m_preprocessed", 7), ("coco_preprocessed", 5))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "source"))


def small(folder: Path, *overrides: str) -> Config:
    """The full benchmark with the shapes of the recorded samples."""
    config: Config = flux1(
        "flux1",
        *("model.channels=3", "model.latent_size=4", "model.text_length=3", "model.text_width=7"),
        *("model.pooled_width=5", "train_samples=7", "eval_samples=5", "data.workers=0"),
        *(f"data_dir={folder}", *overrides),
    )
    return config


def recorded() -> list[list[dict[str, np.ndarray]]]:
    """The samples of both sets, as `record_flux1.py` drew them."""
    rng = np.random.default_rng(0)
    shapes = {"text": (3, 7), "pooled": (5,), "mean": (3, 4, 4), "logvar": (3, 4, 4)}
    return [
        [
            {
                part: (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
                for part, shape in shapes.items()
            }
            for _ in range(samples)
        ]
        for _, samples in SETS
    ]


def test_every_number_of_a_saved_data_set_is_found_where_it_lies(tmp_path: Path, source: Path) -> None:
    config = small(tmp_path / "data")
    data.prepare(config, tmp_path / "data", source)
    train, val, empty = data.open_samples(config)
    for samples, wanted in zip((train, val), recorded(), strict=True):
        assert len(samples) == len(wanted)
        for index, sample in enumerate(wanted):
            for number, part in enumerate(sample.values()):
                assert np.array_equal(samples.part(index, number), part)
    assert [val.timestep(index) for index in range(5)] == [0, 1, 2, 3, 4]
    for found, name in zip(empty, ("t5_empty.npy", "clip_empty.npy"), strict=True):
        given = torch.from_numpy(np.load(RECORDED / "empty_encodings" / name))[0]
        assert torch.equal(torch.from_numpy(found).view(torch.bfloat16), given.bfloat16())
    (index,) = (tmp_path / "data").glob("val_*.bin")
    assert index.stat().st_size == 5 * 5 * 8  # nothing was copied
    assert {path.parent.parent for path in (*train.files(), *val.files())} == {source}


def test_preparing_goes_on_behind_the_files_that_are_finished(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder, read = small(tmp_path / "data"), tmp_path / "data", []
    proper = arrow.spans

    def spans(path: Path, names: Any) -> Any:
        read.append(path.name)
        if len(read) == 2:
            raise KeyboardInterrupt
        return proper(path, names)

    monkeypatch.setattr(arrow, "spans", spans)
    with pytest.raises(KeyboardInterrupt):
        data.prepare(config, folder, source)
    data.prepare(config, folder, source)
    assert read == [
        f"data-0000{number}-of-0000{count}.arrow" for number, count in ((0, 2), (1, 2), (1, 2), (0, 1))
    ]
    data.prepare(config, folder, None)
    assert len(read) == 4


@pytest.mark.parametrize("other", ["data.timesteps=4", "data.shift=0.2"])
def test_data_that_were_generated_with_other_settings_are_refused(
    prepared: Callable[[str], Path], other: str
) -> None:
    config = flux1("flux1_mini", other, f"data_dir={prepared('flux1')}")
    with pytest.raises(RequestError, match=r"prepared with .*'timesteps': 8.*; flux1_mini asks for"):
        data.open_samples(config)


BROKEN = [
    ("cut", r"00001-of-00002.arrow is not a data set .* it has 3000 bytes, and a message ends at 3632"),
    ("empty", "it is empty"),
    ("text", "it does not begin with the mark of a message"),
    ("no state", r"cc12m_preprocessed has no state.json"),
    ("outside", r"names the files \['../x.arrow'\]; needed are names of files beside it"),
    ("lacking", r"lacks 1 of 2 files, the first data-00001-of-00002.arrow"),
    ("no columns", r"has the columns .*, timestop; needed are .*, timestep, and only"),
    (
        "other shape",
        r"mean of sample 0 .* has 224 bytes, .* uint16 \(3, 4, 4\); needed is uint16 \(2, 4, 4\), 64 bytes",
    ),
    ("no empty", r"t5_empty.npy is not there"),
    ("wrong empty", r"clip_empty.npy has the shape \(1, 6\)"),
]


@pytest.mark.parametrize(("how", "message"), BROKEN)
def test_data_sets_that_are_not_whole_are_refused(
    tmp_path: Path, source: Path, how: str, message: str
) -> None:
    train = source / "cc12m_preprocessed"
    last, overrides = train / "data-00001-of-00002.arrow", []
    if how == "cut":
        last.write_bytes(last.read_bytes()[:3000])
    elif how == "empty":
        last.write_bytes(b"")
    elif how == "text":
        last.write_text("not found, try again later")
    elif how == "no state":
        (train / "state.json").unlink()
    elif how == "outside":
        (train / "state.json").write_text(json.dumps({"_data_files": [{"filename": "../x.arrow"}]}))
    elif how == "lacking":
        last.unlink()
    elif how == "no columns":
        names = (source / "coco_preprocessed" / "data-00000-of-00001.arrow").read_bytes()
        (source / "coco_preprocessed" / "data-00000-of-00001.arrow").write_bytes(
            names.replace(b"timestep", b"timestop")
        )
    elif how == "other shape":
        overrides = ["model.channels=2"]
    elif how == "no empty":
        (source / "empty_encodings" / "t5_empty.npy").unlink()
    else:
        np.save(source / "empty_encodings" / "clip_empty.npy", np.zeros((1, 6), dtype=np.float16))
    config = small(tmp_path / "data", *overrides)
    with pytest.raises(RequestError, match=message):
        data.prepare(config, tmp_path / "data", source)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_read_or_refused_and_never_read_beyond_its_end(
    tmp_path: Path, source: Path, seed: int
) -> None:
    path, rng = source / "cc12m_preprocessed" / "data-00000-of-00002.arrow", np.random.default_rng(seed)
    whole = path.read_bytes()
    for _ in range(50):
        damaged = bytearray(whole)
        for place in rng.integers(700, size=3):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        try:
            for batch in arrow.spans(path, list(sources.COLUMNS.values())):
                for span in batch.values():
                    assert len(span.first) == 0 or int((span.first + span.length).max()) <= len(whole)
        except RequestError as error:
            assert path.name in str(error)


def test_another_number_of_samples_than_the_benchmark_has_is_refused(tmp_path: Path, source: Path) -> None:
    config = small(tmp_path / "data", "train_samples=8")
    with pytest.raises(RequestError, match="has 8 training and 5 evaluation samples; found 7 and 5"):
        data.prepare(config, tmp_path / "data", source)


def test_a_data_set_that_was_moved_is_missed(tmp_path: Path, source: Path) -> None:
    config = small(tmp_path / "data")
    data.prepare(config, tmp_path / "data", source)
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(RequestError, match="has to stay where it was prepared from"):
        data.open_samples(config)


def batches(folder: Path, source: Path, *overrides: str, **given: Any) -> tuple[data.BatchSet, data.BatchSet]:
    config = small(folder, *overrides)
    data.prepare(config, folder, source)
    train, val, empty = data.open_samples(config)
    return (
        data.BatchSet(config=config, stored=train, empty=empty, **given),
        data.BatchSet(config=config, stored=val, empty=empty),
    )


def test_a_latent_is_drawn_about_its_mean_and_scaled(tmp_path: Path, source: Path) -> None:
    train, _ = batches(tmp_path / "data", source, seed=5)
    positions = range(4000)
    _, _, latents, noise, times = train[[(2, position) for position in positions]]
    sample = recorded()[0][2]
    mean, logvar = ((sample[part].astype(np.uint32) << 16).view(np.float32) for part in ("mean", "logvar"))
    np.testing.assert_allclose(latents.mean(0), 0.3611 * (mean - 0.1159), atol=0.12)
    np.testing.assert_allclose(latents.std(0) / 0.3611, np.exp(logvar / 2), rtol=0.06)
    assert float(noise.mean()) == pytest.approx(0, abs=0.01) and float(noise.std()) == pytest.approx(
        1, abs=0.01
    )
    assert float(np.corrcoef(noise.flatten(), latents.flatten())[0, 1]) == pytest.approx(0, abs=0.02)
    assert (
        float(times.mean()) == pytest.approx(0.5, abs=0.02)
        and 0 <= float(times.min()) < float(times.max()) < 1
    )
    assert float(times.std()) == pytest.approx(12**-0.5, abs=0.01)


def test_what_is_drawn_follows_from_seed_and_position_and_of_an_evaluation_from_the_sample(
    tmp_path: Path, source: Path
) -> None:
    train, val = batches(tmp_path / "data", source, seed=5)
    other, _ = batches(tmp_path / "data", source, seed=6)
    together = train[[(1, 10), (1, 11)]]
    for number, position in enumerate((10, 11)):
        for one, part in zip(train[[(1, position)]], together, strict=True):
            assert torch.equal(one[0], part[number])
    for part in (2, 3, 4):
        assert not torch.equal(together[part][0], together[part][1])
        assert not torch.equal(together[part][0], other[[(1, 10)]][part][0])
    assert all(torch.equal(a[2], b[0]) for a, b in zip(val[[0, 1, 2]], val[[2]], strict=True))
    assert val[[0, 1, 2, 3, 4]][4].tolist() == [0, 1 / 8, 2 / 8, 3 / 8, 4 / 8]


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 5, 2**32 - 1])
def test_a_batch_is_its_samples_made_one_by_one(
    tmp_path: Path, source: Path, seed: int, permuted: bool
) -> None:
    """Of both files of the training set, whatever the size of the batch, bit by bit."""
    train, val = batches(tmp_path / "data", source, "data.drop_prompts=0.3", seed=seed, permuted=permuted)
    for size, first in ((1, 0), (2, 5), (13, 40), (64, 1000)):
        items = [(position % 7, position) for position in range(first, first + size)]
        one_by_one = [trained_alone(train, index, position) for index, position in items]
        for part, parts in zip(train[items], zip(*one_by_one, strict=True), strict=True):
            assert part.is_contiguous() and same_bits(part, torch.stack(parts))
    for indices in ([0], [4, 2], [0, 1, 2, 3, 4]):
        one_by_one = [evaluated_alone(val, index) for index in indices]
        for part, parts in zip(val[indices], zip(*one_by_one, strict=True), strict=True):
            assert part.is_contiguous() and same_bits(part, torch.stack(parts))


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def trained_alone(samples: data.BatchSet, index: int, position: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(derive(samples.seed, "sample", position))
    dropped, time = rng.random(2)
    owner = index
    if samples.permuted:
        owner = int(np.random.default_rng(derive(0, "permuted", index)).integers(len(samples.stored)))
    prompt = [samples.stored.part(owner, number) for number in (0, 1)]
    drops = dropped < samples.config.data.drop_prompts
    return drawn_alone(samples, index, samples.empty if drops else prompt, float(time), rng)


def evaluated_alone(samples: data.BatchSet, index: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(derive(0, "evaluation", index))
    prompt = [samples.stored.part(index, number) for number in (0, 1)]
    time = samples.stored.timestep(index) / samples.config.data.timesteps
    return drawn_alone(samples, index, prompt, time, rng)


def drawn_alone(
    samples: data.BatchSet, index: int, prompt: Sequence[np.ndarray], time: float, rng: np.random.Generator
) -> tuple[torch.Tensor, ...]:
    mean, logvar = (
        (samples.stored.part(index, number).astype(np.uint32) << 16).view(np.float32) for number in (2, 3)
    )
    scale, shift = np.float32(samples.config.data.scale), np.float32(samples.config.data.shift)
    latent = mean + np.exp(0.5 * logvar) * rng.standard_normal(mean.shape, dtype=np.float32)
    noise = rng.standard_normal(mean.shape, dtype=np.float32)
    text, pooled = (torch.from_numpy(np.array(part)).view(torch.bfloat16) for part in prompt)
    numbers = (torch.from_numpy(part) for part in (scale * (latent - shift), noise))
    return text, pooled, *numbers, torch.tensor(time, dtype=torch.float32)


def test_a_tenth_of_training_prompts_is_dropped_and_none_in_an_evaluation(
    tmp_path: Path, source: Path
) -> None:
    train, val = batches(tmp_path / "data", source)
    text, pooled, *_ = train[[(3, position) for position in range(4000)]]
    empty = [torch.from_numpy(one).view(torch.bfloat16) for one in train.empty]
    dropped = (text == empty[0]).flatten(1).all(1)
    assert torch.equal(dropped, (pooled == empty[1]).all(1))
    assert float(dropped.float().mean()) == pytest.approx(0.1, abs=0.02)
    kept = torch.from_numpy(recorded()[0][3]["text"]).view(torch.bfloat16)
    assert bool((text[~dropped] == kept).all())
    assert not bool((val[[0, 1, 2, 3, 4]][0] == empty[0]).flatten(1).all(1).any())


def test_permuted_samples_have_the_prompts_of_others_and_their_own_images(
    tmp_path: Path, source: Path
) -> None:
    plain, _ = batches(tmp_path / "data", source, "data.drop_prompts=0")
    mixed, _ = batches(tmp_path / "data", source, "data.drop_prompts=0", permuted=True)
    items = [(index, index) for index in range(7)]
    ours, others = plain[items], mixed[items]
    assert all(torch.equal(ours[part], others[part]) for part in (2, 3, 4))
    assert not torch.equal(ours[0], others[0])
    known = {tuple(row.flatten().tolist()) for row in ours[0]}
    assert {tuple(row.flatten().tolist()) for row in others[0]} <= known


def test_generated_data_are_the_same_everywhere(prepared: Callable[[str], Path]) -> None:
    config = flux1("flux1_mini", f"data_dir={prepared('flux1')}")
    train, val, _ = data.open_samples(config)
    assert (len(train), len(val)) == (config.train_samples, config.eval_samples)
    assert np.bincount([val.timestep(index) for index in range(len(val))]).tolist() == [len(val) // 8] * 8


def test_generated_images_are_those_of_their_prompts(prepared: Callable[[str], Path]) -> None:
    """The least distance of an image to a mean is to one of its prompt, and is that of the noise."""
    config = flux1("flux1_mini", f"data_dir={prepared('flux1')}")
    _, val, empty = data.open_samples(config)
    text, pooled, latents, _, _ = data.BatchSet(config=config, stored=val, empty=empty)[list(range(200))]
    prompts, _ = mixture.draw(len(val), "val")
    words, sums = mixture.encodings(
        config.model.text_length, config.model.text_width, config.model.pooled_width
    )
    assert torch.equal(text, torch.from_numpy(words[prompts[:200]]).bfloat16())
    assert torch.equal(pooled, torch.from_numpy(sums[prompts[:200]]).bfloat16())
    off = (latents.numpy()[:, None] - mixture.means()[prompts[:200]]) ** 2
    assert float(off.mean(axis=(2, 3, 4)).min(axis=1).mean()) == pytest.approx(mixture.VARIANCE, rel=0.03)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.channels=2", "model.channels is 2 and model.latent_size"),
        ("model.text_length=1", "model.text_length is 1; prompts have"),
    ],
)
def test_generated_images_have_one_shape(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        data.prepare(flux1("flux1_mini", override), tmp_path / "data", None)
