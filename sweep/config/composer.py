"""Compose many points quickly: Hydra composes each choice of groups once, then the values of each point are inserted.

The configs are those that Hydra would compose: Hydra composes the groups, and its own function applies the values.
Points share only sections that their values cannot change. Where this is not certain (`_Word.plain_value`,
`_Base.sure`), and after any error, Hydra composes the whole point.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from gradsweep.errors import UsageError
from sweep.config.cached_repository import cache_config_files
from sweep.config.interning import Sections
from sweep.console.step_counter import Count, count_through

LAUNCHER = "launcher"
"""The section of a run's config that holds its options of hydra.launcher."""

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_OUTSIDE = re.compile(r"hydra(?!\.launcher\b)|\boc\.|\$\{\s*\$\{|\$\{[^:}]*\$\{")


def build_plain_config(config: DictConfig, launcher: DictConfig, shared: Sections | None = None) -> dict[str, Any]:
    """Return the resolved config as plain data: without Hydra's own section, but with the options of `launcher`."""
    shared = shared or Sections()
    return {name: shared.share(name, _extract_section(config, launcher, name)) for name in _list_sections(config)}


def _list_sections(config: DictConfig) -> list[str]:
    return [*(str(key) for key in config if key not in ("hydra", LAUNCHER)), LAUNCHER]


def _extract_section(config: DictConfig, launcher: DictConfig, section: str) -> Any:
    node = launcher if section == LAUNCHER else config[section]
    value = OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if OmegaConf.is_config(node) else node
    if section == LAUNCHER and isinstance(value, dict):
        value.pop("_target_", None)
    return value


@dataclasses.dataclass(frozen=True)
class _Word:
    """An override of a point, parsed by Hydra."""

    line: str
    override: Override
    group: bool  # it chooses among config groups

    @property
    def key(self) -> str:
        return str(self.override.key_or_group)

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def plain_value(self) -> bool:
        """Whether the override only sets the value of a key in a run's config."""
        override = self.override
        renames = "." not in self.key and (override.is_add() or override.is_force_add() or override.is_delete())
        return (
            override.package is None
            and _KEY.fullmatch(self.key) is not None
            and self.section not in ("hydra", LAUNCHER)
            and not override.is_sweep_override()
            and not renames
            and not ("${" in self.line and _OUTSIDE.search(self.line.partition("=")[2]))
        )


class Composer:
    """Composes the configs of points as plain data; equal sections of different configs are the same object.

    Args:
        loader: Hydra's loader of configs.
        master: the config of the whole sweep, as Hydra gives it to launchers.
        silent: do not report progress.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig, *, silent: bool = False) -> None:
        self.loader, self.master, self.silent = cache_config_files(loader), master, silent
        self.shared = Sections()
        self.hydra_compositions = 0  # points and choices of groups that Hydra has composed
        self._parser = OverridesParser.create(config_loader=loader)
        self._words: dict[str, _Word] = {}
        self._numbers: dict[str, Override] = {}  # one parsed override of each key that has whole numbers

    def compose(self, points: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """Compose points from their overrides; return their configs in order.

        Raises:
            Exception: Hydra's error for the first point that it cannot compose.
        """
        composed: list[dict[str, Any]] = [{} for _ in points]
        failed: tuple[int, Exception] | None = None
        alike = self._group_alike(points)
        count = Count("points composed", len(points), silent=self.silent)
        for numbers in alike:
            base = None
            for number in count.count_through(numbers):
                if failed is not None and number > failed[0]:
                    break
                try:
                    if base is None and len(numbers) > 1:
                        base = self._build_base([points[each] for each in numbers])
                    composed[number] = self._compose_point(points[number], base)
                except Exception as error:
                    failed = (number, error)
        if failed is not None:
            raise failed[1]
        return composed

    def _group_alike(self, points: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return lists of points, by number, with the same choices of config groups, in order of their first points."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, lines in enumerate(count_through("points read", points, silent=self.silent)):
            try:
                choice = tuple(line for line in lines if self._read_word(line).group)
            except Exception:  # the point is not in Hydra's grammar
                choice = ("", str(number))
            groups.setdefault(choice, []).append(number)
        return list(groups.values())

    def _read_word(self, line: str) -> _Word:
        if line not in self._words:
            override = self._parse(line)
            assert isinstance(self.loader, ConfigLoaderImpl)
            is_group = self.loader.repository.group_exists(override.key_or_group)
            self._words[line] = _Word(line, override, is_group and not isinstance(override.value(), dict))
        return self._words[line]

    def _parse(self, line: str) -> Override:
        """Parse an override; if its value is an integer, Hydra's slow parser is used only once for each key."""
        key, _, value = line.partition("=")
        if _NUMBER.fullmatch(value) is None:
            return self._parser.parse_override(line)
        if key not in self._numbers:
            self._numbers[key] = self._parser.parse_override(line)
        return dataclasses.replace(self._numbers[key], _value=int(value), input_line=line)

    def _build_base(self, points: Sequence[Sequence[str]]) -> _Base | None:
        """Compose the config of the points' common overrides; return None if the others may change more than values."""
        if self.master.hydra.searchpath:  # groups that Hydra has not looked up yet may be there
            return None
        common = set(points[0]).intersection(*points[1:])
        varying = {line: self._read_word(line) for lines in points for line in lines if line not in common}
        kept = [self._read_word(line) for line in points[0] if line in common]
        for word in varying.values():
            if not word.plain_value or any(_overlap(word.key, other.key) for other in kept):
                return None
        try:
            base = _Base(self._compose_by_hydra([word.line for word in kept]), frozenset(common), self.shared)
        except UsageError:
            raise
        except Exception:  # composing the first point raises it
            return None
        return base if base.sure else None

    def _compose_point(self, lines: Sequence[str], base: _Base | None) -> dict[str, Any]:
        if base is not None and base.sure:
            try:
                return base.insert_values([self._read_word(line) for line in lines if line not in base.common])
            except Exception:  # Hydra composes the whole point, or raises its own error
                base.sure = False
        config = self._compose_by_hydra(lines)
        return build_plain_config(config, config.hydra.launcher, self.shared)

    def _compose_by_hydra(self, lines: Sequence[str]) -> DictConfig:
        self.hydra_compositions += 1
        config = self.loader.load_sweep_config(self.master, list(lines))
        grids = [OmegaConf.select(each, "hydra.sweeper.params") for each in (config, self.master)]
        if grids[0] != grids[1]:
            raise UsageError(
                "hydra.sweeper.params: is not the same in all points, one of whose swept groups brings a grid of its "
                "own; valid is one value of that group, such as one experiment at a time"
            )
        return config


