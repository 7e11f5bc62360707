"""Explain errors in overrides and configs in one line each: the key, its value, and the valid values."""

from __future__ import annotations

import dataclasses
import re
import traceback
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import (
    InterpolationKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from gradsweep.disk import disk_errors
from gradsweep.errors import LISTED_BY, UsageError
from gradsweep.options.hints import did_you_mean, one_of
from sweep.config import optuna_defaults
from sweep.config.override_grammar import explain_grammar, explain_override, find_valid_kind
from sweep.config.schema import LAUNCHER, MEMBERS, TYPES, select_own_launchers

_INTERPOLATED = re.compile(r"^\w+ raised while resolving interpolation: ")
_SWEPT = re.compile(r"^Sweeping over Hydra's configuration is not supported : '(.*)'$", re.DOTALL)


def explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return one line for an error in the overrides (`arguments`, as typed); None for an error in the program."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)
    for cause in causes:
        if isinstance(cause, UsageError):
            return str(cause)
        if (line := disk_errors.describe(cause)) is not None:
            return line
        if isinstance(cause, OverrideParseException):
            return explain_grammar(
                cause, arguments, _describe_valid(cause.override.partition("=")[0].lstrip("+~"), arguments)
            )
        if isinstance(cause, MissingConfigException) and cause.options is not None and cause.missing_cfg_file:
            group, _, option = cause.missing_cfg_file.rpartition("/")
            options = select_own_launchers(cause.options) if group == LAUNCHER else cause.options
            line = f"{group}={option}: {did_you_mean(option, options)}valid is {one_of(options, LISTED_BY)}"
            return line + (optuna_defaults.HINT if group.startswith(optuna_defaults.GROUP) else "")
    innermost = causes[-1]
    if isinstance(innermost, OmegaConfBaseException) and innermost.full_key:
        return _explain_key(innermost, arguments)
    is_ours = any(module.split(".")[0] == "sweep" for module in _list_modules(error))
    if isinstance(error, OSError) and error.filename is not None and not is_ours:
        return f"hydra.sweep.dir={error.filename}: {error.strerror}; valid is a directory that can be written"
    if (line := _explain_launcher(innermost, arguments)) is not None:
        return line
    if (line := explain_override(str(innermost), arguments, _describe_valid)) is not None:
        return line
    modules = _list_modules(innermost)
    by_libraries = bool(modules) and modules[-1].split(".")[0] in ("hydra", "omegaconf", "optuna")
    if by_libraries or isinstance(error, (HydraException, OmegaConfBaseException)):
        return _prepend_words(" ".join(str(innermost).split()), arguments)
    return None


def _prepend_words(line: str, arguments: Sequence[str]) -> str:
    """Prepend the overrides that contain what an error quotes from them, if its line names no override's key."""
    words = [word for word in arguments if "=" in word or word.startswith("~")]
    if any(word.partition("=")[0].lstrip("+") in line for word in words):
        return line
    quoted = re.findall(r"'([^']+)'", line)
    named = [word for word in words if any(each in word for each in quoted)] or words
    return f"{' '.join(named)}: {line}" if named else line


def _explain_launcher(error: BaseException, arguments: Sequence[str]) -> str | None:
    """Explain an error in the launcher's options that Hydra reports without key or reason; return None for others."""
    message = str(error).splitlines()[0] if str(error) else ""
    if (swept := _SWEPT.match(str(error))) is not None:
        key, _, value = swept[1].partition("=")
        return f"{key}={value}: valid is one value; with a comma it is in quotes: '{key}=\"{value}\"'"
    if not isinstance(error, InterpolationResolutionError):
        return None
    # Hydra makes the launcher before it composes a point, and its error has no key then
    typed = [word for word in arguments if "${" in word and word.lstrip("+").startswith("hydra.launcher.")]
    named = re.search(r"'(.*)'|type (.*)|(\$\{\w+:)", message)
    if len(typed) > 1 and named is not None:
        typed = [word for word in typed if next(filter(None, named.groups())) in word]
    if len(typed) != 1:
        return None
    key, _, value = typed[0].lstrip("+").partition("=")
    return f"{key}={value.strip(chr(34))}: {_INTERPOLATED.sub('', message)}"


def _explain_key(error: OmegaConfBaseException, arguments: Sequence[str]) -> str:
    key, message = str(error.full_key), str(error.msg or error).splitlines()[0]
    typed = _find_value(key, arguments)
    given = f"{key}={typed}" if typed is not None else key
    if typed is None and (around := _find_enclosing(key, arguments)) is not None:
        above, value = around
        if key.startswith(f"{above}["):  # an item of a list: the list is reported as a whole
            key, given = above, f"{above}={value}"
        else:
            given = f"{above}={value}: {key}"
    is_unknown = "not in" in message and error.parent_node is not None
    if is_unknown and typed is None:
        given = _find_below(key, arguments) or given  # as optim of optim.lr=1
    if is_unknown:
        from sweep.config.unknown_keys import explain_unknown  # loaded for errors only

        return f"{given}: {explain_unknown(key, error.parent_node, given.partition('=')[0])}"
    if f"~{key}" in [word.partition("=")[0] for word in arguments]:
        return f"~{key}: a run has to have it; valid is {_describe_valid(key, arguments) or 'one of its group'}"
    if isinstance(error, (InterpolationKeyError, UnsupportedInterpolationType)):
        return _prepend_words(message, arguments) if given == key else f"{given}: {message}"
    if typed is None and (below := _find_below(key, arguments)) is not None:
        return f"{below}: unknown key; {key} has no keys, and is {_describe_valid(key, arguments) or 'a value'}"
    if (words := _describe_valid(key, arguments, error.parent_node)) is not None:
        return f"{given}: valid is {words}"
    if message.endswith("is not a valid bool (type str)"):
        return f"{given}: valid is true or false"
    if (kind := find_valid_kind(message)) is not None:
        return f"{given}: valid is {kind}"
    return f"{given}: {_INTERPOLATED.sub('', message)}"


def _find_value(key: str, arguments: Sequence[str]) -> str | None:
    """Return the value typed for a key; None if the key was not typed."""
    same = (key, re.sub(r"\[(\d+)\]", r".\1", key))
    values = [word.partition("=")[2] for word in arguments if word.partition("=")[0].lstrip("+") in same]
    return values[-1] if values else None


def _find_enclosing(key: str, arguments: Sequence[str]) -> tuple[str, str] | None:
    """Return the typed key and value that contain a key, such as `batch={size:a}` for batch.size."""
    while key:
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
        if key and (value := _find_value(key, arguments)) is not None and value[:1] in ("[", "{"):
            return key, value
    return None


def _find_below(key: str, arguments: Sequence[str]) -> str | None:
    """Return an override that treats `key` as a section, such as `batch.size.x=3` for batch.size; None without one."""
    words = [word.lstrip("+") for word in arguments]
    return next((word for word in words if word.partition("=")[0].startswith((f"{key}.", f"{key}["))), None)


_KINDS: Mapping[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}


def _describe_valid(key: str, arguments: Sequence[str], parent: Any = None) -> str | None:
    """Describe the values that a key accepts; `parent` is the key's section in the config being composed, if known."""
    types = list(TYPES)
    group = key.partition(".")[0]
    if group in MEMBERS:
        types = [(f"{group}.", cls) for cls in _find_classes(group, arguments, parent)]
    descriptions = {words for prefix, cls in types for words in _find_valid(prefix, cls, key)}
    return descriptions.pop() if len(descriptions) == 1 else None  # several where members of a group differ


def _find_classes(group: str, arguments: Sequence[str], parent: Any) -> list[type]:
    """List the possible classes of a section: the chosen one, or all if the choice is unknown."""
    members = MEMBERS[group]
    name = _find_value(group, arguments)
    if OmegaConf.is_config(parent):
        name = OmegaConf.select(parent._get_root(), f"{group}.name", throw_on_missing=False, default=name)
    return [members[name]] if name is not None and name in members else list(members.values())


def _find_valid(prefix: str, cls: type, key: str) -> Iterator[str]:
    """Yield descriptions of the values that a key accepts, from dataclass fields whose keys begin with `prefix`."""
    if not key.startswith(prefix):
        return
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _find_valid(f"{prefix}{field.name}.", typing.cast(type, hints[field.name]), key)
        if prefix + field.name == key:
            words = getattr(field.metadata.get("valid"), "words", None)
            words = words or _KINDS.get(hints[field.name])
            if words is not None:
                yield words


def _list_modules(error: BaseException) -> list[str]:
    """Return the modules through which an error has passed; the module that raised it is last."""
    return [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
