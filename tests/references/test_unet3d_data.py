"""Preparing volumes, what is refused, crops, augmentation and the order of a run."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import zipfile
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from scipy import ndimage

from tests import needs
from tests.memory import peak_resident
from tests.references.configs import unet3d
from train_bench.errors import RequestError, UnknownName, WriteError
from train_bench.references.parts import loading, prepared, stream
from train_bench.references.parts.generators import Generators
from train_bench.references.unet3d import cases, data, sources, volumes
from train_bench.references.unet3d.config import Config
from train_bench.references.unet3d.organs import organs

HIPPOCAMPUS = needs.DATA / "hippocampus"


def scan(seed: int, shape: tuple[int, ...] = (10, 12, 9)) -> tuple[np.ndarray, np.ndarray]:
    """An int16 image around 0 with a cube of class 1 and one of class 2."""
    image = np.random.default_rng(seed).integers(-300, 500, shape).astype(np.int16)
    label = np.zeros(shape, dtype=np.uint8)
    label[2:6, 2:6, 2:6] = 1
    label[4:7, 5:8, 3:5] = 2
    return image, label


def nifti(array: np.ndarray, spacing: tuple[float, ...] = (1.6, 1.2, 1.2)) -> bytes:
    volume = nibabel.Nifti1Image(array, np.diag([*spacing, 1.0]))
    return gzip.compress(volume.to_bytes())


def write_kits19(
    root: Path, number: int, imaging: bytes | None = None, segmentation: bytes | None = None
) -> None:
    image, label = scan(number)
    folder = root / cases.case_name(number)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "imaging.nii.gz").write_bytes(imaging or nifti(image))
    (folder / "segmentation.nii.gz").write_bytes(segmentation or nifti(label))


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    """Three cases as KiTS19 is distributed."""
    root = tmp_path / "kits19"
    for number in range(3):
        write_kits19(root / "data", number)
    return root


def small(*overrides: str) -> Config:
    """The full benchmark on three small cases, of which number 1 evaluates."""
    return unet3d(
        "unet3d",
        *(
            "train_samples=2",
            "eval_samples=1",
            "data.evaluation_cases=[1]",
            "data.md5=null",
            "data.verify=true",
        ),
        *("hyperparameters.training_input_shape=[8,8,12]", "data.workers=0"),
        *overrides,
    )


def test_prepared_cases_are_clipped_normalised_and_padded_with_edge_values(
    kits: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "prepared"
    data.prepare(small(), folder, kits)
    image, label = scan(0)
    expected = (np.clip(image.astype(np.float32), -79, 304) - np.float32(101)) / np.float32(76.9)
    expected = np.pad(expected, ((0, 0), (0, 0), (1, 2)), mode="edge")
    found = np.load(folder / "case_00000_x.npy")
    assert found.dtype == np.float32 and found.shape == (1, 10, 12, 12)
    np.testing.assert_array_equal(found[0], expected)
    truth = np.load(folder / "case_00000_y.npy")
    assert truth.dtype == np.uint8
    np.testing.assert_array_equal(truth[0], np.pad(label, ((0, 0), (0, 0), (1, 2)), mode="edge"))


def test_the_split_is_that_of_the_configuration(kits: Path, tmp_path: Path) -> None:
    data.prepare(small(), tmp_path / "prepared", kits)
    train, val = data.open_volumes(small(f"data_dir={tmp_path / 'prepared'}"))
    assert [train.name(0), train.name(1), val.name(0)] == ["case_00000", "case_00002", "case_00001"]


def test_the_full_benchmark_evaluates_42_of_the_210_cases() -> None:
    numbers = unet3d("unet3d").data.evaluation_cases
    assert len(numbers) == len(set(numbers)) == 42 and max(numbers) < 210


def slow_resample(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Trilinear with aligned corners: the first and last voxels of old and new volume coincide."""
    places = [np.linspace(0, old - 1, new) for old, new in zip(image.shape, shape, strict=True)]
    return ndimage.map_coordinates(image, np.meshgrid(*places, indexing="ij"), order=1)


