"""Explain overrides that Hydra's grammar or the type of a key refuses, and say what would be valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException

from gradsweep.errors import LISTED_BY
from gradsweep.options.hints import one_of

_KINDS = (
    ("could not be converted to Integer", "an integer"),
    ("could not be converted to Float", "a number"),
    ("is not a ListConfig, list or tuple", "a list, such as [a,b]"),
    ("Cannot merge DictConfig with ListConfig", "a list, such as [a,b]"),
    (" to string: ", "a text"),
    ("to Dict[str, str]", "a mapping, such as {NAME:text}"),
    ("NoneType is not a subclass of str", "a list of texts; null in quotes is one: ['null']"),
    ("Invalid type assigned: ", "a mapping, such as {key:value}"),
    ("is not Optional", "anything but null"),
)


def find_valid_kind(message: str) -> str | None:
    """Extract the type of value that a key accepts from OmegaConf's error message; None if the message does not say."""
    return next((kind for part, kind in _KINDS if part in message), None)


def explain_grammar(error: OverrideParseException, arguments: Sequence[str], valid: str | None = None) -> str:
    """Return a line with the error in an override, its position, and how to type the override if a text is meant.

    Args:
        arguments: the command line; a space may have split the override into two of its words.
        valid: a description of the values that the override's key accepts, if known.
    """
    from sweep.config import syntax_errors  # loaded for errors only

    word = error.override
    key, equals, value = word.partition("=")
    if len(together := syntax_errors.find_torn_words(arguments, word)) > 1:
        shown = " ".join(together)
        valid = f"in quotes: {shlex.quote(shown)}" if re.search(r"[\[{(]", shown) else f"one: {''.join(together)}"
        return f"{shown}: spaces make {len(together)} words of it; valid is {valid}"
    if (cause := error.__cause__) is not None:  # an unknown function, or wrong arguments of one
        return f"{word}: {'; '.join(str(cause).strip().splitlines())}"
    if not equals:
        return f"{word}: valid is key=value"
    if not parse(f"{key}=1"):
        return f"{word}: not in Hydra's grammar; valid is key=value, with a key of letters, digits, . _ and /"
    where = syntax_errors.find(word)
    wrong = f"{word}: not in Hydra's grammar{f', {where}' if where else ''}"
    if "comma" in where or where.endswith("is not closed") and "(" in where:
        return f"{wrong}; valid is {valid or 'a value'}, or values with one comma between two: 2,4"
    if valid is not None and not valid.startswith("a text"):
        return f"{wrong}; valid is {valid}"
    if value[:1] in ("[", "{"):
        return f"{wrong}; valid is a list or mapping, with texts in quotes: [\"a > b\",'c']"
    if (quoted := _quote(key, value)) is None:
        return f"{wrong}; valid is a text in quotes, with \\ before such quotes in it"
    return f"{wrong}; as a text it is in quotes, which the shell leaves alone: {quoted}"


_SWEPT = re.compile(r"Ambiguous value for argument '(.*)'$")
_NO_NAME = re.compile(r"Config group override must be a string or a list\. Got (\w+)$")
_ADDED = (
    (re.compile(r"Could not append to config\. An item is already at '(.*)'\.$"), "is there"),
    (re.compile(r"Multiple values for (.*)\. To override a value use"), "one is chosen"),
)
_ABSENT = re.compile(r"Could not delete(?: from config)?\. '(.*)' does not exist\.$")
_NO_DEFAULT = re.compile(r"(?:Could not override|Could not delete) '(.*)'\.")


def explain_override(
    message: str, arguments: Sequence[str], words_for: Callable[[str, Sequence[str]], str | None]
) -> str | None:
    """Return a clearer message than Hydra's for a refused override that Hydra can parse; None if Hydra's is clear."""
    first = (message.splitlines() or [""])[0]
    if (match := _SWEPT.match(first)) is not None:
        key, _, value = match[1].partition("=")
        is_list = (words_for(key, arguments) or "").startswith("a list")
        single = f"a list in brackets, {shlex.quote(f'{key}=[{value}]')}" if is_list else "one value"
        sweep = f"or -m for a sweep of them: python multirun.py -m {shlex.quote(match[1])}"
        return f"{match[1]}: several values; valid is {single}, {sweep}"
    if (match := _NO_NAME.match(first)) is not None:
        from sweep.config.unknown_keys import list_groups, list_names

        for word in arguments:
            group = word.partition("=")[0].lstrip("+~").partition("@")[0]
            if _lacks_name(word) and group in list_groups():
                names = f"one of the names that `{LISTED_BY}` lists"
                return f"{word}: valid is {names if '/' in group else one_of(list_names(group), LISTED_BY)}"
    for pattern, why in _ADDED:
        if (match := pattern.match(first)) is not None:
            typed = next((word for word in arguments if word.partition("=")[0] == f"+{match[1]}"), f"+{match[1]}")
            return f"{typed}: {why} already; valid is {typed[1:]}"
    if (match := _ABSENT.match(first)) is not None:
        return f"~{match[1]}: unknown key; valid is a key of the config, as `python multirun.py --cfg job` prints it"
    if (match := _NO_DEFAULT.match(first)) is not None:
        typed = next((word for word in arguments if word.lstrip("+~").partition("=")[0] == match[1]), match[1])
        return f"{typed}: nothing of this name is chosen; valid is a group that `{LISTED_BY}` lists"
    return None


def _lacks_name(word: str) -> bool:
    """Tell whether an override chooses from a config group by a value that is no text, as in compressor=null."""
    override = parse(word)
    if override is None or "." in str(override.key_or_group):
        return False
    with suppress(HydraException):
        values = list(override.sweep_iterator()) if override.is_sweep_override() else [override.value()]
        return any(value is None or isinstance(value, (bool, int, float)) for value in values)
    return False


def _quote(key: str, value: str) -> str | None:
    """Return the word to type in a shell to set `key` to the text `value`; None if quotes do not help."""
    for quote in ('"', "'"):
        word = f"{key}={quote}{value}{quote}"
        parsed = parse(word)
        if parsed is not None and getattr(parsed.value(), "text", parsed.value()) == value:
            return shlex.quote(word)
    return None


def parse(word: str) -> Override | None:
    """Parse an override; return None if Hydra's grammar does not accept it."""
    with suppress(HydraException):
        return OverridesParser.create().parse_override(word)
    return None
