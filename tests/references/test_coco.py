"""Annotation files, average precision and scenes of digits, which the detection references share."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from train_bench.core.rank_messages import decode, encode
from train_bench.errors import RequestError
from train_bench.references.parts import archives, coco, coco_2017, coco_ap, digit_scenes

GOOD = {
    "images": [
        {"id": 7, "file_name": "a.png", "height": 20, "width": 30},
        {"id": 3, "file_name": "b.png", "height": 20, "width": 30},
    ],
    "categories": [{"id": 9, "name": "cat"}, {"id": 4, "name": "dog"}],
    "annotations": [
        {"id": 1, "image_id": 3, "category_id": 9, "bbox": [1, 2, 3, 4], "area": 12, "iscrowd": 0},
        {"id": 2, "image_id": 7, "category_id": 4, "bbox": [25, 10, 5, 10], "area": 50, "iscrowd": 1},
    ],
}
SCENES = digit_scenes.Scenes(side=64, train=6, val=4, categories=5, objects=(1, 3), enlarge=(2, 3))


def written(folder: Path, content: dict) -> Path:
    path = folder / "instances.json"
    path.write_text(json.dumps(content))
    return path


def changed(folder: Path, table: str, **fields: object) -> Path:
    content = copy.deepcopy(GOOD)
    content[table][0].update(fields)
    return written(folder, content)


def test_boxes_become_corners_grouped_by_image_and_categories_count_from_one(tmp_path):
    found = coco.read(written(tmp_path, GOOD))
    assert found.boxes.tolist() == [[25, 10, 30, 20], [1, 2, 4, 6]]
    assert found.labels.tolist() == [1, 2]
    assert found.crowd.tolist() == [True, False]
    assert [found.rows(image) for image in (0, 1)] == [slice(0, 1), slice(1, 2)]
    assert found.category_names == ["dog", "cat"]


@pytest.mark.parametrize(
    ("table", "fields", "sentence"),
    [
        ("annotations", {"image_id": 99}, "annotation 1 has image_id 99"),
        ("annotations", {"category_id": 5}, "annotation 1 has category_id 5"),
        ("annotations", {"id": 2}, "the id 2 occurs more than once in 'annotations'"),
        ("annotations", {"bbox": [1, 2, -3, 4]}, r"bbox of annotation 1 \(image 3\) is \[1, 2, -3, 4\]"),
        ("annotations", {"bbox": [1, float("nan"), 3, 4]}, "bbox of annotation 1 .* finite x and y"),
        ("annotations", {"bbox": [1, 2, 3]}, r"bbox of annotation 1 \(image 3\)"),
        ("images", {"id": 3}, "the id 3 occurs more than once in 'images'"),
        ("images", {"height": 0}, "image 7 has a side below 1 pixel"),
        ("images", {"height": 10**6}, "image 7 has a side above 32768 pixels"),
        ("images", {"height": "20"}, "entry 0 of 'images' has height '20'; a whole number"),
        ("images", {"height": 10**400}, "entry 0 of 'images' has height of more than 63 bits"),
        (
            "images",
            {"file_name": "../a.png"},
            r"has file_name '\.\./a\.png'; a name below the folder of images",
        ),
        ("images", {"file_name": "/a.png"}, "has file_name '/a.png'; a name below the folder of images"),
        ("categories", {"id": [9]}, r"entry 0 of 'categories' has id \[9\]; a whole number"),
        ("annotations", {"area": "large"}, "annotation 1 has area 'large'"),
        ("annotations", {"bbox": "1234"}, "entry 0 of 'annotations' has bbox '1234'; a list"),
        ("annotations", {"bbox": [1, 2, "3", 4]}, r"bbox of annotation 1 \(image 3\)"),
        ("annotations", {"bbox": [10**400, 2, 3, 4]}, r"bbox of annotation 1 \(image 3\)"),
    ],
)
def test_what_is_wrong_is_named_with_its_id(tmp_path, table, fields, sentence):
    with pytest.raises(RequestError, match=sentence):
        coco.read(changed(tmp_path, table, **fields))


def test_a_box_slightly_over_the_border_is_clipped_and_counted(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        found = coco.read(changed(tmp_path, "annotations", bbox=[28, 2, 3, 4]))
    assert found.boxes[1].tolist() == [28, 2, 30, 6]
    assert (found.clipped, found.left_out) == (1, 0)
    assert "1 boxes that reach over the border were clipped, 0 of them by more than a pixel;" in caplog.text


def test_boxes_far_over_the_border_are_clipped_and_named_with_the_worst_first(tmp_path, caplog):
    content = copy.deepcopy(GOOD)
    content["annotations"][0]["bbox"] = [28, 2, 9, 4]
    content["annotations"][1]["bbox"] = [-40.5, 10, 45, 5]
    outside = {"id": 3, "image_id": 3, "category_id": 9, "bbox": [50, 50, 5, 5]}
    with caplog.at_level(logging.WARNING):
        found = coco.read(written(tmp_path, {**content, "annotations": [*content["annotations"], outside]}))
    assert found.boxes.tolist() == [[0, 10, 4.5, 15], [28, 2, 30, 6]]
    assert (found.clipped, found.left_out) == (3, 1)
    assert "3 boxes that reach over the border were clipped, 3 of them by more than a pixel" in caplog.text
    assert "(annotation 2 by 40.5, annotation 3 by 35.0, annotation 1 by 7.0)" in caplog.text
    assert "1 without area within their image were left out (annotation 3)" in caplog.text


def test_a_warning_names_five_of_many(tmp_path, caplog):
    entry = {"image_id": 3, "category_id": 9, "bbox": [25, 2, 9, 4]}
    many = [dict(entry, id=number) for number in range(100, 170)]
    with caplog.at_level(logging.WARNING):
        coco.read(written(tmp_path, {**GOOD, "annotations": many}))
    assert "70 of them by more than a pixel (annotation 100 by 4.0" in caplog.text
    assert caplog.text.count("by 4.0") == 5


def test_a_box_without_area_is_left_out_and_said(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        found = coco.read(changed(tmp_path, "annotations", bbox=[3, 2, 0, 4]))
    assert found.left_out == 1
    assert found.with_boxes().tolist() == [0]
    assert "1 without area within their image were left out (annotation 1)" in caplog.text


@pytest.mark.parametrize(
    ("mask", "sentence"),
    [
        ({"size": [20, 31], "counts": [620]}, r"has size \[20, 31\]"),
        ({"size": [20, 30], "counts": [599]}, "add up to 599"),
        ({"size": [20, 30], "counts": "0ib0"}, "add up to 601"),
        ({"size": [20, 30], "counts": "0hb0 "}, "add up to None"),
        ({"size": [20, 30], "counts": "o" * 50}, "add up to None"),
        ({"size": [20, 30], "counts": [601, -1]}, "add up to None"),
        ({"size": [20, 30], "counts": [{}]}, "add up to None"),
        ({"size": None, "counts": [600]}, "has size None"),
        ([[1, 2, 3, 4]], "polygons of three points"),
        ([[1, 2, 3, 4, "5", 6]], "polygons of three points"),
        ([[1, 2, 3, 4, float("nan"), 6]], "polygons of three points"),
        ([[1, 2, 3, 4, 10**9, 6]], "polygons of three points"),
        ([5], "polygons of three points"),
        (None, "has no mask"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(tmp_path, mask, sentence):
    content = copy.deepcopy(GOOD)
    for annotation in content["annotations"]:
        annotation["segmentation"] = mask
    with pytest.raises(RequestError, match=sentence):
        coco.read(written(tmp_path, content), masks=True)


def test_run_lengths_in_letters_are_those_of_pycocotools(tmp_path):
    rng = np.random.default_rng(0)
    for share in (0.0, 0.02, 0.5, 1.0):
        mask = np.asfortranarray((rng.random((200, 300)) < share).astype(np.uint8))
        assert coco._pixels_of_runs(rle.encode(mask)["counts"].decode()) == 200 * 300


def test_annotations_that_are_nested_very_deep_are_refused(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(RequestError, match=r"deep\.json is not JSON: maximum recursion depth"):
        coco.read(tmp_path / "deep.json")


def test_an_image_of_another_size_is_refused_before_it_is_decoded(tmp_path):
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    with pytest.raises(RequestError, match=r"bomb\.png is missing or corrupt: .*decompression bomb"):
        coco.pixels(tmp_path / "bomb.png", np.array([20, 30]))


def test_missing_and_corrupt_files_are_named(tmp_path):
    size = np.array([20, 30])
    with pytest.raises(RequestError, match=r"none\.json cannot be read"):
        coco.read(tmp_path / "none.json")
    with pytest.raises(RequestError, match=r"a\.png is missing or corrupt"):
        coco.pixels(tmp_path / "a.png", size)
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(RequestError, match=r"a\.png is missing or corrupt"):
        coco.pixels(tmp_path / "a.png", size)
    Image.new("RGB", (31, 20)).save(tmp_path / "b.png")
    with pytest.raises(RequestError, match="has 31 x 20 pixels; its annotation file says 30 x 20"):
        coco.pixels(tmp_path / "b.png", size)
    assert coco.missing_images(tmp_path, coco.read(written(tmp_path, GOOD))) == []
    (tmp_path / "a.png").unlink()
    assert coco.missing_images(tmp_path, coco.read(written(tmp_path, GOOD))) == ["a.png"]


def test_an_archive_with_another_digest_is_refused(tmp_path):
    (tmp_path / "val2017.zip").write_bytes(b"something")
    with pytest.raises(RequestError, match=r"has MD5 .*; that of COCO 2017 is 442b8da7"):
        coco.check_archive(tmp_path / "val2017.zip")


def test_crossed_digits_are_joined_by_strokes_in_their_one_ink_and_cut_by_background():
    levels = np.zeros((1, 8, 8), dtype=np.int64)
    levels[0, :, 3:5] = 16
    config = digit_scenes.Scenes(
        side=64, train=1, val=1, categories=1, objects=(1, 1), enlarge=(4, 4), crossed=True
    )
    pixels, [(_, mask)] = digit_scenes.compose(levels, np.zeros(1, int), config, np.random.default_rng(3))
    ink, counts = np.unique(pixels[mask], axis=0, return_counts=True)
    drawn = (pixels == ink[counts.argmax()]).all(axis=-1)
    assert mask.sum() == 8 * 32
    assert (drawn & ~mask).sum() > 0 and (~drawn & mask).sum() > 0


@pytest.fixture(scope="module")
def scenes(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    digit_scenes.write(folder, SCENES)
    return folder


def test_scenes_are_the_same_wherever_they_are_written(scenes, tmp_path):
    assert digit_scenes.write(tmp_path, SCENES) == digit_scenes.write(scenes, SCENES)


def test_scenes_are_annotations_with_masks_that_fill_their_boxes(scenes):
    from pycocotools import mask

    found = coco.read(scenes / "instances_train.json", masks=True)
    assert (found.clipped, found.left_out) == (0, 0)
    assert found.with_boxes().tolist() == list(range(SCENES.train))
    for box, area, runs in zip(found.boxes, found.areas, found.segmentations, strict=True):
        packed = mask.frPyObjects(runs, SCENES.side, SCENES.side)
        x, y, width, height = mask.toBbox(packed)
        assert box.tolist() == [x, y, x + width, y + height]
        assert mask.area(packed) == area
    coco.pixels(scenes / "train" / found.file_names[0], found.sizes[0])


def perfect(scenes: Path) -> tuple[object, list[coco_ap.Detection]]:
    path = scenes / "instances_val.json"
    detections = [
        {key: entry[key] for key in ("image_id", "category_id", "bbox")} | {"score": 0.9}
        for entry in json.loads(path.read_text())["annotations"]
    ]
    return coco_ap.index(path), detections


def test_the_truth_itself_has_precision_one_and_prints_nothing(scenes, capsys):
    truth, detections = perfect(scenes)
    assert coco_ap.average_precision(truth, detections) == pytest.approx(1.0)
    assert capsys.readouterr().out == ""


def test_masks_of_the_truth_have_precision_one(scenes):
    from pycocotools import mask

    truth, detections = perfect(scenes)
    entries = json.loads((scenes / "instances_val.json").read_text())["annotations"]
    for detection, entry in zip(detections, entries, strict=True):
        del detection["bbox"]
        detection["segmentation"] = mask.frPyObjects(entry["segmentation"], SCENES.side, SCENES.side)
    assert coco_ap.average_precision(truth, detections, "segm") == pytest.approx(1.0)


def test_no_detection_and_no_truth_have_precision_zero(scenes):
    truth, detections = perfect(scenes)
    empty = coco_ap.index({"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1}]})
    assert coco_ap.average_precision(truth, []) == 0.0
    assert coco_ap.average_precision(empty, [{**detections[0], "image_id": 1}]) == 0.0


def random_case(seed: int) -> tuple[dict, np.ndarray]:
    """Truth with crowds, empty images and an empty class; detections near it, far from it and of equal
    score, sometimes for images without truth."""
    rng = np.random.default_rng(seed)
    images = [{"id": 10 + number, "height": 100, "width": 120} for number in range(6)]
    annotations, rows = [], []
    for image in images[:5]:
        for _ in range(int(rng.integers(0, 6))):
            box = [*rng.uniform(0, 60, 2), *rng.uniform(5, 40, 2)]
            entry = {"bbox": box, "area": box[2] * box[3], "category_id": int(rng.integers(1, 4))}
            crowd = int(rng.random() < 0.15)
            annotations.append(
                {**entry, "id": len(annotations) + 1, "image_id": image["id"], "iscrowd": crowd}
            )
            for _ in range(int(rng.integers(0, 4))):
                moved = np.array(box) * rng.uniform(0.85, 1.15, 4)
                kind = entry["category_id"] if rng.random() < 0.8 else int(rng.integers(1, 5))
                rows.append([image["id"], *moved, round(rng.random(), 1), kind])
    for image in images:
        rows.append([image["id"], *rng.uniform(0, 60, 2), *rng.uniform(5, 40, 2), rng.random(), 4])
    categories = [{"id": number, "name": str(number)} for number in range(1, 5)]
    return {"images": images, "annotations": annotations, "categories": categories}, np.array(rows)


@pytest.mark.parametrize("seed", range(8))
def test_precision_is_that_of_pycocotools_used_as_its_manual_says(seed, tmp_path, capsys):
    """Nothing is found in image 12, in which most of the cases have objects."""
    content, rows = random_case(seed)
    rows = rows[rows[:, 0] != 12]
    keys = ("image_id", "x", "y", "w", "h", "score", "category_id")
    listed = [
        {
            "image_id": int(row["image_id"]),
            "category_id": int(row["category_id"]),
            "bbox": [row["x"], row["y"], row["w"], row["h"]],
            "score": row["score"],
        }
        for row in (dict(zip(keys, values, strict=True)) for values in rows.tolist())
    ]
    truth_file, found_file = written(tmp_path, content), tmp_path / "found.json"
    found_file.write_text(json.dumps(listed))
    truth = COCO(str(truth_file))
    judged = COCOeval(truth, truth.loadRes(str(found_file)), "bbox")
    judged.evaluate()
    judged.accumulate()
    judged.summarize()
    capsys.readouterr()
    assert 0.0 < judged.stats[0] < 1.0
    for given in (rows, listed):
        assert coco_ap.average_precision(coco_ap.index(content), given) == judged.stats[0]


@pytest.mark.parametrize("count", [2, 7])
def test_ranks_that_match_the_detections_of_their_own_images_find_the_same_precision(count):
    """Of 7 ranks one has no image, another one none with a detection. What they send goes through a message."""
    content, rows = random_case(3)
    rows = rows[rows[:, 0] != 12]
    sent = []

    class Rank:
        def gather_objects(self, value):
            sent.append(decode(encode(value, None), None, "a rank"))
            return sent if len(sent) == count else None

    for rank in range(count)[::-1]:
        mine = rows[rows[:, 0] % count == rank]
        found = coco_ap.average_precision(coco_ap.index(content), mine, ranks=Rank())
        assert (found > 0.0) is (rank == 0)
    assert found == coco_ap.average_precision(coco_ap.index(content), rows)


def test_arrays_of_annotations_come_back_as_they_were(scenes, tmp_path):
    found = coco.read(scenes / "instances_train.json")
    coco.save(found, tmp_path / "train.npz")
    again = coco.load(tmp_path / "train.npz")
    for name in ("image_ids", "sizes", "first", "boxes", "labels", "areas", "crowd", "ids", "category_ids"):
        assert np.array_equal(getattr(found, name), getattr(again, name)), name
    assert (again.file_names, again.category_names) == (found.file_names, found.category_names)
    (tmp_path / "train.npz").write_bytes(b"nothing")
    with pytest.raises(RequestError, match=r"train\.npz cannot be read"):
        coco.load(tmp_path / "train.npz")


def archive(path: Path, members: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path.read_bytes()


@pytest.fixture
def distributed(tmp_path, monkeypatch) -> Path:
    """Small archives in the layout of COCO 2017, whose digests are declared the right ones."""
    source = tmp_path / "source"
    source.mkdir()
    digests = {}
    for name in coco.ARCHIVES:
        stem = name.removesuffix(".zip")
        content = archive(source / name, {f"{stem}/a.jpg": b"a" * 100, f"{stem}/b.jpg": b"b" * 100})
        digests[name] = hashlib.md5(content, usedforsecurity=False).hexdigest()
    monkeypatch.setattr(coco, "ARCHIVES", digests)
    return source


def test_archives_are_unpacked_once_and_go_on_where_they_were(distributed, tmp_path):
    folder = tmp_path / "coco"
    (folder / "train2017").mkdir(parents=True)
    (folder / "train2017" / "a.jpg").write_bytes(b"kept" * 25)
    (folder / "train2017" / "b.jpg").write_bytes(b"cut")
    coco_2017.prepare(folder, distributed)
    assert (folder / "train2017" / "a.jpg").read_bytes() == b"kept" * 25
    assert (folder / "train2017" / "b.jpg").read_bytes() == b"b" * 100
    assert not list(folder.rglob("*.part"))
    coco_2017.prepare(folder, None)


def test_an_archive_that_is_missing_or_changed_is_named(distributed, tmp_path):
    with (distributed / "train2017.zip").open("ab") as file:
        file.write(b"x")
    with pytest.raises(RequestError, match=r"train2017\.zip has MD5 "):
        coco_2017.prepare(tmp_path / "coco", distributed)
    (distributed / "val2017.zip").unlink()
    with pytest.raises(RequestError, match=r"there is no val2017\.zip\. Fetch"):
        coco_2017.prepare(tmp_path / "coco", distributed)


def test_a_member_outside_the_folder_is_refused(tmp_path):
    archive(tmp_path / "bad.zip", {"../outside.jpg": b"x"})
    with pytest.raises(RequestError, match="outside its folder"):
        archives.unpack_zip(tmp_path / "bad.zip", tmp_path / "inside")
    assert not (tmp_path / "outside.jpg").exists()
