"""A recording is a folder that anybody may have damaged: it is read whole, or refused in a sentence."""

import io
import json
import zipfile

import numpy as np
import pytest

from train_bench.cli.commands import equivalent
from train_bench.equivalence import recording
from train_bench.errors import LogError, RequestError

FACTS = {
    "ranks": 1,
    "losses": [2.0, None],
    "shapes": {},
    "operators": {},
    "trained": ["weight"],
    "quality": {"top1": 0.5},
}
ARRAYS = {
    f"{name}/weight": np.ones(3)
    for name in (
        *("parameters", "initial", "forward/0.0", "gradients/0", "step/0"),
        *("evaluation/start", "evaluation/last"),
    )
}
ORDER = {"order": np.arange(4), "order_lengths": np.array([2, 2])}


def written(folder, facts=FACTS, arrays=ARRAYS):
    folder.mkdir()
    (folder / "rank_0.json").write_text(json.dumps(facts))
    np.savez(folder / "rank_0.npz", **arrays)
    return folder


def test_a_recording_is_read(tmp_path):
    assert set(recording.read(written(tmp_path / "a")).arrays) == set(ARRAYS)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", bytes(100_000), None])
def test_arrays_that_are_damaged_are_refused(tmp_path, content):
    path = written(tmp_path / "a") / "rank_0.npz"
    path.write_bytes(path.read_bytes()[:700] if content is None else content)
    with pytest.raises(LogError, match=r"[Rr]ecord it again"):
        recording.read(tmp_path / "a")


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": "many"},
        {"ranks": 0},
        {"ranks": 10**9},
        {"ranks": None},
        {"losses": 3},
        {"losses": ["x"]},
        {"losses": [[1.0]]},
        {"shapes": [1]},
        {"shapes": {"gradients/9/none": [1]}},
        {"operators": 3},
        {"quality": [1]},
    ],
)
def test_facts_of_another_type_are_refused(tmp_path, change):
    with pytest.raises(LogError, match="record it again"):
        recording.read(written(tmp_path / "a", FACTS | change))


def test_arrays_of_text_are_refused(tmp_path):
    with pytest.raises(LogError, match="does not hold numbers"):
        recording.read(written(tmp_path / "a", arrays=ARRAYS | {"forward/0/weight": np.array(["a"])}))


def test_arrays_that_name_more_bytes_than_there_are_take_no_memory(tmp_path):
    path = written(tmp_path / "a") / "rank_0.npz"
    header = io.BytesIO()
    claim = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, claim)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("forward/1/weight.npy", header.getvalue() + bytes(64))
    with pytest.raises(LogError, match="Record it again"):
        recording.read(tmp_path / "a")


def test_arrays_that_are_inflated_beyond_the_memory_are_refused(tmp_path, monkeypatch):
    folder = written(tmp_path / "a")
    monkeypatch.setattr(recording, "MEMORY_BYTES", 100)
    with pytest.raises(LogError, match="larger than the memory of this host"):
        recording.read(folder)


@pytest.mark.parametrize("rung", ["forward", "gradients", "step", "evaluation"])
def test_a_recording_that_lacks_what_the_other_has_is_no_equal_one(tmp_path, capsys, rung):
    less = {name: array for name, array in ARRAYS.items() if not name.startswith(rung)}
    a, b = written(tmp_path / "a"), written(tmp_path / "b", arrays=less)
    with pytest.raises(LogError, match=f"has no arrays of {rung}, and that of A has; record it again"):
        equivalent.main([str(a), str(b)])


@pytest.mark.parametrize(
    ("facts", "arrays", "missing"),
    [
        ({"quality": {}}, {}, "quality top1"),
        ({"quality": {"top5": 0.5}}, {}, "quality top1"),
        ({"losses": [2.0]}, {}, "losses of 2 steps"),
        ({}, {"evaluation/start/weight": None}, "evaluation at start"),
    ],
)
def test_a_recording_that_lacks_a_part_of_the_other_is_no_equal_one(tmp_path, facts, arrays, missing):
    kept = {name: array for name, array in (ARRAYS | arrays).items() if array is not None}
    a, b = written(tmp_path / "a"), written(tmp_path / "b", FACTS | facts, kept)
    with pytest.raises(LogError, match=f"b has no {missing}, and that of A has; record it again"):
        equivalent.main([str(a), str(b)])


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.ones(0), "The recording of A has no values of parameters"),
        (np.full(3, np.inf), "values of parameters that are not finite"),
        (np.full(3, np.nan), "values of parameters that are not finite"),
    ],
)
def test_recordings_without_finite_values_are_no_equal_ones(tmp_path, array, sentence):
    arrays = dict.fromkeys(ARRAYS, array)
    a, b = (written(tmp_path / side, arrays=arrays) for side in "ab")
    with pytest.raises(LogError, match=sentence):
        equivalent.main([str(a), str(b)])


def test_a_recording_is_not_compared_with_itself(tmp_path):
    folder = written(tmp_path / "a")
    (tmp_path / "b").symlink_to(folder)
    with pytest.raises(RequestError, match="is given twice"):
        equivalent.main([str(folder), str(tmp_path / "b")])


@pytest.mark.parametrize("lengths", [[-5, 9], [2**62, 2**62], [2, 1]])
def test_an_order_that_is_cut_otherwise_than_it_says_is_refused(tmp_path, lengths):
    cut = ORDER | {"order_lengths": np.array(lengths)}
    with pytest.raises(LogError, match="order is not cut as order_lengths says"):
        recording.read(written(tmp_path / "b", arrays=ARRAYS | cut))


def test_a_recording_without_losses_is_refused(tmp_path):
    a, b = (written(tmp_path / side, FACTS | {"losses": []}) for side in "ab")
    with pytest.raises(LogError, match="The recording of A has no losses"):
        equivalent.main([str(a), str(b)])


def test_equal_recordings_are_equal(tmp_path, capsys):
    a, b = (written(tmp_path / side, arrays=ARRAYS | ORDER) for side in "ab")
    assert equivalent.main([str(a), str(b)]) == 0
    assert "EQUAL" in capsys.readouterr().out
