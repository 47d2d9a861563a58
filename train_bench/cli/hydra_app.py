"""Typed request from the words on the command line: the only place that runs Hydra."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import hydra
from hydra._internal.hydra import Hydra
from hydra.conf import HydraConf
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.experimental.callback import Callback
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import (
    BooleanNode,
    DictConfig,
    EnumNode,
    FloatNode,
    IntegerNode,
    OmegaConf,
    StringNode,
    open_dict,
)
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from train_bench.cli import campaign_paths, completion, exit_codes, override_errors, overrides, sweep
from train_bench.cli.arguments import KINDS
from train_bench.cli.as_text import decode, decoded
from train_bench.core import files, shell_words, software
from train_bench.errors import RequestError, UnknownName, known_names
from train_bench.plan import discover, threads
from train_bench.plan.option import with_folder
from train_bench.plan.request import Request
from train_bench.plan.run_config import TRAITS, RunConfig, register

SWEEPING = frozenset({"-m", "--multirun", "hydra.mode=MULTIRUN"})
SIDE_BY_SIDE = frozenset({"hydra/launcher=joblib", "hydra/launcher=submitit_local"})
"""Launchers of Hydra that run jobs of a sweep at the same time on this machine."""

NODES = {IntegerNode: int, FloatNode: float, BooleanNode: bool, StringNode: str}
"""Kinds of values by their nodes."""

EXTRAS = {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"}
"""Hydra's launchers that are packages of their own, and the extra that installs each."""


def with_request(verb: str, arguments: Sequence[str], act: Callable[[Request], int]) -> int:
    """Compose the configuration and `act` on it; returns its exit code. A sweep starts one process per job instead
    and prints the end of each; its exit code is theirs if they agree, else 1.

    Raises `RequestError` with one sentence if Hydra or OmegaConf refuses the words.
    """
    completing = bool(arguments) and arguments[0] in completion.FLAGS
    if not completing:
        overrides.refuse_misplaced(arguments)
    arguments = overrides.resolve(arguments)
    register()
    Plugins.instance().register(OutsideConfigurations)
    sweeping = not SWEEPING.isdisjoint(arguments)
    completing = bool(arguments) and arguments[0] in completion.FLAGS
    if not completing:
        override_errors.refuse_unreadable(arguments, sweeping=sweeping)
    folder, arguments = _sweep_folder(arguments) if sweeping else (Path(), arguments)
    together = (
        sweeping and not SIDE_BY_SIDE.isdisjoint(arguments) and "hydra.launcher.n_jobs=1" not in arguments
    )
    codes: list[int] = []
    refused: list[RequestError] = []  # carried past Hydra, which would print more than the sentence

    composed: list[DictConfig] = []

    def job(config: DictConfig) -> None:
        composed.append(config)
        if sweeping:
            hydra_config = HydraConfig.get()
            words = [*_config_dir(hydra_config), *map(overrides.as_typed, hydra_config.overrides.task)]
            sweep.run_job(verb, folder, hydra_config.job.num, words, together=together)
            return
        try:
            request = _with_other(_request(config))
        except (HydraException, OmegaConfBaseException, RequestError) as error:
            refused.append(error if isinstance(error, RequestError) else _explained(error))
        else:
            codes.append(act(request))

    sys.argv = ["train-bench" if completing else f"train-bench {verb}", *map(overrides.quoted, arguments)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions arrive here as they are
    application = hydra.main(version_base="1.3", config_path=str(discover.CONF), config_name="config")(job)
    if together and not _may_be_elsewhere(arguments):
        exit_codes.say(f"warning: {sweep.DISTURBED}")
    trouble = None
    try:
        with _mode_by_words(arguments):
            application()
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error) from error
    except Exception as error:
        if (
            not composed and not sweeping
        ):  # Hydra has no exception of its own for a name that is a number, and others
            raise RequestError(
                f"{' '.join(arguments)[:200]} makes no configuration; `train-bench list` has the names of benchmarks "
                f"and launchers, and --help-all the other options."
            ) from error
        if not sweeping or not folder.exists():
            raise
        # A worker of Hydra's launcher was killed; its library says so, and gives up.
        trouble = _one_line((str(error) or type(error).__name__).splitlines()[0])
        _wait_for_the_others(folder)
    if sweeping and folder.exists():
        return sweep.conclude(folder, trouble, together=together)
    if refused:
        raise refused[0]
    return max(codes, default=0)


@contextlib.contextmanager
def _mode_by_words(words: Sequence[str]) -> Iterator[None]:
    """While it lasts, Hydra composes once: it composes everything before that to look for `hydra.mode`, which is a
    third of the time that a verb takes to begin, and which only a word sets."""
    # Hydra 1.3 has no public way: it composes twice whatever words say, `hydra.mode=RUN` included, and its function
    # `compose` knows neither its flags (--cfg, --config-dir, --multirun) nor the environment that hydra.job sets.
    composing = getattr(Hydra, "get_mode", None)
    if composing is None or any(overrides.name_of(word) == "hydra.mode" for word in words):
        yield
        return
    Hydra.get_mode = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Hydra.get_mode = composing  # type: ignore[method-assign]


