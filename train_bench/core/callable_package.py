"""Packages of train_bench that can be called as the function of their name in `train_bench.api`.

`train_bench.run(...)` has to work whatever was imported before: as soon as anything imports the package
`train_bench.run`, Python binds it to that name, in place of any function.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package with a function of its name in `train_bench.api`, which is loaded when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function: `help(train_bench.api)` has its arguments."""
        function = getattr(importlib.import_module("train_bench.api"), self.__name__.rpartition(".")[2])
        return function(*arguments, **options)
