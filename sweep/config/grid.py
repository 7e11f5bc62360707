"""Expand overrides into the points of a grid: all combinations of values, except that zipped keys change together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from gradsweep.errors import UsageError, bad_value

ZIP_IS = "a list of lists of keys, such as [[optimizer.lr,workers]]"


def refuse_duplicates(words: Sequence[str]) -> None:
    """Refuse a key that a command line sets twice, except to replace a mapping (~key +key=...).

    Raises:
        UsageError: a key is set twice; the message names both words.
    """
    first: dict[str, str] = {}
    for word in words:
        if word.startswith("-") or not ("=" in word or word.startswith("~")):
            continue
        key = word.partition("=")[0].lstrip("+~")
        if key in first and not (first[key].startswith("~") and word.startswith("+")):
            values = dict.fromkeys(each.partition("=")[2] for each in (first[key], word) if "=" in each)
            raise UsageError(
                f"{first[key]} and {word}: give {key} twice; valid is to give it once, a grid's with all values "
                f"({key}={','.join(values)})"
            )
        first[key] = word


def expand_points(
    params: Mapping[str, Any], arguments: Sequence[str], zipped: Any, parser: OverridesParser
) -> list[list[str]]:
    """Return the overrides of each point of a grid, the last key changing fastest.

    Args:
        params: the grid in the config (hydra.sweeper.params); null removes a key from it.
        arguments: overrides of the command line, which replace those of `params` for the same key.
        zipped: sweep.zip, lists of keys whose values change together.
        parser: Hydra's parser of overrides, with the choices that glob() needs.

    Raises:
        UsageError: `params` is no mapping, `zipped` does not fit the keys, or a value is valid only in searches.
        HydraException: an override is not in Hydra's grammar.
    """
    if not isinstance(params, Mapping):
        raise bad_value("hydra.sweeper.params", params, "a mapping of keys to their values, such as {workers: '2,4'}")
    given = [f"{key}={value}" for key, value in params.items() if value is not None]
    axes: dict[tuple[str, str | None, bool], list[str]] = {}
    for override in (*parser.parse_overrides(given), *parser.parse_overrides(list(arguments))):
        axes[str(override.key_or_group), override.package, override.is_delete()] = _list_values(override)
    together = _check_groups(zipped, {_format_key(key): len(values) for key, values in axes.items()})
    blocks: list[list[list[str]]] = []  # axes of the product, each a list of lines that go together
    done: set[str] = set()
    for name, values in zip(map(_format_key, axes), axes.values(), strict=True):
        if name in done:
            continue
        group = next((keys for keys in together if name in keys), [name])
        done.update(group)
        members = [each for key, each in axes.items() if _format_key(key) in group]
        blocks.append([list(row) for row in zip(*members, strict=True)] if len(group) > 1 else [[v] for v in values])
    return [[line for part in point for line in part] for point in itertools.product(*blocks)]


def drop_foreign_options(
    points: Sequence[Sequence[str]],
    groups: Collection[str],
    list_options: Callable[[Sequence[str], str], Collection[str]],
) -> list[list[str]]:
    """Drop options of a swept group from the points whose choice lacks them, if another choice of the grid has them.

    `compressor=none,topk compressor.ratio=0.1,0.2` gives three points: `none` has no ratio.

    Args:
        groups: those that have options.
        list_options: returns the options that a group has in the config of the given overrides.
    """
    choices = [{key: value for key, _, value in (line.partition("=") for line in point)} for point in points]
    swept = {group for group in groups if len({choice.get(group) for choice in choices}) > 1}
    if not any(_find_option(line, swept) for point in points for line in point):
        return [list(point) for point in points]
    had: dict[tuple[str, str | None], Collection[str]] = {}
    for point, choice in zip(points, choices, strict=True):
        bare = [line for line in point if not _find_option(line, swept)]
        for group in swept:
            if (group, choice.get(group)) not in had:
                had[group, choice.get(group)] = list_options(bare, group)
    known = {(group, option) for (group, _), options in had.items() for option in options}

    def is_foreign(line: str, choice: Mapping[str, str]) -> bool:
        found = _find_option(line, swept)
        return found in known and found is not None and found[1] not in had[found[0], choice.get(found[0])]

    kept = (
        tuple(line for line in point if not is_foreign(line, choice))
        for point, choice in zip(points, choices, strict=True)
    )
    return [list(point) for point in dict.fromkeys(kept)]


def _find_option(line: str, groups: Collection[str]) -> tuple[str, str] | None:
    """Return the group and the option that a line sets, if it is one of an option of these groups."""
    group, dot, rest = line.partition("=")[0].partition(".")
    return (group, rest.partition(".")[0]) if dot and group in groups else None


def _format_key(key: tuple[str, str | None, bool]) -> str:
    name, package, deleted = key
    return ("~" if deleted else "") + (name if package is None else f"{name}@{package}")


def _list_values(override: Override) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    if not override.is_discrete_sweep():
        raise UsageError(f"{override.input_line}: valid is, in a grid, values such as 1,2,3, range(1,4) or glob(*)")
    return [f"{key}={value}" for value in override.sweep_string_iterator()]


def _check_groups(zipped: Any, lengths: Mapping[str, int]) -> list[list[str]]:
    """Return the groups of `sweep.zip`, checked against a grid's keys and their numbers of values."""
    check_zip(zipped)
    groups = [[str(key) for key in group] for group in zipped]
    given = "[" + ",".join(f"[{','.join(group)}]" for group in groups) + "]"
    for group in groups:
        for key in group:
            if key not in lengths:
                varying = [name for name, length in lengths.items() if length > 1] or list(lengths)
                raise UsageError(
                    f"sweep.zip={given}: {key} is no key of this grid; valid is some of {', '.join(varying)}"
                )
        if len({lengths[key] for key in group}) > 1:
            counted = ", ".join(f"{key} has {lengths[key]}" for key in group)
            raise UsageError(f"sweep.zip={given}: {counted}; valid is as many values of each key")
    keys = [key for group in groups for key in group]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"sweep.zip={given}: {key} stands in it twice; valid is every key once")
    return groups


def check_zip(zipped: Any) -> None:
    """Raise UsageError if `sweep.zip` is not a list of lists of keys."""
    if not _is_list(zipped) or not all(
        _is_list(group) and group and all(isinstance(key, str) for key in group) for group in zipped
    ):
        raise bad_value("sweep.zip", zipped, ZIP_IS)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))
