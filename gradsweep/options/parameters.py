"""Hyper-parameters as dataclass fields that carry their valid range.

One place for the type, the default, the range and the text of the error, used by the
compressors and by every other configurable part of a run. Nothing heavy is imported here:
configs are composed, completed by the shell and checked without loading torch.

    @dataclass(frozen=True)
    class QSGD(Compressor):
        levels: int = integer(7, low=1, high=32767)

    QSGD(levels=0)  # InvalidParameter: levels=0: valid is an integer from 1 to 32767
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gradsweep.options.hints import did_you_mean

_SHOWN = 200
"""Characters of a wrong value that a message repeats."""


class InvalidParameter(ValueError):
    """A hyper-parameter has an invalid value. The message is one line.

    `name` is the field, `value` what was given, and `valid` describes valid values. `meant` is a hint from
    `gradsweep.options.hints`, put in front of `valid`, or empty.
    """

    def __init__(self, name: str, value: object, valid: str, meant: str = "") -> None:
        super().__init__(f"{show(name)}={show(value)}: {meant}valid is {valid}")
        self.name, self.value, self.valid, self.meant = name, value, valid, meant

    def prefix(self, section: str) -> InvalidParameter:
        """Return the same error with `section` in front of the option's name, as in values_options.levels."""
        return InvalidParameter(f"{section}.{self.name}", self.value, self.valid, self.meant)


def show(value: object) -> str:
    """Return a value for an error line: line breaks are escaped, and long values are cut."""
    try:
        text = str(value)
    except ValueError:  # Python writes no integers of more than some thousand digits
        return "an integer too long to be written"
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclasses.dataclass(frozen=True)
class Valid:
    """The values that a field accepts: a description for people, a test, and the valid names for hints.

    `from_mapping` sets a field to `normalise(value)` for a valid value.
    """

    words: str
    test: Callable[[Any], bool]
    names: Callable[[], Iterable[str]] = tuple
    normalise: Callable[[Any], Any] | None = None


def field(valid: Valid, **options: Any) -> Any:
    """Return a dataclass field with a range; the options are those of `dataclasses.field`."""
    return dataclasses.field(metadata={"valid": valid}, **options)


def is_integer(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    """Tell whether a value is an integer from `low` to `high`."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    """Tell whether a value is a number from `low` to `high` that a float can hold."""
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and low <= value <= high and abs(value) <= sys.float_info.max


def integer(default: int | None, low: int, high: int | None = None, *, optional: bool = False) -> Any:
    """Return a dataclass field for an integer in [low, high]; `optional` also admits null."""
    words = f"an integer from {low}" + (f" to {high}" if high is not None else " up") + (" or null" if optional else "")
    most = math.inf if high is None else high
    valid = Valid(words, lambda value: optional if value is None else is_integer(value, low, most))
    return field(valid, default=default)


def number(
    default: float | None,
    low: float,
    high: float | None = None,
    *,
    above: bool = False,
    below: bool = False,
    optional: bool = False,
    word: str | None = None,
) -> Any:
    """Return a dataclass field for a finite number in [low, high]; `above` leaves out `low`, `below` leaves out `high`.

    `word` also admits that one word.
    """
    words = f"a {'finite ' if high is None else ''}number {'above' if above else 'from'} {low}"
    if high is not None:
        words += f" to {'below ' if below else ''}{high}"
    elif not above:
        words += " up"

    def test(value: Any) -> bool:
        if value is None:
            return optional
        if isinstance(value, str):
            return value == word
        return is_number(value, low, most) and not (above and value == low) and not (below and value == high)

    most = math.inf if high is None else high
    words += (f" or {word}" if word else "") + (" or null" if optional else "")
    return field(Valid(words, test), default=default)


def boolean(default: bool | None, *, optional: bool = False) -> Any:
    """Return a dataclass field for true or false; `optional` also admits null."""
    words = "true, false or null" if optional else "true or false"
    return field(Valid(words, lambda value: isinstance(value, bool) or (optional and value is None)), default=default)


def choice(default: str | None, *options: str, optional: bool = False) -> Any:
    """Return a dataclass field for one of a few words; `optional` also admits null."""
    words = "one of " + ", ".join(options) + (" or null" if optional else "")
    valid = Valid(words, lambda value: optional if value is None else value in options, lambda: options)
    return field(valid, default=default)


def sequence(words: str, test: Callable[[Any], bool], default: Sequence[Any] = (), **options: Any) -> Any:
    """Return a dataclass field for a list, all of whose items pass `test`; the options are those of `field`."""

    def passes(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(test(item) for item in value)

    return field(Valid(words, passes), default_factory=lambda: list(default), **options)


def mapping(words: str) -> Any:
    """Return a dataclass field for a mapping from names to values, empty by default.

    It holds options of a part that another option names, such as those of a nested compressor; the dataclass itself
    checks them. The field counts for comparison but not for the hash. `from_mapping` sorts it by its keys."""

    def passes(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)

    valid = Valid(words, passes, normalise=lambda value: dict(sorted(value.items())))
    return field(valid, default_factory=dict, hash=False)


class Checked:
    """The base of options: the ranges of the fields are checked on construction."""

    def __post_init__(self) -> None:
        check(self)


def check(instance: Any) -> None:
    """Test every field of a dataclass instance that carries a range.

    Raises:
        InvalidParameter: for the first field, in order of definition, that fails its test.
    """
    for name, valid in _ranges(instance.__class__):
        value = getattr(instance, name)
        if not valid.test(value):
            raise InvalidParameter(name, value, valid.words, did_you_mean(value, valid.names()))


@functools.cache  # a sweep checks the same classes thousands of times
def _ranges(cls: type) -> tuple[tuple[str, Valid], ...]:
    return tuple(
        (field.name, field.metadata["valid"]) for field in dataclasses.fields(cls) if "valid" in field.metadata
    )


@functools.cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def from_mapping(cls: type, values: dict[str, Any]) -> Any:
    """Build dataclass `cls` from a plain mapping such as one group of a config file.

    Raises:
        InvalidParameter: for a key that `cls` does not have, or a value out of range.
    """
    names = _names(cls)
    for key, value in values.items():
        if key not in names:
            chosen = getattr(cls, "name", cls.__name__)
            accepted = "one of the keys " + ", ".join(names) if names else f"left out: {chosen} has no options"
            raise InvalidParameter(key, value, accepted, did_you_mean(key, names))
    for name, valid in _ranges(cls):
        if valid.normalise and name in values and valid.test(values[name]):
            values = {**values, name: valid.normalise(values[name])}
    return cls(**values)
