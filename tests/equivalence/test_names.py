"""Which tensor of one model is which of another."""

import numpy as np
import pytest

from train_bench.equivalence import names
from train_bench.errors import RequestError

OURS = {"layers.0.weight": (4, 3), "layers.1.weight": (4, 3), "joined": (6, 2), "turned": (2, 5)}
THEIRS = {
    "body.0.w": (4, 3),
    "body.1.w": (4, 3),
    "q": (2, 2),
    "k": (2, 2),
    "v": (2, 2),
    "t": (5, 2),
    "count": (),
}
FILE = """
# layer by layer
layers.*.weight body.*.w
joined[1/3] q
joined[2/3] k
joined[3/3] v
turned.T t   # as their framework has it
- count
"""


@pytest.fixture
def read(tmp_path):
    def made(text):
        (tmp_path / "names").write_text(text)
        return names.read(tmp_path / "names", OURS, THEIRS)

    return made


def test_tensors_go_there_and_back_bit_by_bit(read):
    drawn = np.random.default_rng(1)
    ours = {name: drawn.standard_normal(shape) for name, shape in OURS.items()}
    pairs = read(FILE)
    theirs = pairs.to_theirs(ours, THEIRS)
    assert theirs.keys() == THEIRS.keys() - {"count"}
    assert np.array_equal(theirs["k"], ours["joined"][2:4])
    assert np.array_equal(theirs["t"], ours["turned"].T)
    back = pairs.to_ours(theirs, OURS)
    assert all(np.array_equal(back[name], ours[name]) for name in OURS)


def test_what_need_not_be_named_may_be_and_all_else_has_to(read, tmp_path):
    pairs = read(FILE)
    (tmp_path / "names").write_text(FILE)
    more = {**OURS, "table": (3,)}
    assert names.read(tmp_path / "names", more, THEIRS, optional=("table", "joined")) == pairs
    with pytest.raises(RequestError, match="names table of ours not at all"):
        names.read(tmp_path / "names", more, THEIRS, optional=("joined",))


def test_of_ours_only_what_all_parts_are_there_for_comes_back(read):
    assert read(FILE).to_ours({"q": np.zeros((2, 2)), "t": np.zeros((5, 2))}, OURS).keys() == {"turned"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("turned.T t", ""), "names turned of ours not at all"),
        (("joined[3/3] v", "joined[2/3] v"), "names joined of ours 1/3, 2/3, 2/3"),
        (("- count", ""), "names count of theirs not at all"),
        (("turned.T t", "turned t"), "turned is [2, 5] and t is [5, 2]"),
        (("joined[1/3] q", "joined[0/3] q"), "is not a name"),
        (("joined[1/3] q", "joined[1/3] x"), "which the other model does not have"),
        (("turned.T t", "nothing t"), "nothing is not a tensor of the reference"),
        (("layers.*.weight body.*.w", "layers.*.weight body.0.w"), "have different numbers of *"),
        (("- count", "a b c"), "has 3 words"),
    ],
)
def test_names_that_are_not_one_to_one_are_refused_in_a_sentence(read, changed, said):
    with pytest.raises(RequestError) as refused:
        read(FILE.replace(*changed))
    assert said in str(refused.value)
