"""Parse compressors typed on a command line; a wrong one is a UsageError of one line."""

from __future__ import annotations

import dataclasses
from typing import Any

import compressors
from compressors.base import Compressor
from compressors.commands import descriptions
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean, one_of
from gradsweep.options.parameters import InvalidParameter, show
from gradsweep.targets import import_target


def parse(text: str, key: str = "name") -> Compressor:
    """Return the compressor for a text `NAME` or `NAME,option=value,...`; `option.key=value` sets a key of a mapping.

    NAME may be a class of the user, such as `mine:Chunk` or `./mine.py:Chunk`, which joins the registry.

    Args:
        key: the option for which the text was typed; the error for an unknown name begins with it.

    Raises:
        UsageError: the name or an option is not known, an option is given twice, or a value is out of range.
    """
    name, *options = text.split(",")
    if ":" in name:
        name = _join_class(key, name)
    names = [*compressors.registry(), *compressors.aliases(), *compressors.presets()]
    if name not in names:
        if (broken := compressors.registry().broken.get(name)) is not None:
            raise broken
        valid = one_of(names, compressors.LISTED_BY)
        raise UsageError(f"{key}={show(name)}: {did_you_mean(name, names)}valid is {valid}")
    values: dict[str, Any] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise UsageError(f"{show(text)}: {show(option) or 'an empty option'} is not of the form option=value")
        if key == "name":
            raise UsageError(f"{show(text)}: name is no option; the name stands in front")
        outer, dot, inner = key.partition(".")
        given = values.setdefault(outer, {}) if dot else values
        if not isinstance(given, dict) or (inner or outer) in given:
            raise UsageError(f"{show(text)}: {show(key)} is given more than once")
        given[inner or outer] = parse_constant(value)
    try:
        return compressors.build(name, **values)
    except InvalidParameter as error:
        value = "null" if error.value is None else show(error.value)
        raise UsageError(f"{name}: {show(error.name)}={value}: {error.meant}valid is {error.valid}") from error


def _join_class(key: str, text: str) -> str:
    """Let a class that is not announced join the registry, and return its name.

    Raises:
        UsageError: it cannot be imported, or is no compressor.
    """
    registry, cls = compressors.registry(), import_target(key, text)
    if cls not in registry.joined.values() and cls not in registry.ours.values():
        registry.join(registry.check_class(cls, f"{key}={text}"))
    name: str = cls.name  # type: ignore[attr-defined]
    return name


def parse_all(names: list[str]) -> list[Compressor]:
    """Return the compressors that these texts describe; without texts, all methods with their defaults."""
    return [parse(name) for name in names or compressors.registry()]


def format_spec(compressor: Compressor) -> str:
    """Return the text that `parse` reads for a compressor: its name, and options that differ from the defaults."""
    values = {field.name: getattr(compressor, field.name) for field in dataclasses.fields(compressor)}
    default = type(compressor)()
    options = descriptions.format_options(
        {name: value for name, value in values.items() if value != getattr(default, name)}
    )
    return f"{compressor.name},{options}" if options else compressor.name


def parse_constant(text: str) -> Any:
    """Return the value of a word: true, false, null, a number, or the word itself."""
    if text in descriptions.CONSTANTS:
        return descriptions.CONSTANTS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
