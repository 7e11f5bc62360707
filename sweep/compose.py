"""Hydra's side of a sweep: types of the config, names of directories, errors in one line."""

from __future__ import annotations

import dataclasses
import difflib
import os
import traceback
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sweep import run as names
from sweep.run import UsageError
from sweep.settings import MpiSettings, SweepSettings

_fresh: set[str] = set()
_absent: list[Path] = []  # directories that were not there before Hydra has made them, outermost first
_valid: dict[str, set[str]] = {}  # what a key accepts, in words; several where members of a group differ


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
    _share_config_store()
    store = ConfigStore.instance()
    _note_valid("", run)
    for group, members in groups.items():
        for cls in members.values():
            _note_valid(f"{group}.", cls)
    whole = [(field.name, field.type, field) for field in dataclasses.fields(schema(run)) if field.name not in groups]
    parts = [(group, Any, dataclasses.field(default="???")) for group in groups]
    own = [
        ("sweep", SweepSettings, dataclasses.field(default_factory=SweepSettings)),
        ("mpi", MpiSettings, dataclasses.field(default_factory=MpiSettings)),
    ]
    store.store(group="schema", name="run", node=dataclasses.make_dataclass("Config", [*whole, *parts, *own]))
    for group, members in groups.items():
        for name, cls in members.items():
            store.store(group=f"schema/{group}", name=name, node=schema(cls, name))


def _share_config_store() -> None:
    """Keep Hydra from copying all registered types for every look at a group and every point of a grid.

    It copies its repository in order not to change it while it resolves the search path; the store of
    types in it is a singleton, only ever read then, and hands out copies itself. More than half of
    the time of `--help` and of composing a point goes into that copy.
    """
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]


def _note_valid(prefix: str, cls: type) -> None:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            _note_valid(f"{prefix}{field.name}.", typing.cast(type, hints[field.name]))
        words = getattr(field.metadata.get("valid"), "words", None)
        if words is None and hints[field.name] is bool:
            words = "true or false"
        if words is not None:
            _valid.setdefault(prefix + field.name, set()).add(words)


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
        path.rmdir()


def register_resolvers() -> None:
    OmegaConf.register_new_resolver("sweep_directory", sweep_directory, use_cache=True, replace=True)


def explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """One line for an error in what the user asked for; None where it is a fault of the program.

    Args:
        error: what composing the config, or checking it, has raised.
        arguments: the overrides as typed, from which the line takes the value of a key.
    """
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, UsageError):
            return str(cause)
        if isinstance(cause, MissingConfigException) and cause.options is not None and cause.missing_cfg_file:
            group, _, option = cause.missing_cfg_file.rpartition("/")
            return f"{group}={option}: valid is one of {', '.join(cause.options)}{_nearest(option, cause.options)}"
    innermost = causes[-1]
    if isinstance(innermost, OmegaConfBaseException) and innermost.full_key:
        return _explain_key(innermost, arguments)
    if isinstance(error, OSError) and error.filename is not None and not _passed_through(error, "sweep"):
        return f"hydra.sweep.dir={error.filename}: {error.strerror}; valid is a directory that can be written"
    if isinstance(error, (HydraException, OmegaConfBaseException)) or _raised_in(innermost, ("hydra", "omegaconf")):
        return " ".join(str(innermost).split())
    return None


def _explain_key(error: OmegaConfBaseException, arguments: Sequence[str]) -> str:
    key, message = error.full_key, str(error.msg or error).splitlines()[0]
    typed = [word.partition("=")[2] for word in arguments if word.partition("=")[0].lstrip("+") == key]
    given = f"{key}={typed[-1]}" if typed else str(key)
    if "not in" in message and error.parent_node is not None:
        known = [str(name) for name in error.parent_node if name != "hydra"]
        return f"{given}: unknown key; valid is one of {', '.join(known)}{_nearest(str(error.key), known)}"
    if len(_valid.get(str(key), ())) == 1:
        return f"{given}: valid is {''.join(_valid[str(key)])}"
    return f"{given}: {message}"


def _passed_through(error: BaseException, package: str) -> bool:
    return any(name.split(".")[0] == package for name in _modules(error))


def _raised_in(error: BaseException, packages: tuple[str, ...]) -> bool:
    modules = _modules(error)
    return bool(modules) and modules[-1].split(".")[0] in packages


def _modules(error: BaseException) -> list[str]:
    return [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]


def _nearest(word: str, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, options, 3)
    alike = [difflib.SequenceMatcher(None, option, word).ratio() for option in close]
    best = [option for option, ratio in zip(close, alike, strict=True) if ratio == max(alike)]
    return f" (did you mean {' or '.join(best)}?)" if best else ""
