"""Hydra's side of a sweep: types of the config, names of directories, what is typed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from gradsweep.hints import did_you_mean
from gradsweep.run_directory import UsageError, bad_value
from gradsweep.sweep_locations import last_sweep, root_of
from sweep.config import hydra_patches, optuna_defaults
from sweep.config.override_grammar import as_typed
from sweep.console import flags
from sweep.settings.mpi import MpiSettings
from sweep.settings.sweep import SweepSettings

LAUNCHER = "hydra/launcher"


_fresh: set[str] = set()
_absent: list[Path] = []  # directories that were not there before Hydra has made them, outermost first
MEMBERS: dict[str, Mapping[str, type]] = {}
"""The members of each group of a config by name, as told to `register`."""

TYPES: list[tuple[str, type]] = []
"""Likewise: the other dataclasses, by the prefix of their keys."""


def schema(cls: type, name: str | None = None) -> type:
    """`cls` as Hydra wants it: mutable, nested dataclasses too, and with a field `name` where it is one of a group."""
    hints = typing.get_type_hints(cls)
    fields: list[Any] = [] if name is None else [("name", str, name)]
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            nested = schema(typing.cast(type, kind))
            fields.append((field.name, nested, dataclasses.field(default_factory=nested)))
        elif typing.get_origin(kind) is dict:
            fields.append((field.name, kind, dataclasses.field(default_factory=_open_mapping)))
        else:
            fields.append((field.name, kind, _default(field)))
    return dataclasses.make_dataclass(cls.__name__, fields)


def _open_mapping() -> DictConfig:
    """Empty; takes new keys, which need no + on the command line. Whoever has the field checks them."""
    return DictConfig({}, flags={"struct": False})


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field(default="???" if field.default is dataclasses.MISSING else field.default)


def register(run: type, groups: Mapping[str, Mapping[str, type]]) -> None:
    """Tell Hydra the types: `run` is the whole config (`sweep` and `mpi` are added), `groups` its parts by name."""
    hydra_patches.patch()
    store = ConfigStore.instance()
    TYPES[:] = [("", run), ("sweep.", SweepSettings)]
    for group, members in groups.items():
        MEMBERS[group] = members
    whole = [(field.name, field.type, field) for field in dataclasses.fields(schema(run)) if field.name not in groups]
    parts = [(group, Any, dataclasses.field(default="???")) for group in groups]
    own = [
        ("sweep", SweepSettings, dataclasses.field(default_factory=SweepSettings)),
        ("mpi", MpiSettings, dataclasses.field(default_factory=MpiSettings)),
    ]
    optuna_defaults.register()
    store.store(group="schema", name="run", node=dataclasses.make_dataclass("Config", [*whole, *parts, *own]))
    for group, members in groups.items():
        there = store.repo["schema"].setdefault(group, {})
        for name, cls in members.items():
            there[f"{name}.yaml"] = _Deferred(f"{name}.yaml", f"schema/{group}", partial(schema, cls, name))


class _Deferred(ConfigNode):
    """A type of Hydra's store that is made when it is first loaded: a command needs ten of a hundred."""

    def __init__(self, name: str, group: str, make: Callable[[], type]) -> None:
        self.name, self.group, self.package, self.provider = name, group, None, None
        self._make = make

    def __getattr__(self, key: str) -> Any:  # only asked for what is not there
        if key != "node":
            raise AttributeError(key)
        self.node = OmegaConf.structured(self._make())
        return self.node

    def __copy__(self) -> ConfigNode:
        return ConfigNode(self.name, self.node, self.group, self.package, self.provider)


def sweep_directory(resume: str | None, fresh: str, name: str | None) -> str:
    """The resolver behind hydra.sweep.dir: the directory to resume, or a new one named by the time.

    `resume=last` is the sweep that was started or resumed last below the same root as `fresh`.
    """
    root = root_of(Path(fresh))
    if resume == "last":
        return str(last_sweep(root) or root / "last")
    if resume is not None:
        return resume
    words = [fresh, *([name] if name else []), *(["probe"] if flags.probe_seconds() is not None else [])]
    directory = "-".join(words)
    _fresh.add(os.path.abspath(directory))
    return directory


