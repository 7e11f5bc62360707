"""From words on the command line to compressors, and what is said when that fails: one line."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, NoReturn

import compressors
from compressors.base import Compressor
from compressors.parameters import InvalidParameter

_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


class UsageError(ValueError):
    """A command cannot do what was typed; the message is one line."""


class Parser(argparse.ArgumentParser):
    """Answers a wrong command with one line and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def positive(text: str) -> int:
    """An integer from 1 up, with 1_000 and 1e6 for large ones."""
    value = float(text)
    if value < 1 or not value.is_integer():
        raise ValueError(text)
    return int(value)


def several(text: str) -> int:
    """An integer from 30 up: fewer draws say nothing of their own spread."""
    value = positive(text)
    if value < 30:
        raise ValueError(text)
    return value


def probability(text: str) -> float:
    """A number above 0 and below 1."""
    value = float(text)
    if not 0 < value < 1:
        raise ValueError(text)
    return value


positive.__name__ = "positive integer"  # how argparse calls them in "invalid ... value"
probability.__name__ = "probability"


def resolve(name: str) -> str:
    """The method that `name` (or an alias) means.

    Raises:
        UsageError: there is none; the message has the nearest name and all of them.
    """
    known = compressors.registry()
    name = compressors.aliases().get(name, name)
    if name in known:
        return name
    near = difflib.get_close_matches(name, [*known, *compressors.aliases()], 1)
    nearest = f"; the nearest is {near[0]}" if near else ""
    raise UsageError(f"name={name}: valid is one of {', '.join(known)}{nearest}")


def parse(text: str) -> Compressor:
    """`NAME` or `NAME,option=value,...` as a compressor; `option.key=value` for what is in a mapping.

    Raises:
        UsageError: the name or an option is not known, or a value is out of range.
    """
    name, *options = text.split(",")
    values: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"{text}: {option or 'an empty option'} is not of the form option=value")
        option, dot, inner = key.partition(".")
        if dot:
            given = values.get(option)
            values[option] = {**(given if isinstance(given, dict) else {}), inner: _value(value)}
        else:
            values[key] = _value(value)
    try:
        return compressors.build(resolve(name), **values)
    except InvalidParameter as error:
        raise UsageError(f"{name}: {error}") from error


def chosen(names: list[str]) -> list[Compressor]:
    """The compressors that were named; all methods with their defaults where none was."""
    return [parse(name) for name in names or compressors.registry()]


def label(compressor: Compressor) -> str:
    """The form that `parse` takes: the name and the options that are not at their default."""
    options = []
    for field in dataclasses.fields(compressor):
        value = getattr(compressor, field.name)
        if isinstance(value, Mapping):
            options += [f"{field.name}.{key}={written(one)}" for key, one in value.items()]
        elif value != default(field):
            options.append(f"{field.name}={written(value)}")
    return ",".join([compressor.name, *options])


def written(value: object) -> str:
    """A value as it is typed."""
    return next((word for word, meant in _WORDS.items() if value is meant), str(value))


def default(field: dataclasses.Field[Any]) -> Any:
    """The default of a dataclass field."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


def _value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
