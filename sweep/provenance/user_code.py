"""The user's own code of a run: the plug-ins and targets that its config names, and what they import.

Code in the directory in which the command was typed is copied into the snapshot, from which ranks import it: the files
of plug-ins and targets, the top-level packages that hold them, and what these import from that directory. So are the
files that the command of a script names (trainer=script), with what they import from the script's directory. Of an
installed distribution the name, the version and a hash of its files are recorded.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path, PurePosixPath
from typing import Any

from gradsweep import plugins, targets
from gradsweep.errors import UsageError, bad_value
from gradsweep.run_directory import is_script
from gradsweep.targets import Target
from sweep.provenance import code_snapshot, snapshot_integrity
from sweep.provenance.code_snapshot import Code

FACT = "user_code"
"""The key of sweep.yaml and of provenance.json for the user's code."""
MOST_BYTES = 256 << 20
"""Bytes of code in the user's directory, at most: more is data."""
MOST_SCRIPT_BYTES = 64 << 20
"""Bytes of a file that the command of a script names, at most: more is data."""
MOST_HASHED_BYTES = 64 << 20
"""Bytes of a distribution's files that are hashed; of a larger one its list of files is (RECORD)."""
_OURS = (*code_snapshot.ROOMS, "hydra_plugins", "multirun")


