"""Types and resolvers with which Hydra composes configs."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from gradsweep import plugins
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean
from sweep.config import hydra_patches, optuna_defaults
from sweep.settings.mpi import MpiSettings
from sweep.settings.race import RaceSettings
from sweep.settings.sweep import SweepSettings

LAUNCHER = "hydra/launcher"

MEMBERS: dict[str, Mapping[str, type]] = {}
"""The members of each group of a config by name, as told to `register`."""

TYPES: list[tuple[str, type]] = []
"""The other dataclasses of a config with the prefix of their keys, as told to `register`."""


def make_schema(cls: type, name: str | None = None, preset: Mapping[str, Any] | None = None) -> type:
    """Make a mutable dataclass like `cls` and its nested ones, with a field `name` if it is a member of a group.

    Args:
        preset: defaults of fields in place of the class's own.
    """
    hints = typing.get_type_hints(cls)
    fields: list[Any] = [] if name is None else [("name", str, name)]
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            nested = make_schema(typing.cast(type, kind))
            fields.append((field.name, nested, dataclasses.field(default_factory=nested)))
        elif typing.get_origin(kind) is dict:
            # New keys need no + on the command line; the dataclass checks them later.
            open_mapping = partial(DictConfig, {}, flags={"struct": False})
            fields.append((field.name, kind, dataclasses.field(default_factory=open_mapping)))
        elif field.name in (preset or {}):
            fields.append((field.name, kind, dataclasses.field(default=preset[field.name])))  # type: ignore[index]
        else:
            fields.append((field.name, kind, _make_default(field)))
    return dataclasses.make_dataclass(cls.__name__, fields)


def _make_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field(default="???" if field.default is dataclasses.MISSING else field.default)


def register(run: type, groups: Mapping[str, Mapping[str, type]], folders: Sequence[Path] = ()) -> None:
    """Register with Hydra the types of the whole config: `run` with `sweep` and `mpi`, and the members of `groups`.

    A class of a plug-in without a YAML file becomes a choice of its group with the defaults of its fields.

    Args:
        folders: of further YAML files, which the command names (hydra.searchpath).
    """
    for speed_up in hydra_patches.SPEEDUPS:
        speed_up()
    store = ConfigStore.instance()
    TYPES[:] = [("", run), ("sweep.", SweepSettings), ("race.", RaceSettings), ("mpi.", MpiSettings)]
    MEMBERS.update(groups)
    whole = [
        (field.name, field.type, field) for field in dataclasses.fields(make_schema(run)) if field.name not in groups
    ]
    parts = [(group, Any, dataclasses.field(default="???")) for group in groups]
    own = [
        ("sweep", SweepSettings, dataclasses.field(default_factory=SweepSettings)),
        ("mpi", MpiSettings, dataclasses.field(default_factory=MpiSettings)),
        ("race", RaceSettings, dataclasses.field(default_factory=RaceSettings)),
    ]
    optuna_defaults.register_defaults()
    config = OmegaConf.structured(dataclasses.make_dataclass("Config", [*whole, *parts, *own]))
    OmegaConf.set_struct(config, False)  # a file may have groups of a script; `parse` refuses other new ones
    store.store(group="schema", name="run", node=config)
    for group, members in groups.items():
        for name, cls in members.items():
            hydra_patches.store_on_demand(f"schema/{group}", name, partial(make_schema, cls, name))
        if isinstance(members, plugins.Members):
            _register_choices(group, members.joined, folders)
            for name, error in members.broken.items():
                if not members.is_ours(name):
                    hydra_patches.store_on_demand(f"schema/{group}", name, partial(_refuse, error))
                    hydra_patches.store_on_demand(group, name, partial(_refuse, error))


def _refuse(error: UsageError) -> type:
    raise error


def _register_choices(group: str, classes: Mapping[str, type], folders: Sequence[Path]) -> None:
    """Register the classes of plug-ins with their aliases and presets as choices of a group, where no file does."""
    for name, cls in classes.items():
        presets: dict[str, Any] = {name: {}, **dict.fromkeys(getattr(cls, "aliases", ()), {})}
        presets.update(getattr(cls, "presets", {}))
        for choice, preset in presets.items():
            if plugins.find_yaml(group, choice, folders) is None:
                hydra_patches.store_on_demand(group, choice, partial(make_schema, cls, name, preset))


def ceil(*given: int) -> int:
    """Return a / b rounded up, such as the nodes for workers; this is the resolver `ceil`."""
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in given)
    if len(given) != 2 or not whole or given[1] < 1:
        raise UsageError(f"${{ceil:{','.join(map(str, given))}}}: valid is two integers, the second from 1 up")
    return -(-given[0] // given[1])


def register_resolvers(choose_directory: Callable[[str | None, str, str | None], str]) -> None:
    """Register the resolvers that conf/ uses; `choose_directory` resolves hydra.sweep.dir."""
    OmegaConf.register_new_resolver("sweep_directory", choose_directory, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("ceil", ceil, replace=True)


def refuse_foreign_launcher(settings: Any) -> None:
    """Refuse a launcher of Hydra or of another package; `settings` is Hydra's section of a config.

    Raises:
        UsageError: the launcher is not one of ours.
    """
    cluster = settings.launcher.get("cluster")
    if cluster is None:
        chosen = settings.runtime.choices.get(LAUNCHER)
        names = GlobalHydra.instance().config_loader().get_group_options(LAUNCHER)
        own = select_own_launchers(names)
        raise bad_value(LAUNCHER, chosen, "one of " + ", ".join(own), did_you_mean(chosen, own))


def select_own_launchers(names: Sequence[str]) -> list[str]:
    """Return the launchers that come from files, ours or a user's; those of other packages are registered types."""
    foreign = {file.removesuffix(".yaml") for file in ConfigStore.instance().list(LAUNCHER)}
    return [name for name in names if name not in foreign]