def is_fresh(directory: str) -> bool:
    """Whether `sweep_directory` made up this name, so that another would do as well."""
    return os.path.abspath(directory) in _fresh


def note_absent(directory: str) -> None:
    """Remember which of this directory and those above it are not there yet: Hydra makes them before anything runs."""
    path = Path(os.path.abspath(directory))
    _absent[:] = [one for one in (*reversed(path.parents), path) if not one.exists()]


def forget_made() -> None:
    """Remove the directories that `note_absent` has not found, where they are empty."""
    for path in reversed(_absent):
        with contextlib.suppress(FileNotFoundError):  # a refused sweep has removed its own
            path.rmdir()


def for_hydra(words: Sequence[str]) -> list[str]:
    """Arguments as Hydra wants them: ${ceil:${workers},8} and texts like 1e3 in quotes, ++ before free keys."""
    nested = r"^([^=\s]+=)(\$\{[^{}\"']*(?:\$\{[^{}\"']*\}[^{}\"']*)+\})$"
    free = r"^(?=hydra\.launcher\.additional(\.|=\{))"
    return [as_typed(re.sub(free, "++", re.sub(nested, r'\1"\2"', word))) for word in words]


def in_order(words: Sequence[str]) -> list[str]:
    """Arguments with all overrides before all flags where flags stand between them, which Hydra's parser refuses.

    Raises:
        UsageError: a flag that there is not, or a wrong value of one.
    """
    with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
        get_args_parser().parse_args(list(words))
        return list(words)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            overrides = list(get_args_parser().parse_intermixed_args(list(words)).overrides)
    except SystemExit:  # after its usage in several lines
        why = said.getvalue().strip().rpartition("error: ")[2]
        unknown = why.removeprefix("unrecognized arguments: ")
        if unknown != why:
            typed = [word for word in unknown.split() if word.startswith("-")]  # it names what follows them, too
            valid = "key=value, --quiet, --json, --trust, --version and the flags of --hydra-help"
            known = [option for action in get_args_parser()._actions for option in action.option_strings]
            long = [option for option in (*flags.ALL, *known) if option.startswith("--")]
            meant = did_you_mean(typed[0], long) if typed else ""
            why = f"{' '.join(typed) or unknown}: unknown; {meant}valid is {valid}"
        raise UsageError(why) from None
    left = list(words)
    for override in overrides:
        left.remove(override)
    return [*overrides, *left]


def ceil(*given: int) -> int:
    """The resolver `ceil`: how many boxes of the size given second hold so many things, such as nodes for workers."""
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in given)
    if len(given) != 2 or not whole or given[1] < 1:
        raise UsageError(f"${{ceil:{','.join(map(str, given))}}}: valid is two integers, the second from 1 up")
    return -(-given[0] // given[1])


def register_resolvers() -> None:
    OmegaConf.register_new_resolver("sweep_directory", sweep_directory, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("ceil", ceil, replace=True)


def refuse_foreign_launcher(settings: Any) -> None:
    """Refuse launchers that come with Hydra or with other packages, which Hydra lists beside ours.

    Args:
        settings: Hydra's section of a config.

    Raises:
        UsageError: the launcher is none of ours.
    """
    cluster = settings.launcher.get("cluster")
    if cluster is None:
        chosen = settings.runtime.choices.get(LAUNCHER)
        names = GlobalHydra.instance().config_loader().get_group_options(LAUNCHER)
        own = own_launchers(names)
        raise bad_value(LAUNCHER, chosen, "one of " + ", ".join(own), did_you_mean(chosen, own))


def own_launchers(names: Sequence[str]) -> list[str]:
    """Those that are files, in our conf/ or a user's; what packages bring is in Hydra's store of types."""
    foreign = {file.removesuffix(".yaml") for file in ConfigStore.instance().list(LAUNCHER)}
    return [name for name in names if name not in foreign]