def _may_be_elsewhere(arguments: Sequence[str]) -> bool:
    """True if jobs may run on other machines than this one: then each is reported alone."""
    named = [word.partition("=") for word in arguments]
    queued = {name for name in discover.launchers() if discover.has_queue(name)}
    return any(option == "system" or (option == "launcher" and value in queued) for option, _, value in named)


class OutsideConfigurations(SearchPathPlugin):
    """Search path of Hydra with the configurations of benchmarks with code, and of launchers, that did not come with
    train_bench."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append their folders `conf/` after our own."""
        for folder in discover.conf_of_code():
            search_path.append("train_bench", f"file://{folder}")


class AskedJobs(Callback):
    """Callback of Hydra before a sweep: writes down its jobs, because one that is killed cannot report."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Write the jobs that Hydra's basic sweeper makes of the overrides."""
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        choices = []
        for override in parser.parse_overrides(list(config.hydra.overrides.task)):
            key = override.get_key_element()
            if override.is_discrete_sweep():
                choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            else:
                choices.append([overrides.as_typed(f"{key}={override.get_value_element_as_str()}")])
        sweep.begin(Path(config.hydra.sweep.dir), list(itertools.product(*choices)))


def _sweep_folder(arguments: Sequence[str]) -> tuple[Path, list[str]]:
    """Folder of a sweep, and its words with Hydra's option for it: `output=DIR`, or one under `results/`."""
    outputs = [word for word in arguments if word.partition("=")[0] == "output"]
    try:
        parsed = OverridesParser.create().parse_overrides(outputs)
        if any(override.is_sweep_override() for override in parsed):
            raise RequestError(f"{outputs[0]}: the folder of a sweep is one; its jobs are numbered in it.")
        named = [_named(word, override) for word, override in zip(outputs, parsed, strict=True)]
    except (HydraException, OmegaConfBaseException) as error:
        raise _explained(error) from error
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = named[-1] if named and named[-1] is not None else f"results/{now}_sweep"
    folder = files.resolved(files.own_path(name))
    files.refuse_unwritable(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise RequestError(
            f"The folder {folder} is not empty; choose another for this sweep with output=DIR."
        )
    return folder, [
        *(word for word in arguments if word not in outputs),
        with_folder("hydra.sweep.dir", folder),
    ]


def _named(word: str, override: Override) -> str | None:
    """Folder in a word, which may look like a number; None for null."""
    value = OmegaConf.create({"output": override.value()}).output
    return value if value is None or isinstance(value, str) else word.partition("=")[2]


def _wait_for_the_others(folder: Path) -> None:
    """Wait for all jobs of submitit, which gives up at the first job that dies. Its local jobs are children of this
    process and named by their process ID."""
    names = [path.name.removesuffix("_submitted.pkl") for path in folder.glob(".submitit/*/*_submitted.pkl")]
    of_slurm = any(folder.glob(".submitit/*/*_submission.sh"))
    for name in names:
        if of_slurm:
            import submitit

            submitit.SlurmJob(folder=folder / ".submitit" / name, job_id=name).wait()
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(name), 0)


def _request(config: DictConfig) -> Request:
    hydra_config = HydraConfig.get()
    typed = _typed(config)
    words = tuple(map(overrides.as_typed, hydra_config.overrides.task))
    if typed.resume is not None:
        typed.resume = str(campaign_paths.one(typed.resume))
    return Request(
        config=threads.decided(_with_command(typed, words)),
        variant=str(hydra_config.runtime.choices["benchmark"]),
        overrides=words,
        config_dir=_config_dir(hydra_config),
    )


def _typed(config: DictConfig) -> RunConfig:
    """Configuration as an object of the schema. Raises `RequestError` for an option that was added with `+` and has no
    place there."""
    try:
        return cast(RunConfig, decode(OmegaConf.to_object(config)))
    except AttributeError as error:
        raise (_unplaced(config) or RequestError(f"{_one_line(str(error))}.")) from error


def _unplaced(config: DictConfig, path: str = "") -> RequestError | None:
    """Refusal of a key that the schema does not have; None where there is none."""
    kind = OmegaConf.get_type(config)
    known = [one.name for one in fields(kind)] if is_dataclass(kind) else None
    for name in map(str, config):
        if known is not None and name not in known:
            return _no_option(path + name, known)
        if OmegaConf.is_missing(config, name) or OmegaConf.is_interpolation(config, name):
            continue
        if isinstance(config[name], DictConfig) and (found := _unplaced(config[name], f"{path}{name}.")):
            return found
    return None


