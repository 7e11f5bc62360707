"""Read the files of a run, even if they are damaged."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from gradsweep.disk import regular_files
from reports.reading import configs
from reports.reading.text import clean

Stamp = tuple[int, int]
"""A file's size in bytes and time of the last change in nanoseconds: they change when it is written."""
NO_FILE: Stamp = (-1, -1)


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """A file or directory that a report leaves out, and the reason."""

    path: Path
    reason: str


class DirectoryFiles:
    """The files of one directory; reading them records their stamps and the unreadable ones.

    Attributes:
        stamps: for each file asked for, its stamp before it was read, by path in the directory.
        left_out: the files that could not be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stamps: dict[str, Stamp] = {}
        self.left_out: list[LeftOut] = []

    def exists(self, name: str) -> bool:
        return self._note_stamp(name) != NO_FILE

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if it does not exist or cannot be read."""
        self._note_stamp(name)
        try:
            return regular_files.read_bytes(os.path.join(self.directory, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.leave_out(name, error)
            return None

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the object in a JSON file; None if the file does not exist or has no object."""
        data = self.read(name)
        if data is None:
            return None
        try:
            value = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self.leave_out(name, "not a JSON object")
            return None
        return value if self._is_known_format(name, value) else None

    def read_config(self, known: configs.Configs) -> configs.Config | None:
        """Return the keys and sections of config.yaml; None if it cannot be used."""
        data = self.read(run_directory.CONFIG)
        if data is None:
            if not self.left_out:
                self.leave_out("", f"no {run_directory.CONFIG}")
            return None
        try:
            config = known.read(data)
        except ValueError as error:
            self.leave_out(run_directory.CONFIG, error)
            return None
        if not config.keys:
            self.leave_out(run_directory.CONFIG, "says nothing about what is computed")
        return config if config.keys and self._is_known_format(run_directory.CONFIG, config.keys) else None

    def read_yaml(self, name: str) -> dict[str, Any]:
        """Return the content of a YAML file; empty if the file is missing or unusable."""
        data = self.read(name)
        try:
            value = {} if data is None else configs.load_mapping(data)
        except ValueError as error:
            self.leave_out(name, error)
            return {}
        return value if self._is_known_format(name, value) else {}

    def leave_out(self, name: str, reason: Exception | str) -> None:
        """Record why a file is not used, or if `name` is empty the whole directory."""
        self.left_out.append(LeftOut(self.directory / name, format_reason(reason)))

    def _note_stamp(self, name: str) -> Stamp:
        self.stamps[name] = found = read_stamp(os.path.join(self.directory, name))
        return found

    def _is_known_format(self, name: str, value: dict[str, Any]) -> bool:
        version = value.get("format")
        if isinstance(version, int) and version > run_directory.FORMAT:
            self.leave_out(name, f"format {version} is newer than this program, which knows {run_directory.FORMAT}")
            return False
        return True


def read_stamp(path: str) -> Stamp:
    """Return the stamp of a file (size and modification time); NO_FILE if the file is missing or inaccessible."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return NO_FILE
    return found.st_size, found.st_mtime_ns


def format_reason(error: Exception | str) -> str:
    """Return the text of an error as one line, without the path."""
    if isinstance(error, str):
        return error
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return clean(" ".join(text.split()))
