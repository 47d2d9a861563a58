"""How an option that is a folder is typed."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from train_bench.plan.option import with_folder


@pytest.mark.parametrize(
    "name", ["plain", "a, b", "it's \\", "${b}", "\\${b}", "\\\\${b}", "${b", "a$b", "'${b}'\\'", "=[1]"]
)
def test_a_folder_is_typed_so_that_hydra_reads_its_name(name: str) -> None:
    typed = OverridesParser.create().parse_override(with_folder("output", Path("/tmp") / name))
    assert OmegaConf.create({"output": typed.value()}).output == f"/tmp/{name}"