def _config_dir(hydra_config: HydraConf) -> tuple[str, ...]:
    sources = hydra_config.runtime.config_sources
    return tuple(f"--config-dir={source.path}" for source in sources if source.provider == "command-line")


def _with_command(config: RunConfig, words: Sequence[str]) -> RunConfig:
    """Configuration with the typed commands, if any."""
    for name in (name for name, traits in TRAITS.items() if traits.program):
        typed = [word.partition("=")[2] for word in words if word.partition("=")[0] == name]
        if typed and getattr(config, name) is not None:
            setattr(config, name, typed[-1])
    return config


def _with_other(request: Request) -> Request:
    """Request with that of `against=`: the same overrides, with those that it replaces."""
    if request.config.against is None:
        return request
    typed = shell_words.split(request.config.against, "against")
    overrides.refuse_misplaced(typed)
    instead = overrides.resolve(typed, request.variant)
    override_errors.refuse_unreadable(instead)
    names = {overrides.name_of(word) for word in instead} | {"against"}
    words = [*(word for word in request.overrides if overrides.name_of(word) not in names), *instead]
    config = hydra.compose("config", overrides=[*map(overrides.quoted, words)], return_hydra_config=True)
    variant = str(config.hydra.runtime.choices["benchmark"])
    with open_dict(config):
        del config["hydra"]
    other = threads.decided(_with_command(_typed(config), words))
    return replace(request, against=Request(config=other, variant=variant, overrides=tuple(words)))


def _explained(error: Exception) -> RequestError:
    cause: BaseException = error
    while cause.__cause__ is not None and isinstance(cause, HydraException):
        cause = cause.__cause__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if group == "hydra/launcher" and name in EXTRAS:
            return RequestError(
                f"hydra/launcher={name} needs a package; install it with {software.install_command(EXTRAS[name])}."
            )
        here = group == "benchmark" and (Path(name) / "conf" / "benchmark").is_dir()
        hint = f" Did you mean benchmark=./{name}, the folder here?" if here else None
        return UnknownName(what=group or "configuration", name=name, known=_choices(error), hint=hint)
    if isinstance(cause, MissingMandatoryValue):
        return RequestError(
            f"{cause.full_key} has no value, and no option can be left out; set it, for example {cause.full_key}=VALUE."
        )
    if isinstance(cause, (InterpolationResolutionError, GrammarParseError)):
        return RequestError(
            f"{cause.full_key}: {_one_line(str(cause.msg or cause).splitlines()[0])}. ${{...}} stands for the value of "
            f"another option; where a name has these signs, put a backslash before the $."
        )
    if isinstance(cause, OmegaConfBaseException) and cause.full_key is not None and cause.msg is not None:
        return _explained_key(cause)
    said = _one_line(str(error))
    if twice := re.match(r"Multiple values for (\w+)\.", said):
        return RequestError(f"{twice[1]} has two values; type {twice[1]}=NAME once, without +.")
    return RequestError(f"{said}.")


def _choices(error: MissingConfigException) -> list[str]:
    return [name for name in error.options or () if not name.endswith("_schema")]


def _explained_key(cause: OmegaConfBaseException) -> RequestError:
    key, said = str(cause.full_key), _one_line(str(cause.msg).splitlines()[0])
    keys = list(cause.parent_node) if OmegaConf.is_dict(cause.parent_node) else []
    leaf = key.rpartition(".")[2]
    if leaf not in keys and "not in" in str(cause.msg):
        return _no_option(key, [str(name) for name in keys if name != "hydra"])
    if isinstance(cause, ValidationError) and leaf in keys:
        node = cause.parent_node._get_node(leaf)
        seen = (
            "is empty" if cause.value in ("", None) else f"is '{_one_line(decoded(str(cause.value)))[:80]}'"
        )
        if cause.value == {}:  # of KEY.x=2
            seen = "is one value, without options below it"
        if isinstance(node, EnumNode):
            return RequestError(f"{key} {seen}; give one of {', '.join(node.enum_type.__members__)}.")
        for of_kind, kind in NODES.items():
            if isinstance(node, of_kind):
                words, example = KINDS[kind]
                return RequestError(f"{key} {seen}; give {words}, for example {key}={example}.")
    return RequestError(f"{key}: {said}.")


def _no_option(key: str, known: Sequence[str]) -> RequestError:
    """Refusal of a key, with the nearest ones that are known beside it."""
    leaf = key.rpartition(".")[2]
    near = difflib.get_close_matches(leaf, known, n=1, cutoff=0.5)
    hint = f" Did you mean '{key[: -len(leaf)]}{near[0]}'?" if near else ""
    return RequestError(
        f"There is no option '{key}'.{hint} {known_names(leaf, sorted(known), 'train-bench run --help-all')}"
    )


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().rstrip(".")
