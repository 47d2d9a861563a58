"""The table of faults that `bench/studies/mutations.py` applies fits the tree."""

import ast
from collections import Counter
from dataclasses import replace

import pytest

from bench.studies.mutations import MUTATIONS, ROOT, occurrences, refuse


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_fault_is_one_change_of_code_that_is_there(mutation):
    assert occurrences(mutation) == 1
    assert mutation.text != mutation.mutated
    source = (ROOT / mutation.file).read_text()
    mutated = ast.parse(source.replace(mutation.text, mutation.mutated))
    assert ast.dump(mutated) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_the_closest_tests_of_a_fault_exist(mutation):
    for test in mutation.tests:
        file, _, name = test.partition("::")
        source = (ROOT / file).read_text()
        assert f"def {name.partition('[')[0]}" in source


def test_faults_have_different_names_and_texts():
    assert len({one.name for one in MUTATIONS}) == len(MUTATIONS) >= 40
    assert max(Counter((one.file, one.text, one.mutated) for one in MUTATIONS).values()) == 1


def test_a_text_that_is_gone_or_comes_twice_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "code.py").write_text("a = 1\nb = 1\n")
    one = replace(MUTATIONS[0], file="code.py", text="a = 1")
    refuse([one], tmp_path)
    for text, count in (("= 1", 2), ("c = 1", 0)):
        with pytest.raises(
            SystemExit, match=rf"occurs {count} times in code\.py; it has to occur once\. Correct"
        ):
            refuse([replace(one, text=text)], tmp_path)
    with pytest.raises(SystemExit, match="occurs 0 times in gone"):
        refuse([replace(one, file="gone.py")], tmp_path)
