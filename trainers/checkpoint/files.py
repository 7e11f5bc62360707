"""The files in RUN/checkpoint: a directory for each checkpoint, which is complete or missing.

    step-00000120/            after step 120, in the middle of an epoch or before the evaluation at its end
    step-00000144-evaluated/  at the end of an epoch, evaluated
        shared.pt             entries that are the same on all workers
        worker-0.pt ...       the other entries of each worker
        meta.json             format, position, config, and size and SHA-256 of the other files

Files are written into `.step-00000120.partial` and synced to the disk before this directory is renamed to its final
name; a checkpoint that is dropped first gets a name that begins with a dot. So a checkpoint with a final name is
complete, and names that begin with a dot are leftovers.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import torch

from gradsweep.disk import disk_errors
from gradsweep.files import read_json

FORMAT = 1
"""Format of the files; a newer one is refused."""

META = "meta.json"
SHARED = "shared.pt"

_NAME = re.compile(r"step-(\d{8,})(-evaluated)?")


class Damaged(Exception):
    """A checkpoint cannot be used; `str()` gives the reason."""


def name_worker_file(worker: int) -> str:
    """Return the name of a worker's file."""
    return f"worker-{worker}.pt"


def name_checkpoint(step: int, evaluated: bool) -> str:
    """Return the name of the directory of the checkpoint after `step`."""
    return f"step-{step:08d}" + ("-evaluated" if evaluated else "")


def find_checkpoints(root: Path) -> list[Path]:
    """Return the checkpoints in `root`, oldest first."""
    if not root.is_dir():
        return []
    named = [(match, path) for path in root.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for match, path in sorted(named, key=lambda item: (int(item[0][1]), item[0][2] is not None))]


class _Hashing:
    """A binary file for writing that also computes the SHA-256 and the size of what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.hash.update(data)
        self.size += len(data)
        return self.file.write(data)

    def flush(self) -> None:
        self.file.flush()


def write_file(path: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    """Write one file of a checkpoint and sync it to the disk; return its size and hash for meta.json.

    Raises:
        OSError: the file could not be written.
    """
    with disk_errors.add_file_name(path), path.open("wb") as file:
        hashing = _Hashing(file)
        torch.save(dict(value), cast(IO[bytes], hashing))
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": hashing.size, "sha256": hashing.hash.hexdigest()}


def read_file(path: Path, described: Any) -> dict[str, Any]:
    """Return the content of a checkpoint's file, after a check of its size and hash against `described` in meta.json.

    Raises:
        Damaged: the file is not the one that was written.
    """
    if not isinstance(described, Mapping):
        raise Damaged(f"{META} does not describe {path.name}")
    try:
        size = path.stat().st_size
        if size != described.get("bytes"):
            raise Damaged(f"{path.name} has {size} bytes, but {described.get('bytes')} were written")
        with path.open("rb") as file:
            if _sha256(file) != described.get("sha256"):
                raise Damaged(f"the content of {path.name} is not what was written (SHA-256)")
            file.seek(0)
            value = torch.load(file, map_location=_place_on_gpu, weights_only=True)
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror}") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Damaged(f"{path.name} holds something else than tensors, numbers and strings") from error
    if not isinstance(value, dict):
        raise Damaged(f"{path.name} holds a {type(value).__name__}")
    return value


def _sha256(file: IO[bytes], block: int = 2**20) -> str:
    digest = hashlib.sha256()
    while data := file.read(block):
        digest.update(data)
    return digest.hexdigest()


def _place_on_gpu(storage: Any, location: str) -> Any:
    """Place tensors saved from a GPU on this rank's GPU, whose number may differ."""
    return storage if location == "cpu" else storage.cuda(torch.cuda.current_device())


def read_meta(directory: Path) -> dict[str, Any]:
    """Read meta.json.

    Raises:
        Damaged: it is missing, garbled, or of a newer version.
    """
    path = directory / META
    if not path.exists():
        raise Damaged(f"{META} is missing")
    try:
        meta = read_json(path)
    except OSError as error:
        raise Damaged(f"{META} cannot be read: {error.strerror}") from error
    if meta is None or type(meta.get("format")) is not int:
        raise Damaged(f"{META} is garbled")
    if meta["format"] > FORMAT:
        raise Damaged(f"its format {meta['format']} is that of a newer version of Gradsweep; this one knows {FORMAT}")
    kinds: dict[str, Any] = {
        "position": Mapping,
        "config": Mapping,
        "files": Mapping,
        "workers": int,
        "total_s": (int, float),
    }
    if not all(isinstance(meta.get(key), kind) for key, kind in kinds.items()):
        raise Damaged(f"{META} is garbled")
    return meta


def sync(directory: Path) -> None:
    """Sync the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def begin(root: Path, name: str) -> Path:
    """Create the directory into which checkpoint `name` is written, and remove remains of interrupted saves."""
    root.mkdir(exist_ok=True)
    clear(root)
    partial = root / f".{name}.partial"
    partial.mkdir()
    return partial


def commit(partial: Path, name: str, keep: int) -> None:
    """Rename a completely written checkpoint to its final name, and remove all but the last `keep` checkpoints."""
    root = partial.parent
    sync(partial)
    os.rename(partial, root / name)
    sync(root)
    drop(find_checkpoints(root)[:-keep])


def drop(checkpoints: Sequence[Path]) -> None:
    """Remove checkpoints, after renaming each, so that a partly removed one does not count."""
    for path in checkpoints:
        nameless = path.with_name(f".{path.name}.dropped")
        shutil.rmtree(nameless, ignore_errors=True)
        os.rename(path, nameless)
        shutil.rmtree(nameless, ignore_errors=True)


def clear(root: Path) -> None:
    """Remove the remains of interrupted saves and removals."""
    for path in root.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def conclude(root: Path, keep: int) -> None:
    """Remove all but the last `keep` checkpoints after the run; with 0, the whole directory."""
    with contextlib.suppress(OSError):
        known = find_checkpoints(root)
        drop(known[: len(known) - keep])
        clear(root)
        if not keep:
            root.rmdir()
