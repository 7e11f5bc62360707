"""Find plug-ins: modules of other distributions, or files of the user, whose classes join the groups of a config.

`Members` has the classes of a group: ours, those that installed distributions announce by entry points (`GROUPS`), and
those of the modules that the option `plugins` names. A class joins under its `name`. Entry points are read when the
first name is looked up that is not ours.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from gradsweep import targets
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.config_keys import look_up
from gradsweep.source_tree import CONF as CONF_FILES
from gradsweep.targets import Target, describe_error

KEY = "plugins"
"""The key of a config with the files and modules to load."""

GROUPS = {
    "compressor": "gradsweep.compressors",
    "memory": "gradsweep.memories",
    "exchange": "gradsweep.exchanges",
    "topology": "gradsweep.topologies",
    "schedule": "gradsweep.schedules",
    "model": "gradsweep.models",
    "dataset": "gradsweep.datasets",
}
"""The groups of a config that plug-ins can join, each with its group of entry points."""

CONF = "gradsweep.conf"
"""The group of entry points that name folders with YAML files, as in conf/."""

FORMS = "a file such as ./mine.py, or a module such as my_package.mine"

NAMES: dict[type, str] = {}
"""The name of every class of a plug-in that has joined a group."""

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_]\w*")
_METADATA = (".dist-info", ".egg-info")


@dataclasses.dataclass(frozen=True)
class EntryPoint:
    """An entry point of an installed distribution; `folder` has the distribution's metadata."""

    group: str
    name: str
    value: str
    folder: Path

    @property
    def distribution(self) -> tuple[str, str]:
        """The name and version of the distribution."""
        from importlib.metadata import PathDistribution

        name, _, version = self.folder.name.removesuffix(".dist-info").removesuffix(".egg-info").partition("-")
        metadata = PathDistribution(self.folder).metadata
        return (metadata["Name"] or name, metadata["Version"] or version) if metadata else (name, version)

    def __str__(self) -> str:
        return f"{' '.join(self.distribution).strip()}: entry point {self.name} = {self.value} of {self.group}"


@dataclasses.dataclass(frozen=True)
class Plugin:
    """A loaded module that the option `plugins` names by `text`."""

    text: str
    module: ModuleType

    def __str__(self) -> str:
        return f"{KEY}={self.text}"

    def list_classes(self, base: type) -> list[type]:
        """Return the module's classes that derive from `base` and are not ours."""
        found = [value for value in vars(self.module).values() if inspect.isclass(value) and issubclass(value, base)]
        return list(dict.fromkeys(cls for cls in found if not _is_ours(cls)))


_loaded: list[Plugin] = []
_members: dict[str, Members[Any]] = {}


