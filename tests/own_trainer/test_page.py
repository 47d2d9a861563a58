"""docs/bring-your-own-trainer.md: its code is that of programs which tests run, or says that it is not run."""

import ast
import re
import textwrap

import pytest

from tests.own_trainer import trained

PAGE = (trained.ROOT / "docs" / "bring-your-own-trainer.md").read_text()
BLOCKS = [
    (section.splitlines()[0], block)
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
    for block in re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
]


@pytest.mark.parametrize(("section", "block"), BLOCKS, ids=[section for section, _ in BLOCKS])
def test_code_of_the_page_is_part_of_a_program_that_tests_run_or_says_otherwise(section, block):
    ast.parse(block if not block.startswith(" ") else f"def wrapped():\n{block}")
    folders = (trained.PROGRAMS, trained.ROOT / "examples" / "two_moons")
    programs = [path.read_text() for folder in folders for path in folder.glob("*.py")]
    assert ("not run here" in section) != any(block in program for program in programs), textwrap.shorten(
        block, 99
    )