def test_other_spacings_are_resampled_to_truncated_sides() -> None:
    image, label = scan(0)
    new, classes = volumes.resample(image.astype(np.float32), label, (3.0, 0.7, 1.0), [1.6, 1.2, 1.2])
    assert new.shape == classes.shape == (18, 7, 7) and classes.dtype == np.uint8
    np.testing.assert_allclose(new, slow_resample(image.astype(np.float64), new.shape), atol=1e-2)
    nearest = [np.arange(side) * old // side for side, old in zip(new.shape, label.shape, strict=True)]
    np.testing.assert_array_equal(classes, label[np.ix_(*nearest)])


def test_the_target_spacing_itself_is_left_alone() -> None:
    image, label = scan(0)
    assert volumes.resample(image, label, (1.6, 1.2, 1.2), [1.6, 1.2, 1.2])[0] is image


def test_without_constants_each_volume_is_normalised_by_its_own() -> None:
    image = scan(3)[0].astype(np.float32)
    found = volumes.normalize(image, unet3d("unet3d_hippocampus").data)
    assert float(found.mean()) == pytest.approx(0, abs=1e-5) and float(found.std()) == pytest.approx(
        1, abs=1e-5
    )


def test_preparing_goes_on_after_the_last_finished_case(kits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    victim = kits / "data" / "case_00002" / "imaging.nii.gz"
    content = victim.read_bytes()
    victim.write_bytes(content[:100])
    with pytest.raises(RequestError, match=r"case_00002/imaging\.nii\.gz cannot be read as NIfTI-1"):
        data.prepare(small(), folder, kits)
    first = folder / "case_00000_x.npy"
    before = first.stat().st_mtime_ns
    assert not (folder / prepared.MANIFEST).exists()
    victim.write_bytes(content)
    data.prepare(small(), folder, kits)
    assert first.stat().st_mtime_ns == before
    assert (folder / prepared.MANIFEST).exists() and not list(folder.glob("*.part"))


def test_cases_of_another_preprocessing_are_made_again_or_refused(kits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    data.prepare(small(), folder, kits)
    with pytest.raises(RequestError, match="were prepared with"):
        data.prepare(small("data.mean=100.0"), folder, kits)
    (folder / prepared.MANIFEST).unlink()
    before = np.load(folder / "case_00000_x.npy")
    data.prepare(small("data.mean=100.0"), folder, kits)
    assert not np.array_equal(before, np.load(folder / "case_00000_x.npy"))


def test_a_known_md5_is_held(kits: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.md5"
    config, folder = small(f"data.md5={known}"), tmp_path / "prepared"
    with pytest.raises(RequestError, match=r"known\.md5 \(data\.md5\) cannot be read"):
        data.prepare(config, folder, kits)
    known.write_text("abc case_00000_y.npy\n")
    with pytest.raises(RequestError, match=r"case_00000_y\.npy would have md5 .* defined on abc"):
        data.prepare(config, folder, kits)
    assert not list(folder.glob("*_y.npy*"))
    known.write_text("abc")
    with pytest.raises(RequestError, match=r"data\.md5 has the line 'abc'"):
        data.prepare(config, folder, kits)
    data.prepare(small(), folder, kits)
    names = [f"case_0000{number}_{kind}.npy" for number in range(3) for kind in "xy"]
    digests = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in names}
    known.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    data.prepare(config, tmp_path / "again", kits)


def test_cases_that_were_prepared_without_the_check_do_not_pass_for_those_of_the_benchmark(
    kits: Path, tmp_path: Path
) -> None:
    folder, known = tmp_path / "prepared", tmp_path / "known.md5"
    data.prepare(small(), folder, kits)
    known.write_text("0123  case_00002_x.npy\n")
    config = small(f"data.md5={known}", f"data_dir={folder}")
    for look in (lambda: data.prepare(config, folder, kits), lambda: data.open_volumes(config)):
        with pytest.raises(
            RequestError, match=r"case_00002_x\.npy .* was prepared with md5 \w{32}; .* on 0123"
        ):
            look()


def test_the_digests_of_all_prepared_cases_of_the_full_benchmark_are_known() -> None:
    known = data._known_md5(unet3d("unet3d"))
    assert sorted(known) == sorted(
        f"{cases.case_name(number)}_{kind}.npy" for number in range(210) for kind in "xy"
    )
    assert all(len(digest) == 32 for digest in known.values()) and len(set(known.values())) == 420
    assert known["case_00209_y.npy"] == "53e6a158a704c9fa4a1f246137d61483"
    assert unet3d("unet3d_mini").data.md5 is None and unet3d("unet3d_hippocampus").data.md5 is None


@pytest.mark.parametrize(
    ("segmentation", "sentence"),
    [
        (nifti(scan(1, (10, 12, 8))[1]), r"has shape \(10, 12, 8\), its image .* \(10, 12, 9\)"),
        (nifti(scan(1)[1] * 2), "has the label 4; allowed are 0 to 2"),
        (nifti(np.zeros((10, 12, 9), np.uint8)), "labels every voxel as background"),
        (nifti(np.zeros((10, 12, 9, 2), np.uint8)), "a volume has three axes"),
        (b"no volume", "cannot be read as NIfTI-1"),
        (gzip.compress(b"\0" * 400), "cannot be read as NIfTI-1"),
    ],
    ids=range(6),
)
def test_a_bad_segmentation_is_named_and_refused(
    kits: Path, tmp_path: Path, segmentation: bytes, sentence: str
) -> None:
    write_kits19(kits / "data", 1, segmentation=segmentation)
    with pytest.raises(RequestError, match="case_00001/segmentation.nii.gz.*" + sentence):
        data.prepare(small(), tmp_path / "prepared", kits)


def with_voxel_size(size: float) -> bytes:
    """A scan whose header says another width of its voxels."""
    plain = bytearray(gzip.decompress(nifti(scan(1)[0])))
    plain[80:84] = np.float32(size).tobytes()
    return bytes(plain)


@pytest.mark.parametrize(
    ("imaging", "sentence"),
    [
        (with_voxel_size(0.0), "sizes have to be above 0"),
        (with_voxel_size(float("nan")), "sizes have to be above 0"),
        (with_voxel_size(0.01), "the header's voxel size is wrong"),
        (nifti(np.full((10, 12, 9), np.inf, np.float32)), "not finite"),
    ],
    ids=range(4),
)
def test_a_bad_image_is_named_and_refused(kits: Path, tmp_path: Path, imaging: bytes, sentence: str) -> None:
    write_kits19(kits / "data", 1, imaging=imaging)
    with pytest.raises(RequestError, match="case_00001/imaging.nii.gz.*" + sentence):
        data.prepare(small(), tmp_path / "prepared", kits)


def with_type(code: int) -> bytes:
    """A scan whose header says another type of voxels."""
    plain = bytearray(gzip.decompress(nifti(scan(1)[0])))
    plain[70:72] = np.array(code, np.int16).tobytes()
    return gzip.compress(bytes(plain))


def with_shape(*shape: int) -> bytes:
    """A scan whose header says another shape."""
    plain = bytearray(gzip.decompress(nifti(scan(1)[0])))
    plain[42:48] = np.array(shape, np.int16).tobytes()
    return gzip.compress(bytes(plain))


@pytest.mark.parametrize(
    ("imaging", "sentence"),
    [
        (gzip.compress(gzip.decompress(nifti(scan(1)[0])) + bytes(300 << 20), 1), None),
        (with_shape(2000, 2000, 2000), "says that it has 8000000000 voxels; at most 536870912 are read"),
        (with_shape(2000, 2000, 100), "cannot be read as NIfTI-1: it has 2512 of 800000352 bytes"),
        (with_type(63), "cannot be read as NIfTI-1: its voxels are of the type 63"),
        (with_type(1), "cannot be read as NIfTI-1: "),
    ],
    ids=[
        "zeros behind",
        "too many voxels",
        "more voxels than there are",
        "unknown type",
        "type of single bits",
    ],
)
def test_a_volume_is_unpacked_as_far_as_its_header_says(
    kits: Path, tmp_path: Path, imaging: bytes, sentence: str | None
) -> None:
    write_kits19(kits / "data", 1, imaging=imaging)
    before = peak_resident(from_now=True)
    if sentence is None:
        data.prepare(small(), tmp_path / "prepared", kits)
    else:
        with pytest.raises(RequestError, match="case_00001/imaging.nii.gz.*" + sentence):
            data.prepare(small(), tmp_path / "prepared", kits)
    assert peak_resident() - before < 100 << 20


def test_a_missing_file_and_a_missing_source_are_asked_for(kits: Path, tmp_path: Path) -> None:
    (kits / "data" / "case_00002" / "segmentation.nii.gz").unlink()
    with pytest.raises(RequestError, match=r"1 of 6 files of KiTS19 are missing, the first is .*case_00002"):
        data.prepare(small(), tmp_path / "prepared", kits)
    with pytest.raises(RequestError, match="not downloaded for you"):
        data.prepare(small(), tmp_path / "prepared", None)
    with pytest.raises(UnknownName, match="organs"):
        data.prepare(small("data.origin=organ"), tmp_path / "prepared", None)
    with pytest.raises(RequestError, match="train-bench prepare benchmark=unet3d"):
        data.open_volumes(small(f"data_dir={tmp_path / 'prepared'}"))


def test_corrupt_cut_and_foreign_cases_are_refused(kits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    config = small(f"data_dir={folder}")
    data.prepare(config, folder, kits)
    path = folder / "case_00001_x.npy"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(RequestError, match=r"case_00001_x\.npy is corrupt"):
        data.open_volumes(config)
    path.write_bytes(content[:-1])
    with pytest.raises(RequestError, match=r"case_00001_x\.npy has \d+ of \d+ bytes"):
        data.open_volumes(config)
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(RequestError, match="has 1 training and 1 evaluation cases; found 2 and 1"):
        data.open_volumes(small(f"data_dir={folder}", "train_samples=1"))
    with pytest.raises(RequestError, match="is defined on abc"):
        data.open_volumes(small(f"data_dir={folder}", "data.sha256=abc"))
    (folder / prepared.MANIFEST).write_text("{}")
    with pytest.raises(RequestError, match="not a manifest"):
        data.open_volumes(config)


def test_a_case_that_cannot_be_written_is_a_write_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    image, label = scan(0)
    with pytest.raises(WriteError, match="cannot be written"):
        cases.write_case(tmp_path / "file", 0, image, label, preprocessing={}, md5={})


def decathlon(root: Path, names: dict[str, list[str]]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    listed = {
        key: [{"image": f"imagesTr/{name}", "label": f"labelsTr/{name}"} for name in names[key]]
        for key in names
    }
    with zipfile.ZipFile(root / "task.zip", "w") as archive:
        archive.writestr("dataset.json", json.dumps(listed))
        for number, name in enumerate(itertools.chain(*names.values())):
            image, label = scan(number)
            archive.writestr(f"imagesTr/{name}", nifti(image))
            archive.writestr(f"labelsTr/{name}", nifti(label.astype(np.float32)))


def test_a_decathlon_task_is_read_from_a_zip_file_and_unpacked_alike(tmp_path: Path) -> None:
    decathlon(
        tmp_path / "zipped", {"training": ["a_001.nii.gz", "a_007.nii.gz"], "validation": ["a_003.nii.gz"]}
    )
    (tmp_path / "plain").mkdir()
    with zipfile.ZipFile(tmp_path / "zipped" / "task.zip") as archive:
        archive.extractall(tmp_path / "plain")
    digests = set()
    for root in ("zipped", "plain"):
        data.prepare(small("data.origin=decathlon"), tmp_path / f"{root}_prepared", tmp_path / root)
        manifest = prepared.read_manifest(tmp_path / f"{root}_prepared", cases.FORMAT)
        assert [entry["case"] for entry in manifest["splits"]["train"]] == [1, 7]
        digests.add(cases.content_digest(manifest))
    assert len(digests) == 1


def test_a_corrupt_zip_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "task.zip").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(RequestError, match=r"task\.zip cannot be read as a zip file"):
        data.prepare(small("data.origin=decathlon"), tmp_path / "prepared", tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "not a Decathlon description"),
        ('{"training": []}', "not a Decathlon description"),
        ('{"training": [{"image": "x.nii.gz", "label": "y"}], "validation": []}', "ends in its number"),
        (
            '{"training": [{"image": "1", "label": "y"}], "validation": [{"image": "1", "label": "y"}]}',
            "twice",
        ),
        ('{"training": [{"image": "1", "label": "2"}], "validation": []}', "1 cannot be read"),
        (
            '{"training": [{"image": "../1", "label": "2"}], "validation": []}',
            "'../1' is not a file of the data set",
        ),
        (
            '{"training": [{"image": "/1", "label": "2"}], "validation": []}',
            "'/1' is not a file of the data set",
        ),
        ('{"training": [{"image": 1, "label": "2"}], "validation": []}', "1 is not a file of the data set"),
        (
            r'{"training": [{"image": "\u0000a_1", "label": "2"}], "validation": []}',
            "cannot be read.*: no file can have this name",
        ),
        (
            f'{{"training": [{{"image": "{"9" * 5000}", "label": "2"}}], "validation": []}}',
            "at most 9 digits",
        ),
        ("[" * 100_000, "not a Decathlon description.*RecursionError"),
    ],
)
def test_a_bad_description_of_a_decathlon_task_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "dataset.json").write_text(text)
    config = small("data.origin=decathlon", "train_samples=1", "eval_samples=0")
    with pytest.raises(RequestError, match=sentence):
        data.prepare(config, tmp_path / "prepared", tmp_path)


@needs.shared(HIPPOCAMPUS)
def test_real_volumes_are_prepared_with_their_own_split(tmp_path: Path) -> None:
    config = unet3d("unet3d_hippocampus", f"data_dir={tmp_path}")
    data.prepare(config, tmp_path, HIPPOCAMPUS)
    train, val = data.open_volumes(config)
    assert (len(train), len(val)) == (64, 16)
    for index in range(0, 64, 9):
        assert min(train.shapes[index]) >= 32
        assert set(np.unique(train.label(index))) == {0, 1, 2}


def test_organs_are_the_same_everywhere_and_nested(organs_folder: Path) -> None:
    config = unet3d("unet3d_mini")
    manifest = prepared.read_manifest(organs_folder, cases.FORMAT)
    assert cases.content_digest(manifest) == config.data.sha256
    shapes, inside = set(), []
    for number in range(20):
        image, label = organs(number)
        assert image.dtype == np.int16 and set(np.unique(label)) == {0, 1, 2}
        shapes.add(image.shape)
        around = ndimage.binary_dilation(label == 1, iterations=4)
        inside.append((around & (label == 2)).sum() / (label == 2).sum())
    assert len(shapes) > 15 and min(inside) > 0.3 and np.mean(inside) > 0.8


def test_boxes_are_those_of_the_two_largest_components_of_each_class() -> None:
    label = np.zeros((20, 20, 20), dtype=np.uint8)
    label[1:3, 1:3, 1:3] = 1
    label[10:16, 4:8, 4:9] = 1
    label[18:20, 10:14, 1:4] = 1
    label[3, 3, 3] = 1  # touches the first cube by a corner only, so it is a component of its own
    label[5:7, 15:18, 15:19] = 2
    boxes = volumes.foreground_boxes(label, 4)
    assert boxes.tolist() == [
        [[10, 4, 4, 16, 8, 9], [18, 10, 1, 20, 14, 4]],
        [[5, 15, 15, 7, 18, 19], [-1] * 6],
        [[-1] * 6, [-1] * 6],
    ]


def test_crops_around_foreground_hold_the_box_or_lie_inside_it_and_in_the_volume() -> None:
    size, shape = (40, 30, 8), [8, 8, 8]
    boxes = np.full((2, 2, 6), -1, dtype=np.int32)
    boxes[1, 0] = [10, 27, 0, 30, 30, 8]
    rng = np.random.default_rng(0)
    places = {volumes.place_around(boxes, size, shape, rng) for _ in range(300)}
    assert {place[0] for place in places} == set(range(10, 22))
    assert {place[1] for place in places} == {22}
    assert {place[2] for place in places} == {0}


def test_random_crops_start_anywhere_but_at_the_last_place() -> None:
    rng = np.random.default_rng(0)
    places = [volumes.random_place((11, 8, 9), [8, 8, 8], rng) for _ in range(200)]
    assert {place[0] for place in places} == {0, 1, 2}
    assert {place[1] for place in places} == {place[2] for place in places} == {0}


def augmented(count: int, *overrides: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    config = unet3d("unet3d", *(f"data.{text}" for text in overrides))
    image = np.arange(1, 25, dtype=np.float32).reshape(1, 2, 3, 4)
    label = (image > 12).astype(np.uint8)
    return [volumes.augment(image, label, config.data, np.random.default_rng(seed)) for seed in range(count)]


def test_each_axis_is_flipped_in_a_third_of_the_crops_with_its_labels() -> None:
    crops = augmented(600, "brightness=0", "noise=0")
    for corner in (13, 9, 4):  # where the first voxel goes if depth, height or width alone is flipped
        assert any(float(image[0, 0, 0, 0]) == corner for image, _ in crops)
    assert all(torch.equal(image > 12, label.bool()) for image, label in crops)
    flipped = np.mean([float(image[0, 0, 0, 0]) > 12 for image, _ in crops])
    assert flipped == pytest.approx(1 / 3, abs=0.06)


def test_brightness_multiplies_by_1_7_to_2_3_as_in_the_reference() -> None:
    factors = [float(image.sum()) / 300 for image, _ in augmented(1000, "noise=0")]
    changed = [factor for factor in factors if factor != 1.0]
    assert len(changed) / 1000 == pytest.approx(0.1, abs=0.03)
    assert 1.7 <= min(changed) < 1.75 and 2.25 < max(changed) <= 2.3


def test_noise_is_rare_and_at_most_a_tenth_strong() -> None:
    plain = torch.arange(1.0, 25.0).view(1, 2, 3, 4)
    spreads = [float((image - plain).std()) for image, _ in augmented(1000, "flip=0", "brightness=0")]
    changed = [spread for spread in spreads if spread > 0]
    assert len(changed) / 1000 == pytest.approx(0.1, abs=0.03)
    assert max(changed) < 0.15 and 0.03 < np.mean(changed) < 0.07


def training_set(config: Config, seed: int = 1) -> data.TrainingSet:
    hyperparameters = config.hyperparameters
    return data.TrainingSet(
        volumes=data.open_volumes(config)[0],
        data=config.data,
        shape=hyperparameters.training_input_shape,
        oversampling=hyperparameters.oversampling,
        classes=3,
        generators=Generators(seed),
    )


def test_a_crop_follows_the_seed_and_the_position_alone(mini_unet3d: Config) -> None:
    one, other = training_set(mini_unet3d), training_set(mini_unet3d)
    for _ in range(5):
        other[17]
    assert torch.equal(one[3][0], other[3][0]) and torch.equal(one[3][1], other[3][1])
    assert not torch.equal(one[3][0], one[4][0])
    assert not torch.equal(one[3][0], training_set(mini_unet3d, seed=2)[3][0])


def test_loader_processes_change_no_crop_and_share_the_boxes_that_they_find(mini_unet3d: Config) -> None:
    sampler = stream.Sampler(order=data.Positions(), global_batch_size=8, microbatches=1, rank=0, ranks=1)
    batches, known = [], []
    for workers in (0, 2):
        mini_unet3d.data.workers = workers
        crops = training_set(mini_unet3d)
        loaded = iter(loading.loader(crops, mini_unet3d.data, torch.device("cpu"), sampler))
        batches.append([next(loaded) for _ in range(4)])
        known.append(int(crops.known.sum()))
        del loaded
    for alone, helped in zip(*batches, strict=True):
        assert torch.equal(alone[0], helped[0]) and torch.equal(alone[1], helped[1])
    assert 0 < known[0] <= known[1]


def test_oversampled_crops_hold_foreground(mini_unet3d: Config) -> None:
    mini_unet3d.hyperparameters.oversampling = 1.0
    crops = training_set(mini_unet3d)
    assert all(bool(crops[position][1].any()) for position in range(60))


def test_ranks_and_micro_batches_share_the_stream_without_gaps() -> None:
    def first_steps(ranks: int, microbatches: int, first_iteration: int = 0) -> list[list[int]]:
        streams = [
            iter(
                stream.Sampler(
                    order=data.Positions(),
                    global_batch_size=8,
                    microbatches=microbatches,
                    rank=rank,
                    ranks=ranks,
                    first_iteration=first_iteration,
                )
            )
            for rank in range(ranks)
        ]
        return [
            sorted(position for _ in range(microbatches) for stream in streams for position in next(stream))
            for _ in range(2)
        ]

    expected = [list(range(8)), list(range(8, 16))]
    assert first_steps(1, 1) == first_steps(2, 1) == first_steps(4, 2) == expected
    assert first_steps(2, 2, first_iteration=1) == [list(range(8, 16)), list(range(16, 24))]


@pytest.mark.parametrize("ranks", [1, 2, 3, 64])
def test_every_case_is_evaluated_once_over_all_ranks(ranks: int) -> None:
    shapes = [(1, 1, size) for size in np.random.default_rng(0).integers(1, 99, 42)]
    orders = [data.evaluation_order(shapes, rank, ranks) for rank in range(ranks)]
    assert sorted(case for order in orders for batch in order for case in batch) == list(range(42))


def test_permuted_labels_are_those_of_another_volume_in_the_shape_of_the_own(mini_unet3d: Config) -> None:
    plain = data.open_volumes(mini_unet3d)[0]
    mini_unet3d.data.permute_labels = True
    train, val = data.open_volumes(mini_unet3d)
    assert not any(np.array_equal(plain.label(index), train.label(index)) for index in range(len(train)))
    assert val.permuted is None
    assert all(train.label(index).shape == train.image(index).shape for index in range(len(train)))


def test_nifti_without_compression_is_read_too() -> None:
    image, label = (gzip.decompress(nifti(array)) for array in scan(0))
    case = sources.read_pair(("i.nii", image), ("l.nii", label), classes=3)
    assert case.spacing == pytest.approx((1.6, 1.2, 1.2)) and case.image.dtype == np.float32
