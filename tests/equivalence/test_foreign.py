"""Models of others beside a reference, in this process."""

from dataclasses import replace

import pytest

from bench.studies.equivalence_pairs import plan_of
from tests.references.several_ranks import FromFile
from train_bench.equivalence import compare, foreign, record, recording
from train_bench.errors import RequestError
from train_bench.run import rank

MODELS = "tests.equivalence.foreign_models"


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """The verdicts on a model, by rung."""
    folder = tmp_path_factory.mktemp("beside")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        job = replace(plan_of("dlrm").jobs[0], folder=folder)
    asked = {"steps": 1, "seeds": 8, "data": "real", "given": True}
    for name, how in (("a", {"whole": True}), ("rounding", {"unit": 2.0**-23}), ("double", {"double": True})):
        task = rank._task(job, rank._config(job))
        parallel = FromFile(folder, rank=0, size=1)
        record.write(record.recorded(job, task, parallel, asked | how), folder / name, 0)
    a = recording.read(folder / "a")
    shapes = {
        name.partition("/")[2]: shape for name, shape in a.facts["shapes"].items() if "parameters/" in name
    }
    (folder / "names").write_text("".join(f"{name} net.{name}\n" for name in shapes) + "- seen\n")

    def rungs(function):
        options = {"model": f"{MODELS}:{function}", "names": folder / "names", "given": folder / "a"}
        notes = foreign.recorded(job, options | {"shapes": shapes, "seeds": 8})
        record.write(notes, folder / function, 0)
        twins = [recording.read(folder / "rounding")]
        b, double = recording.read(folder / function), recording.read(folder / "double")
        found = compare.run_checks(compare.Pair(a=a, b=b, twins=twins, double=double))
        return {rung.name: rung for rung in found}

    return rungs


def test_the_same_layers_under_other_names_are_equal_forwards_and_backwards(beside):
    found = beside("same")
    verdicts = {name: rung.verdict for name, rung in found.items() if rung.verdict != compare.NOT_COMPARED}
    assert verdicts == dict.fromkeys(
        ("parameters", "initial distributions", "forward", "gradients", "statistics"), "equal"
    )
    assert found["gradients"].compared == 16


def test_what_is_off_by_a_thousandth_is_found_where_it_comes_in(beside):
    found = beside("louder")
    assert found["forward"].where == "(model) (DLRM, Squeeze), step 0, batch 0"
    assert found["gradients"].verdict == compare.DIFFERENT


@pytest.mark.parametrize(
    ("function", "said"), [("fewer", "both have to match"), ("none", "cannot be imported")]
)
def test_what_cannot_be_held_against_the_reference_is_refused_in_a_sentence(beside, function, said):
    with pytest.raises(RequestError, match=said):
        beside(function)