class Members(Mapping[str, type[T]]):
    """The classes of a group by name: ours in their order, then those of plug-ins.

    A class of ours is found without reading entry points. A distribution whose class cannot join is left out of the
    names; looking up its name raises a UsageError with the reason.

    Args:
        group: of the config, one of `GROUPS`.
        base: the class from which the classes of plug-ins derive.
        needs: attributes that a plug-in's class must have in addition to those of `base`.
    """

    def __init__(self, group: str, ours: Mapping[str, type[T]], base: type[T], needs: Sequence[str] = ()) -> None:
        self.group, self.ours, self.base, self.needs = group, ours, base, needs
        self.broken: dict[str, UsageError] = {}
        """Why distributions' classes could not join, by the names of their entry points."""
        self._joined: dict[str, type[T]] = {}
        self._searched = 0  # of _loaded
        self._has_read = False  # the entry points
        _members[group] = self

    def __getitem__(self, name: str) -> type[T]:
        if name in self.ours:
            return self.ours[name]
        self.update()
        if name in self.broken and name not in self._joined:
            raise self.broken[name]
        return self._joined[name]

    def __iter__(self) -> Iterator[str]:
        self.update()
        yield from self.ours
        yield from sorted(self._joined)

    def __len__(self) -> int:
        self.update()
        return len(self.ours) + len(self._joined)

    @property
    def joined(self) -> Mapping[str, type[T]]:
        """The classes of plug-ins."""
        self.update()
        return self._joined

    def update(self) -> None:
        """Let the classes of installed distributions and loaded plug-ins join that have not joined yet.

        Raises:
            UsageError: a class of a loaded plug-in cannot join.
        """
        if not self._has_read:
            self._has_read = True  # before the modules are imported, which may look up names themselves
            for point in read_entry_points():
                if point.group == GROUPS[self.group]:
                    try:
                        self.join(self.check_class(_import_entry_point(point), str(point), point.name))
                    except UsageError as error:
                        self.broken[point.name] = error
        while self._searched < len(_loaded):
            self.join(*self.choose(_loaded[self._searched]))
            self._searched += 1

    def find_classes(self, plugin: Plugin) -> list[type[T]]:
        """Return the classes of a plug-in's module that belong to the group, without bases of others."""
        return [cls for cls in plugin.list_classes(self.base) if "name" in vars(cls) or not _is_base(cls)]

    def choose(self, plugin: Plugin) -> list[type[T]]:
        """Return the classes of a plug-in's module that are still to join.

        Raises:
            UsageError: a class cannot join.
        """
        new = [cls for cls in self.find_classes(plugin) if cls not in self._joined.values()]
        chosen = [self.check_class(cls, str(plugin)) for cls in new]
        names = [vars(cls)["name"] for cls in chosen]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{plugin}: {names.count(name)} classes are named {name}; valid is a name for each")
        return chosen

    def join(self, *classes: type[T]) -> None:
        """Add classes that `check_class` has accepted."""
        for cls in classes:
            self._joined[cls.name] = cls  # type: ignore[attr-defined]
            NAMES[cls] = cls.name  # type: ignore[attr-defined]

    def check_class(self, cls: object, where: str, wanted: str | None = None) -> type[T]:
        """Return a plug-in's class if it can join the group.

        Args:
            where: begins the message of an error.
            wanted: the name under which an entry point announces it.

        Raises:
            UsageError: the class lacks something, or its name is taken.
        """
        if not (inspect.isclass(cls) and issubclass(cls, self.base)):
            found = cls.__qualname__ if inspect.isclass(cls) else f"a {type(cls).__name__}"
            raise UsageError(f"{where}: {found} is no {self.group}; valid is a subclass of {_format_class(self.base)}")
        word = cls.__qualname__
        name = vars(cls).get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            given = "has no name of its own" if name is None else f"has the name {name!r}"
            raise UsageError(
                f"{where}: {word} {given}; valid is name: ClassVar[str] = a word, as {self.group}=WORD has it"
            )
        if wanted is not None and name != wanted:
            raise UsageError(f"{where}: {word} has the name {name}; valid is the name of its entry point")
        lacking = sorted(getattr(cls, "__abstractmethods__", ())) + [
            each for each in self.needs if not hasattr(cls, each)
        ]
        if lacking:
            raise UsageError(
                f"{where}: {word} lacks {', '.join(lacking)}; valid is a class with all that "
                f"{_format_class(self.base)} asks for (docs/guide/plugins.md)"
            )
        if "__dataclass_fields__" not in vars(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise UsageError(f"{where}: {word} is no frozen dataclass; valid is @dataclasses.dataclass(frozen=True)")
        for field in dataclasses.fields(cast(Any, cls)):
            if field.init and field.default is field.default_factory is dataclasses.MISSING:
                raise UsageError(
                    f"{where}: {word} has no default for {field.name}; valid is a default for every option"
                )
        for each in (name, *getattr(cls, "aliases", ()), *getattr(cls, "presets", ())):
            if (owner := self._find_owner(each, cls)) is not None:
                raise UsageError(f"{where}: the name {each} of {word} is taken by {owner}; valid is another name")
        return cls

    def is_ours(self, name: str) -> bool:
        """Tell whether a name is that of a class of ours, or of one of our YAML files."""
        return name in self.ours or (CONF_FILES / self.group / f"{name}.yaml").is_file()

    def _find_owner(self, name: str, cls: type) -> str | None:
        """Describe who has a name of the group already; None if it is free."""
        if self.is_ours(name):
            return f"Gradsweep's own {self.group}={name}"
        for other in self._joined.values():
            names = (other.name, *getattr(other, "aliases", ()), *getattr(other, "presets", ()))  # type: ignore[attr-defined]
            if name in names and other is not cls:
                return f"{other.__module__}:{other.__qualname__}"
        return None


def _format_class(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_base(cls: type) -> bool:
    """Tell whether a class without a name is a base of others: it is abstract, or its name begins with _."""
    return inspect.isabstract(cls) or cls.__name__.startswith("_")


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("gradsweep", "compressors", "trainers")


# Entry points


@functools.cache
def read_entry_points() -> tuple[EntryPoint, ...]:
    """Return the entry points in our groups of all distributions on sys.path, which are read once.

    This is `importlib.metadata.entry_points`, but opens one file a distribution and parses only those that name us.
    """
    found: list[EntryPoint] = []
    seen: set[str] = set()
    for place in sys.path:
        for folder in _list_metadata(place or os.curdir):
            name = re.sub(r"[-_.]+", "_", os.path.basename(folder).partition("-")[0]).lower()
            if name not in seen:
                seen.add(name)
                found += _read_own(folder)
    return tuple(found)


def _list_metadata(place: str) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return sorted(entry.path for entry in entries if entry.name.endswith(_METADATA))
    except OSError:  # it need not be a directory
        return []


def _read_own(folder: str) -> Iterable[EntryPoint]:
    """Return a distribution's entry points in our groups."""
    try:
        with open(os.path.join(folder, "entry_points.txt"), "rb") as file:
            text = file.read()
    except OSError:
        return []
    if b"[gradsweep." not in text:
        return []
    from importlib.metadata import PathDistribution

    groups = (*GROUPS.values(), CONF)
    points = PathDistribution(Path(folder)).entry_points
    return [EntryPoint(each.group, each.name, each.value, Path(folder)) for each in points if each.group in groups]


def _import_entry_point(point: EntryPoint) -> object:
    """Import the object that an entry point names.

    Raises:
        UsageError: it cannot be imported; the message names the distribution.
    """
    from importlib.metadata import EntryPoint as Reference

    try:
        return Reference(point.name, point.value, point.group).load()
    except (Exception, SystemExit) as error:
        valid = "another version of the distribution, or none"
        raise UsageError(f"{point}: cannot be imported: {describe_error(error)}; valid is {valid}") from error


def list_broken() -> list[str]:
    """Return a line for each class of a distribution that could not join, and for each folder that is not there."""
    lines = [str(error) for members in _members.values() for error in members.broken.values()]
    lacking = [point for point in read_entry_points() if point.group == CONF and _find_folder(point.value) is None]
    return [
        *lines,
        *(f"{point}: there is no such folder; valid is a package, such as my_package.conf" for point in lacking),
    ]


@functools.cache
def list_conf_directories() -> tuple[Path, ...]:
    """Return the folders with YAML files that installed distributions bring."""
    folders = [_find_folder(point.value) for point in read_entry_points() if point.group == CONF]
    return tuple(folder for folder in folders if folder is not None)


def _find_folder(package: str) -> Path | None:
    """Return the folder of a package, such as my_package.conf, without importing anything; None if there is none."""
    top, *inner = package.replace(":", ".").split(".")
    spec = PathFinder.find_spec(top)
    for place in (spec and spec.submodule_search_locations) or ():
        if (folder := Path(place, *inner)).is_dir():
            return folder
    return None


def find_yaml(group: str, name: str, folders: Iterable[Path] = ()) -> Path | None:
    """Return the file of a plug-in's YAML group in `folders` or those of distributions; None without one."""
    paths = (folder / group / f"{name}.yaml" for folder in (*folders, *list_conf_directories()))
    return next((path for path in paths if path.is_file()), None)


# Files and modules


def load(texts: Iterable[object]) -> None:
    """Import the modules that the option `plugins` names, and let their classes join; loaded ones are skipped.

    Raises:
        UsageError: one line with the reason: there is no such file or module, it raises an error, it has no class that
            could join, or one of its classes cannot join.
    """
    known = {plugin.text for plugin in _loaded}
    for text in texts:
        if text not in known:
            target = parse_plugin(text)
            plugin = Plugin(target.text, targets.import_module(KEY, target))
            for members in _members.values():
                members.update()
            if _members and not any(members.find_classes(plugin) for members in _members.values()):
                groups = ", ".join(group for group in GROUPS if group in _members)
                raise UsageError(
                    f"{plugin}: no class in it belongs to a group of the config; valid is a module with a class for "
                    f"{groups} (docs/guide/plugins.md)"
                )
            chosen = {group: members.choose(plugin) for group, members in _members.items()}
            _loaded.append(plugin)
            for group, classes in chosen.items():
                _members[group].join(*classes)


def parse_plugin(text: object) -> Target:
    """Take an item of the option `plugins` apart; nothing is imported.

    Raises:
        UsageError: it is neither a file nor a module.
    """
    if not isinstance(text, str):
        raise bad_value(KEY, text, FORMS)
    return Target(text, *targets.parse_code(KEY, text, text, FORMS), ())


def list_user_code(config: Mapping[str, Any]) -> list[tuple[str, Target]]:
    """Return the plug-ins and targets that a config names, each with its key.

    Raises:
        UsageError: one of them has no valid form.
    """
    found = [(KEY, parse_plugin(text)) for text in config.get(KEY) or ()]
    for key in targets.KEYS:
        if text := look_up(config, key):
            found.append((key, targets.parse_target(key, text)))
    return found
