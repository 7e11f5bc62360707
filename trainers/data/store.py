"""Prepared data sets: arrays on disk that all ranks map into memory and share.

A prepared set is a directory `<root>/prepared/<name>` with a .npy file for each array and a meta.json. meta.json is
written last and has facts about the arrays, and their sizes and CRC-32. A set that does not agree with its meta.json,
or whose source files have changed since, is built again.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gradsweep.disk import disk_errors, file_lock
from gradsweep.errors import UsageError
from gradsweep.files import read_json

VERSION = 3

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A prepared data set: named arrays, and facts about them for meta.json; `sources` are the files of origin."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    sources: Sequence[Path] = ()


def refuse_source(dataset: str, path: Path, fault: str, valid: str) -> UsageError:
    """Return the error for a fault in a file or folder from which a data set is made."""
    return UsageError(f"dataset={dataset}: {path.absolute()}: {fault}; valid is {valid}")


def find_directory(root: Path, name: str) -> Path:
    return root / "prepared" / name


def _root(directory: Path) -> Path:
    return directory.parent.parent


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def _compute_stamp(path: Path) -> list[int]:
    """Return size and time of change, which differ when a file's content or a directory's names have changed."""
    status = path.stat()
    return [0 if path.is_dir() else status.st_size, status.st_mtime_ns]


def find_damage(path: Path, *, thorough: bool = True) -> str | None:
    """Describe the damage of the prepared set at `path`, or changes of its sources; return None without either.

    Without `thorough`, only sizes are checked: a rank does this, after the launcher has checked all. Sources that have
    been removed count as unchanged.
    """
    meta = read_json(path / "meta.json")
    if meta is None:
        return "meta.json is missing or damaged"
    if meta.get("version") != VERSION:
        return f"it is of version {meta.get('version')}, this program makes version {VERSION}"
    files = meta.get("files")
    if not isinstance(files, dict) or not files or not isinstance(meta.get("facts"), dict):
        return "meta.json is missing or damaged"
    for name, expected in files.items():
        file = path / f"{name}.npy"
        if not file.is_file():
            return f"{file.name} is missing"
        if file.stat().st_size != expected.get("bytes"):
            return f"{file.name} has {file.stat().st_size} bytes instead of {expected.get('bytes')}"
        if thorough and _checksum(file) != expected.get("crc32"):
            return f"{file.name} does not match its checksum"
    if thorough:
        for source, stamp in meta.get("sources", {}).items():
            file = _root(path) / source
            if file.exists() and _compute_stamp(file) != stamp:
                return f"{file.absolute()} has changed since"
    return None


def load(path: Path) -> Prepared:
    """Map the prepared set at `path` into memory; its arrays are read at their first use."""
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    arrays = {name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in meta["files"]}
    return Prepared(arrays, meta["facts"])


def ensure(root: Path, name: str, build: Callable[[], Prepared]) -> Path:
    """Return the directory of the prepared set `name`, which is built first if missing or damaged.

    Several processes may call this at once: one builds, the others wait.
    """
    target = find_directory(root, name)
    if find_damage(target) is None:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock.take(target.parent / f".{name}.lock", wait_s=math.inf):
        reason = find_damage(target)
        if reason is None:
            return target
        if target.exists():
            log.warning("dataset=%s: %s: %s; it is built again", name, target, reason)
        _write(target, build())
    return target


def _write(target: Path, prepared: Prepared) -> None:
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:80]}."))
    try:
        files = {}
        for name, array in prepared.arrays.items():
            file = temporary / f"{name}.npy"
            with (
                disk_errors.add_file_name(file),
                file.open("wb") as out,
            ):  # numpy's own write to a file does not say what is wrong
                np.save(SimpleNamespace(write=out.write), array, allow_pickle=False)
            files[name] = {"bytes": file.stat().st_size, "crc32": _checksum(file)}
        # relative to the root, which may be moved
        sources = {os.path.relpath(path, _root(target)): _compute_stamp(path) for path in prepared.sources}
        meta = {"version": VERSION, "facts": prepared.facts, "files": files, "sources": sources}
        with disk_errors.add_file_name(temporary / "meta.json"):
            (temporary / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        os.chmod(temporary, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
