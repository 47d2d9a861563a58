"""A rule file is read strictly: what the official reader would lose in silence is an error."""

import pytest

from train_bench.rules import rulefile, ruleset
from train_bench.rules.rulefile import RuleFileError

KEY = "- KEY:\n    NAME: seed\n"

DEFECTS = {
    "a field given twice": KEY + "    CHECK: 'True'\n    CHECK: 'False'\n",
    "an unknown field": KEY + "    CHEKC: 'True'\n",
    "an unknown requirement": KEY + "    REQ: AT_MOST_ONE\n",
    "a requirement that only begins well": KEY + "    REQ: EXACTLY_ONE_OR_TWO\n",
    "a key with two records": KEY + KEY,
    "two BEGIN blocks": "- BEGIN:\n    CODE: pass\n- BEGIN:\n    CODE: pass\n",
    "two END blocks": "- END:\n    CHECK: 'True'\n- END:\n    CHECK: 'True'\n",
    "an unknown record": "- MIDDLE:\n    CODE: pass\n",
    "an unknown field of END": "- END:\n    POST: pass\n",
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_a_rule_file_is_refused(defect, tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(DEFECTS[defect])
    with pytest.raises(RuleFileError):
        rulefile.read(path)


def test_an_empty_rule_file_demands_nothing(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("# nothing\n")
    assert not rulefile.read(path).keys


def test_the_official_file_that_loses_a_check_is_refused():
    folder = ruleset.package_folder("compliance_checker") / "training_1.1.0"
    with pytest.raises(RuleFileError, match="CHECK"):
        rulefile.read(folder / "closed_ssd.yaml")


def test_every_other_rule_file_of_the_round_is_read():
    folder = ruleset.package_folder("compliance_checker") / "training_1.1.0"
    for path in folder.glob("*.yaml"):
        if path.name != "closed_ssd.yaml":
            rulefile.read(path)
