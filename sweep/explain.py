"""Errors in what a user asked Hydra for, in one line each: key, value, what is valid."""

from __future__ import annotations

import dataclasses
import re
import traceback
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError, OmegaConfBaseException

from sweep import disk, search
from sweep.compose import LAUNCHER, TYPES, own_launchers
from sweep.grammar import explain_grammar, valid_kind
from sweep.run import UsageError
from sweep.text import did_you_mean

_INTERPOLATED = re.compile(r"^\w+ raised while resolving interpolation: ")
_SWEPT = re.compile(r"^Sweeping over Hydra's configuration is not supported : '(.*)'$", re.DOTALL)


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
        if (line := disk.line(cause)) is not None:
            return line
        if isinstance(cause, OverrideParseException):
            return explain_grammar(cause)
        if isinstance(cause, MissingConfigException) and cause.options is not None and cause.missing_cfg_file:
            group, _, option = cause.missing_cfg_file.rpartition("/")
            options = own_launchers(cause.options) if group == LAUNCHER else cause.options
            line = f"{group}={option}: valid is one of {', '.join(options)}{did_you_mean(option, options)}"
            return line + (search.HINT if group.startswith(search.GROUP) else "")
    innermost = causes[-1]
    if isinstance(innermost, OmegaConfBaseException) and innermost.full_key:
        return _explain_key(innermost, arguments)
    if isinstance(error, OSError) and error.filename is not None and not _passed_through(error, "sweep"):
        return f"hydra.sweep.dir={error.filename}: {error.strerror}; valid is a directory that can be written"
    if (of_launcher := _explain_launcher(innermost, arguments)) is not None:
        return of_launcher
    theirs = ("hydra", "omegaconf", "optuna")
    if isinstance(error, (HydraException, OmegaConfBaseException)) or _raised_in(innermost, theirs):
        return " ".join(str(innermost).split())
    return None


def _explain_launcher(error: BaseException, arguments: Sequence[str]) -> str | None:
    """What Hydra has against an option of the launcher, where it does not say which or why; else None."""
    message = str(error).splitlines()[0] if str(error) else ""
    if (swept := _SWEPT.match(str(error))) is not None:
        key, _, value = swept[1].partition("=")
        return f"{key}={value}: valid is one value; with a comma it is in quotes: '{key}=\"{value}\"'"
    if not isinstance(error, InterpolationResolutionError):
        return None
    # Hydra makes the launcher before any point, and then the error does not know its key
    typed = [word for word in arguments if "${" in word and word.lstrip("+").startswith("hydra.launcher.")]
    named = re.search(r"'(.*)'|type (.*)|(\$\{\w+:)", message)
    if len(typed) > 1 and named is not None:
        typed = [word for word in typed if next(filter(None, named.groups())) in word]
    if len(typed) != 1:
        return None
    key, _, value = typed[0].lstrip("+").partition("=")
    return f"{key}={value.strip(chr(34))}: {_INTERPOLATED.sub('', message)}"


def _explain_key(error: OmegaConfBaseException, arguments: Sequence[str]) -> str:
    key, message = error.full_key, str(error.msg or error).splitlines()[0]
    typed = [word.partition("=")[2] for word in arguments if word.partition("=")[0].lstrip("+") == key]
    given = f"{key}={typed[-1]}" if typed else str(key)
    if "not in" in message and error.parent_node is not None:
        known = [str(name) for name in error.parent_node if name != "hydra"]
        valid_keys = f"one of {', '.join(known)}" if known else ""
        if OmegaConf.get_type(error.parent_node) is dict:  # no type says which keys it has
            valid_keys += (", or " if known else "") + "a new one with + before it"
        return f"{given}: unknown key; valid is {valid_keys}{did_you_mean(str(error.key), known)}"
    valid = {words for prefix, cls in TYPES for words in _valid(prefix, cls, str(key))}
    if len(valid) == 1:  # several where members of a group differ
        return f"{given}: valid is {''.join(valid)}"
    if message.endswith("is not a valid bool (type str)"):
        return f"{given}: valid is true or false"
    if (kind := valid_kind(message)) is not None:
        return f"{given}: valid is {kind}"
    return f"{given}: {_INTERPOLATED.sub('', message)}"


_KINDS: Mapping[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def _valid(prefix: str, cls: type, key: str) -> Iterator[str]:
    """What a key accepts, in words, by the fields of a dataclass whose keys begin with `prefix`."""
    if not key.startswith(prefix):
        return
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _valid(f"{prefix}{field.name}.", typing.cast(type, hints[field.name]), key)
        if prefix + field.name == key:
            words = getattr(field.metadata.get("valid"), "words", None)
            words = words or _KINDS.get(hints[field.name])
            if words is not None:
                yield words


def _passed_through(error: BaseException, package: str) -> bool:
    return any(name.split(".")[0] == package for name in _modules(error))


def _raised_in(error: BaseException, packages: tuple[str, ...]) -> bool:
    modules = _modules(error)
    return bool(modules) and modules[-1].split(".")[0] in packages


def _modules(error: BaseException) -> list[str]:
    return [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
