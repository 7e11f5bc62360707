"""From words on the command line to compressors, and what is said when that fails: one line."""

from __future__ import annotations

import dataclasses
from typing import Any

import compressors
from compressors.base import Compressor
from compressors.commands import descriptions
from gradsweep.errors import UsageError
from gradsweep.options.hints import did_you_mean, one_of
from gradsweep.options.parameters import InvalidParameter, show


def check_name(name: str, key: str = "name") -> None:
    """Refuse what is not the name of a method, an alias or a preset.

    Args:
        key: what was typed in front of it.

    Raises:
        UsageError: the message has the nearest name, and how to list all.
    """
    known = [*compressors.registry(), *compressors.aliases(), *compressors.presets()]
    if name not in known:
        valid = one_of(known, compressors.LISTED_BY)
        raise UsageError(f"{key}={show(name)}: {did_you_mean(name, known)}valid is {valid}")


def parse(text: str, key: str = "name") -> Compressor:
    """`NAME` or `NAME,option=value,...` as a compressor; `option.key=value` for what is in a mapping.

    Args:
        key: what a wrong name is called by: the option that it was typed for, say.

    Raises:
        UsageError: the name or an option is not known, given twice, or a value is out of range.
    """
    name, *options = text.split(",")
    check_name(name, key)
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


def parse_all(names: list[str]) -> list[Compressor]:
    """Return the compressors that were named; all methods with their defaults where none was."""
    return [parse(name) for name in names or compressors.registry()]


def format_spec(compressor: Compressor) -> str:
    """Return the form that `parse` takes: the name and the options that are not at their default."""
    given = {field.name: getattr(compressor, field.name) for field in dataclasses.fields(compressor)}
    changed = {field.name for field in dataclasses.fields(compressor) if given[field.name] != get_default(field)}
    options = descriptions.format_options({name: value for name, value in given.items() if name in changed})
    return f"{compressor.name},{options}" if options else compressor.name


def get_default(field: dataclasses.Field[Any]) -> Any:
    """Return the default of a dataclass field."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


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
