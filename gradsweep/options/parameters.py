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
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gradsweep.options.hints import did_you_mean

_SHOWN = 200
"""Characters of a wrong value that a message repeats."""


class InvalidParameter(ValueError):
    """One hyper-parameter has a value that its owner cannot work with. The message is one line.

    `name` is the field, `value` what was given, `valid` what would have been right; `meant` stands in front of that, a
    hint by `gradsweep.options.hints` or nothing.
    """

    def __init__(self, name: str, value: object, valid: str, meant: str = "") -> None:
        super().__init__(f"{show(name)}={show(value)}: {meant}valid is {valid}")
        self.name, self.value, self.valid, self.meant = name, value, valid, meant

    def prefix(self, section: str) -> InvalidParameter:
        """Return the same with the section whose owner this is, as in values_options.levels."""
        return InvalidParameter(f"{section}.{self.name}", self.value, self.valid, self.meant)


def show(value: object) -> str:
    """Return a value as it may stand in a line: escaped where it has line breaks, cut where it is long."""
    try:
        text = str(value)
    except ValueError:  # Python writes no integers of more than some thousand digits
        return "an integer too long to be written"
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@dataclasses.dataclass(frozen=True)
class Valid:
    """Describe what a field accepts: in words for people, as a test for the machine, and the names in it, for hints."""

    words: str
    test: Callable[[Any], bool]
    names: Callable[[], Iterable[str]] = tuple


def _field(default: Any, words: str, test: Callable[[Any], bool]) -> Any:
    return dataclasses.field(default=default, metadata={"valid": Valid(words, test)})


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond the range of float
        return False


def integer(default: int | None, low: int, high: int | None = None, *, optional: bool = False) -> Any:
    """Return a dataclass field for an integer in [low, high]; `optional` also admits null."""
    words = f"an integer from {low}" + (f" to {high}" if high is not None else " up") + (" or null" if optional else "")

    def test(value: Any) -> bool:
        if value is None:
            return optional
        return _is_integer(value) and value >= low and (high is None or value <= high)

    return _field(default, words, test)


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
        if not _is_finite(value) or value < low or (high is not None and value > high):
            return False
        return not (above and value == low) and not (below and value == high)

    words += f" or {word}" if word else ""
    return _field(default, words + (" or null" if optional else ""), test)


def boolean(default: bool | None, *, optional: bool = False) -> Any:
    """Return a dataclass field for true or false; `optional` also admits null."""
    words = "true, false or null" if optional else "true or false"
    return _field(default, words, lambda value: isinstance(value, bool) or (optional and value is None))


def choice(default: str, *options: str) -> Any:
    """Return a dataclass field for one of a few words."""
    valid = Valid("one of " + ", ".join(options), lambda value: value in options, lambda: options)
    return dataclasses.field(default=default, metadata={"valid": valid})


def sequence(words: str, test: Callable[[Any], bool]) -> Any:
    """Return a dataclass field for a list, empty by default, all of whose items pass `test`."""

    def passes(value: Any) -> bool:
        return isinstance(value, (list, tuple)) and all(test(item) for item in value)

    return dataclasses.field(default_factory=list, metadata={"valid": Valid(words, passes)})


def mapping(words: str) -> Any:
    """Return a dataclass field for a mapping from names to values, empty by default: options of something that another
    option names. Whoever has the field checks what is in it. It is compared, but left out of the hash."""

    def passes(value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)

    return dataclasses.field(default_factory=dict, hash=False, metadata={"valid": Valid(words, passes)})


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
            raise InvalidParameter(key, value, "one of the keys " + ", ".join(names), did_you_mean(key, names))
    return cls(**values)