@dataclasses.dataclass(frozen=True)
class UserCode:
    """The code of the user for a run.

    Attributes:
        codes: the files in the user's directories, one entry for each directory with such files.
        distributions: name, version and `sha256` of the files of each installed distribution with further code.
    """

    codes: tuple[Code, ...]
    distributions: tuple[Mapping[str, str | None], ...]

    @property
    def digest(self) -> str:
        """SHA-256 over names and contents of all code, in hex."""
        whole = [*(code.digest for code in self.codes), *(sorted(each.items()) for each in self.distributions)]
        return hashlib.sha256(json.dumps(whole, default=str).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the entry for provenance.json, by which sweep.reuse compares runs."""
        return {
            "digest": self.digest,
            "code": sorted({name.partition("/")[0] for code in self.codes for name in code.files}),
            "distributions": [dict(each) for each in self.distributions],
        }


def take(codes: Iterable[UserCode], store: Path | None) -> dict[str, str]:
    """Copy the user's code into the snapshots in `store`; return the variable by which ranks find it.

    Without a store the variable names the user's directories themselves.

    Raises:
        UsageError: the store cannot be written.
    """
    found = dict.fromkeys(code for each in codes for code in each.codes)
    places = [str((code.root if store is None else code_snapshot.take(code, store)).absolute()) for code in found]
    return {targets.USER_CODE: os.pathsep.join(dict.fromkeys(places))} if places else {}


def find(config: Mapping[str, Any]) -> UserCode | None:
    """Return the user's code that a resolved config names, as it was at the first call of this process; None without.

    Raises:
        UsageError: code that the config names is not there.
    """
    named = (*plugins.list_user_code(config), *_list_script_files(config))
    directories = (Path(config["trainer"]["directory"]),) if is_script(config) else targets.list_directories()
    points = plugins.read_entry_points()
    words = set(_list_texts(config)) if points else set()
    tops = {point.value.partition(":")[0].partition(".")[0] for point in points if point.name in words}
    return _find(named, tuple(sorted(tops)), directories) if named or tops else None


def _list_script_files(config: Mapping[str, Any]) -> Iterator[tuple[str, Target]]:
    """Yield the files that the command of a script names below its directory, each with its key."""
    if not is_script(config):
        return
    program, *words = config["trainer"]["command"]
    for word in [*([program] if "/" in program else []), *words]:
        file = PurePosixPath(word)
        path = Path(config["trainer"]["directory"], file)
        is_below = not file.is_absolute() and ".." not in file.parts
        if is_below and path.is_file() and path.stat().st_size <= MOST_SCRIPT_BYTES:
            yield "trainer.command", Target(word, None, file, ())


def _list_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a config: a plug-in's class may be named anywhere, such as in policy.patterns."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _list_texts(inner)


@functools.lru_cache(maxsize=4096)
def _find(named: tuple[tuple[str, Target], ...], tops: tuple[str, ...], directories: tuple[Path, ...]) -> UserCode:
    importlib.invalidate_caches()
    search = _Search(tuple(directory.resolve() for directory in directories))
    for key, target in named:
        if not (search.add_file(target) if target.module is None else search.add_top(target.module.partition(".")[0])):
            where = ", ".join(map(str, directories))
            valid = f"code that exists: there is none in {where}; another directory is named by {targets.USER_CODE}"
            raise bad_value(key, target.text, valid)
    for top in tops:
        search.add_top(top)
    return search.build()


class _Search:
    """Collects the files in the user's directories, and the top-level packages that are installed."""

    def __init__(self, directories: tuple[Path, ...]) -> None:
        self._directories = directories
        self._files: dict[Path, set[str]] = {}  # by directory
        self._installed: dict[str, tuple[Path, ...]] = {}  # paths of top-level packages
        self._known: set[str] = set()

    def add_file(self, target: Target) -> bool:
        """Add the file of a target, and what it imports; return whether it exists."""
        for directory in self._directories:
            if (directory / str(target.file)).is_file():
                self._add(directory, [str(target.file)])
                return True
        return False

    def add_top(self, top: str, beside: Path | None = None) -> bool:
        """Add a top-level module or package by name; return whether it exists.

        Args:
            beside: a directory in which Python looks last; what is found there counts as the user's.
        """
        if top in self._known or top in _OURS or top in sys.builtin_module_names:
            return True
        folders = [*map(str, self._directories), *sys.path, *([str(beside)] if beside else [])]
        spec = PathFinder.find_spec(top, folders)
        if spec is None:
            return top in sys.stdlib_module_names
        self._known.add(top)
        paths = _list_paths(spec)
        for path in paths:
            place = next((each for each in self._directories if _is_code_of(path, each, beside)), None)
            if place is not None:
                self._add(place, _list_files(place, path))
            elif top not in sys.stdlib_module_names:
                self._installed[top] = paths
        return True

    def _add(self, directory: Path, files: Iterable[str]) -> None:
        """Add files of a directory, and what they import from the user's directories."""
        mine = self._files.setdefault(directory, set())
        new = [name for name in files if name not in mine]
        mine.update(new)
        for name in new:
            if name.endswith(".py"):
                for top in _list_imports(directory / name):
                    if not self._is_installed(top):
                        self.add_top(top, (directory / name).parent)

    def _is_installed(self, top: str) -> bool:
        """Tell whether Python finds a package, that the user's code imports, outside of the user's directories.

        Such packages are requirements, and no code of the user.
        """
        spec = PathFinder.find_spec(top, [*map(str, self._directories), *sys.path])
        return spec is not None and not any(
            path.parent == directory for path in _list_paths(spec) for directory in self._directories
        )

    def build(self) -> UserCode:
        codes = [_hash(directory, sorted(files)) for directory, files in self._files.items() if files]
        distributions = [_describe_distribution(top, paths) for top, paths in sorted(self._installed.items())]
        return UserCode(tuple(codes), tuple(distributions))


def _list_paths(spec: ModuleSpec) -> tuple[Path, ...]:
    """Return the file of a top-level module, or the folders of a package."""
    if spec.submodule_search_locations is not None:
        return tuple(Path(place).resolve() for place in spec.submodule_search_locations)
    return (Path(spec.origin).resolve(),) if spec.origin else ()


def _is_code_of(path: Path, directory: Path, beside: Path | None) -> bool:
    """Tell whether a module lies in the user's directory, or beside a file that is named there."""
    return path.parent == directory or (
        beside is not None and path.parent == beside and beside.is_relative_to(directory)
    )


def _list_files(root: Path, path: Path) -> list[str]:
    """Return a file, or the files of a package without those that git ignores, relative to `root`.

    Raises:
        UsageError: they are too large to be copied.
    """
    if path.is_file():
        return [path.relative_to(root).as_posix()]
    names = [name for name in code_snapshot.list_files(root, [path.relative_to(root).as_posix()])]
    size = sum((root / name).stat().st_size for name in names)
    if size > MOST_BYTES:
        raise UsageError(
            f"{path}: the package has {size >> 20} MiB, which a snapshot would copy; valid is a package of up to "
            f"{MOST_BYTES >> 20} MiB, with data elsewhere"
        )
    return names


def _list_imports(file: Path) -> list[str]:
    """Return the top-level names of the modules that a file imports anywhere; none for a file that cannot be parsed."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.append(node.module.partition(".")[0])
    return list(dict.fromkeys(found))


def _hash(root: Path, files: list[str]) -> Code:
    digest = snapshot_integrity.compute_digest(snapshot_integrity.hash_files(root, files).items())
    return Code(root, tuple(files), digest, digest)


def _describe_distribution(top: str, paths: tuple[Path, ...]) -> dict[str, str | None]:
    """Return name and version of the distribution that holds a package, and a hash of the package's files."""
    from importlib import metadata

    names = metadata.packages_distributions().get(top, ())
    found = metadata.distribution(names[0]) if names else None
    listed = None if found is None else found.read_text("RECORD")
    files = [
        (path.parent, file.relative_to(path.parent).as_posix())
        for path in paths
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.is_file() and snapshot_integrity.CACHE not in file.parts
    ]
    if listed is not None and sum((root / name).stat().st_size for root, name in files) > MOST_HASHED_BYTES:
        digest = hashlib.sha256(listed.encode()).hexdigest()
    else:
        hashes = [(name, snapshot_integrity.hash_files(root, [name])[name]) for root, name in files]
        digest = snapshot_integrity.compute_digest(hashes)
    return {
        "name": top if found is None else found.metadata["Name"],
        "version": None if found is None else found.version,
        "sha256": digest,
    }
