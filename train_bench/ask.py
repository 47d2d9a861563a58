"""From words on the command line to a typed request: the only place that runs Hydra."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from train_bench.errors import RequestError, UnknownName
from train_bench.plan import discover
from train_bench.plan.config import RunConfig, register


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked: the configuration, the name of the benchmark's yaml, and the overrides as typed."""

    config: RunConfig
    variant: str
    overrides: tuple[str, ...]


def with_request(verb: str, words: Sequence[str], act: Callable[[Request], int]) -> int:
    """Compose the configuration and `act` on it, once, or once per job of a sweep. Returns the highest
    exit code.

    Raises `RequestError` with one sentence for what Hydra or OmegaConf refuse.
    """
    register()
    codes: list[int] = []
    refused: list[RequestError] = []

    def job(config: DictConfig) -> None:
        try:
            request = _request(config)
        except (OmegaConfBaseException, RequestError) as error:
            refused.append(error if isinstance(error, RequestError) else _explained(error))
        else:
            codes.append(act(request))

    sys.argv = [f"train-bench {verb}", *words]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions arrive here as they are
    application = hydra.main(version_base="1.3", config_path=str(discover.CONF), config_name="config")(job)
    try:
        application()
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error) from error
    if refused:
        raise refused[0]
    return max(codes, default=0)


def _request(config: DictConfig) -> Request:
    hydra_config = HydraConfig.get()
    try:
        asked = cast(RunConfig, OmegaConf.to_object(config))
    except AttributeError as error:  # an option that was added with `+` has no place in the schema
        name = str(error).rpartition("attribute ")[2]
        raise RequestError(f"There is no option {name}; leave out what adds it.") from error
    return Request(
        config=asked,
        variant=str(hydra_config.runtime.choices["benchmark"]),
        overrides=tuple(hydra_config.overrides.task),
    )


def _explained(error: Exception) -> RequestError:
    cause: BaseException = error
    while cause.__cause__ is not None and isinstance(cause, HydraException):
        cause = cause.__cause__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return UnknownName(what=group or "configuration", name=name, known=_choices(error))
    if isinstance(cause, MissingMandatoryValue):
        return RequestError(f"{cause.full_key} has no value; set it, for example {cause.full_key}=VALUE.")
    if isinstance(cause, OmegaConfBaseException) and cause.full_key is not None and cause.msg is not None:
        return _explained_key(cause)
    return RequestError(_one_line(str(error)))


def _choices(error: MissingConfigException) -> list[str]:
    return [name for name in error.options or () if not name.endswith("_schema")]


def _explained_key(cause: OmegaConfBaseException) -> RequestError:
    key = str(cause.full_key)
    keys = list(cause.parent_node) if OmegaConf.is_dict(cause.parent_node) else []
    leaf = key.rpartition(".")[2]
    if leaf not in keys and "not in" in str(cause.msg):
        near = difflib.get_close_matches(leaf, [str(name) for name in keys], n=1, cutoff=0.5)
        hint = f" Did you mean '{key[: -len(leaf)]}{near[0]}'?" if near else ""
        known = ", ".join(str(name) for name in keys)
        return RequestError(f"There is no option '{key}'.{hint} Known there: {known}.")
    return RequestError(f"{key}: {_one_line(str(cause.msg).splitlines()[0])}.")


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(".")
