"""Hydra's side of a sweep: types of the config, names of directories, errors in one line."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweep import run as names
from sweep.run import UsageError
from sweep.settings import MpiSettings, SweepSettings

_fresh: set[str] = set()


def schema(cls: type, name: str | None = None) -> type:
    """`cls` as Hydra wants it: mutable, nested dataclasses too, and with a field `name` where it is one of a group."""
    hints = typing.get_type_hints(cls)
    fields: list[Any] = [] if name is None else [("name", str, name)]
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        kind = hints[field.name]
        if dataclasses.is_dataclass(kind):
            fields.append((field.name, schema(typing.cast(type, kind)), dataclasses.MISSING))
            fields[-1] = (field.name, fields[-1][1], dataclasses.field(default_factory=fields[-1][1]))
        else:
            fields.append((field.name, kind, _default(field)))
    return dataclasses.make_dataclass(cls.__name__, fields)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=field.default_factory)
    return dataclasses.field(default="???" if field.default is dataclasses.MISSING else field.default)


def register(run: type, groups: Mapping[str, Mapping[str, type]]) -> None:
    """Tell Hydra the types: `run` is the whole config (`sweep` and `mpi` are added), `groups` its parts by name."""
    store = ConfigStore.instance()
    whole = [
        (field.name, field.type, field) for field in dataclasses.fields(schema(run)) if field.name not in groups
    ]
    parts = [(group, Any, dataclasses.field(default="???")) for group in groups]
    own = [
        ("sweep", SweepSettings, dataclasses.field(default_factory=SweepSettings)),
        ("mpi", MpiSettings, dataclasses.field(default_factory=MpiSettings)),
    ]
    store.store(group="schema", name="run", node=dataclasses.make_dataclass("Config", [*whole, *parts, *own]))
    for group, members in groups.items():
        for name, cls in members.items():
            store.store(group=f"schema/{group}", name=name, node=schema(cls, name))


def sweep_directory(resume: str | None, fresh: str, name: str | None) -> str:
    """The resolver behind hydra.sweep.dir: the directory to resume, or a new one named by the time.

    `resume=last` is the sweep that was started or resumed last below the same root as `fresh`.
    """
    root = Path(fresh).parent.parent
    if resume == "last":
        sweeps = sorted(root.glob(f"*/*/{names.SWEEP}"), key=lambda path: path.stat().st_mtime)
        return str(sweeps[-1].parent) if sweeps else str(root / "last")
    if resume is not None:
        return resume
    directory = f"{fresh}-{name}" if name else fresh
    _fresh.add(directory)
    return directory


def is_fresh(directory: str) -> bool:
    """Whether `sweep_directory` made up this name, so that another would do as well."""
    return directory in _fresh


def register_resolvers() -> None:
    OmegaConf.register_new_resolver("sweep_directory", sweep_directory, use_cache=True, replace=True)


def explain(error: Exception) -> str | None:
    """One line for an error in what the user asked for; None where it is not the user's."""
    if isinstance(error, UsageError):
        return str(error)
    causes = [error]
    while isinstance(cause := causes[-1].__cause__, Exception) and len(causes) < 10:
        causes.append(cause)
    if not isinstance(error, (HydraException, OmegaConfBaseException, OSError)):
        return None
    for cause in causes:
        if isinstance(cause, UsageError):
            return str(cause)
        if isinstance(cause, MissingConfigException) and cause.options is not None and cause.missing_cfg_file:
            group, _, option = cause.missing_cfg_file.rpartition("/")
            options = [o for o in cause.options if not o.startswith("_")]
            return f"{group}={option}: valid is one of {', '.join(options)}{_nearest(option, options)}"
    inner = causes[-1]
    if isinstance(inner, OmegaConfBaseException) and inner.full_key:
        return _explain_omegaconf(inner)
    if isinstance(error, OverrideParseException):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(inner).split())


def _explain_omegaconf(error: OmegaConfBaseException) -> str:
    message = str(error.msg or error).splitlines()[0]
    parent = error.parent_node
    if error.key is not None and parent is not None and "not in" in message:
        known = [str(key) for key in parent]
        return f"{error.full_key}: unknown key; valid here: {', '.join(known)}{_nearest(str(error.key), known)}"
    return f"{error.full_key}: {message}"


def _nearest(word: str, options: list[str]) -> str:
    close = difflib.get_close_matches(word, options, 1)
    return f" (did you mean {close[0]}?)" if close else ""