class _Base:
    """A composed config, from which configs with other values are derived."""

    def __init__(self, config: DictConfig, common: frozenset[str], shared: Sections) -> None:
        self.config, self.common, self.shared = config, common, shared
        self.names = _list_sections(config)
        texts = {name: list(_find_interpolations(_extract_raw(config, name))) for name in self.names}
        self.interpolated = {name for name, interpolations in texts.items() if interpolations}
        self.sure = not any(_OUTSIDE.search(text) for interpolations in texts.values() for text in interpolations)
        self._read: dict[tuple[str, tuple[str, ...]], Any] = {}  # by section and lines that change it

    def insert_values(self, words: Sequence[_Word]) -> dict[str, Any]:
        """Return the config with these values set."""
        changes: dict[str, tuple[str, ...]] = {name: () for name in self.names}
        moving = set(self.interpolated)  # interpolations may depend on any value
        for word in words:
            changes[word.section] = (*changes[word.section], word.line)
            if "${" in word.line:
                moving.add(word.section)
        unread = [name for name in self.names if name in moving or (name, changes[name]) not in self._read]
        values: dict[str, Any] = {}
        if unread:
            with self._apply_temporarily(words) as config:
                for name in unread:
                    values[name] = self.shared.share(name, _extract_section(config, config.hydra.launcher, name))
                    if name not in moving:
                        self._read[name, changes[name]] = values[name]
        return {name: values[name] if name in values else self._read[name, changes[name]] for name in self.names}

    @contextmanager
    def _apply_temporarily(self, words: Sequence[_Word]) -> Iterator[DictConfig]:
        """Yield the config with the values set, and reset them afterwards; yield a copy if its structure changes."""
        if not all(self._is_leaf(word) for word in words):
            changed = copy.deepcopy(self.config)
            ConfigLoaderImpl._apply_overrides_to_config([word.override for word in words], changed)
            yield changed
            return
        before = [(word.key, OmegaConf.select(self.config, word.key)) for word in words]
        try:
            ConfigLoaderImpl._apply_overrides_to_config([word.override for word in words], self.config)
            yield self.config
        finally:
            for key, value in reversed(before):
                OmegaConf.update(self.config, key, value)

    def _is_leaf(self, word: _Word) -> bool:
        """Tell whether the override replaces a single value, so that setting the old value undoes it."""
        override = word.override
        if override.is_add() or override.is_force_add() or override.is_delete() or word.section in self.interpolated:
            return False
        parent, _, name = word.key.rpartition(".")
        around = OmegaConf.select(self.config, parent) if parent else self.config
        if not isinstance(around, DictConfig) or name not in around or OmegaConf.is_missing(around, name):
            return False
        return not OmegaConf.is_config(around[name]) and not isinstance(override.value(), (dict, list))


def _overlap(first: str, second: str) -> bool:
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def _extract_raw(config: DictConfig, section: str) -> Any:
    if section == LAUNCHER:
        return OmegaConf.to_container(config.hydra.launcher, resolve=False)
    if not OmegaConf.is_interpolation(config, section) and OmegaConf.is_config(config[section]):
        return OmegaConf.to_container(config[section], resolve=False)
    return OmegaConf.to_container(OmegaConf.masked_copy(config, section), resolve=False)


def _find_interpolations(value: Any) -> Iterator[str]:
    if isinstance(value, str) and "${" in value:
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _find_interpolations(item)
    elif isinstance(value, list):
        for item in value:
            yield from _find_interpolations(item)
