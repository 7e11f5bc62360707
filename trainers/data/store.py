"""Prepared data sets: arrays on disk that all ranks map into memory and share.

A prepared set is a directory `<root>/prepared/<name>` with train_x.npy (N, C, H, W) uint8,
train_y.npy (N,) int64, the same for test, and meta.json, which is written last and holds the size and
the CRC-32 of every array: what it does not vouch for is built again.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sweep.run import read_json

ARRAYS = ("train_x", "train_y", "test_x", "test_y")
VERSION = 1

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Arrays:
    """One data set. Images are uint8; a model sees (x - mean) / std, per channel."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.train_x.shape[1:]
        return channels, height, width


def of_images(train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, classes: int) -> Arrays:
    """Arrays with the mean and standard deviation of the training images, per channel."""
    # sums of uint8 in exact integers: no float copy of the data set, the same on every machine
    counts = [np.bincount(train_x[:, c].ravel(), minlength=256) for c in range(train_x.shape[1])]
    levels = np.arange(256, dtype=np.float64)
    mean = [float(count @ levels / count.sum()) for count in counts]
    std = [
        float(np.sqrt(count @ (levels - m) ** 2 / count.sum())) or 1.0 for count, m in zip(counts, mean, strict=True)
    ]
    return Arrays(train_x, train_y, test_x, test_y, classes, tuple(mean), tuple(std))


def directory(root: Path, name: str) -> Path:
    return root / "prepared" / name


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value


def damage(path: Path, *, thorough: bool = True) -> str | None:
    """What is wrong with the prepared set at `path`, in words; None if nothing is.

    Without `thorough` the sizes are checked only: what a rank does, after the launcher has read all.
    """
    meta = read_json(path / "meta.json")
    if meta is None:
        return "meta.json is missing or damaged"
    if meta.get("version") != VERSION:
        return f"it is of version {meta.get('version')}, this program makes version {VERSION}"
    for name in ARRAYS:
        file, expected = path / f"{name}.npy", meta.get("files", {}).get(name, {})
        if not file.is_file():
            return f"{file.name} is missing"
        if file.stat().st_size != expected.get("bytes"):
            return f"{file.name} has {file.stat().st_size} bytes instead of {expected.get('bytes')}"
        if thorough and _checksum(file) != expected.get("crc32"):
            return f"{file.name} does not match its checksum"
    return None


def load(path: Path) -> Arrays:
    """Map the prepared set at `path`; its images are not read before they are used."""
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    arrays = {name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
    return Arrays(**arrays, classes=meta["classes"], mean=tuple(meta["mean"]), std=tuple(meta["std"]))


def ensure(root: Path, name: str, build: Callable[[], Arrays]) -> Path:
    """The directory of the prepared set `name`, built now if it is missing or damaged.

    Several processes may call this at once: one builds, the others wait.
    """
    target = directory(root, name)
    if damage(target) is None:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = damage(target)
        if reason is None:
            return target
        if target.exists():
            log.warning("dataset=%s: %s: %s; it is built again", name, target, reason)
        _write(target, build())
    return target


def _write(target: Path, arrays: Arrays) -> None:
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        files = {}
        for name in ARRAYS:
            file = temporary / f"{name}.npy"
            np.save(file, getattr(arrays, name), allow_pickle=False)
            files[name] = {"bytes": file.stat().st_size, "crc32": _checksum(file)}
        meta = {
            "version": VERSION,
            "classes": arrays.classes,
            "mean": arrays.mean,
            "std": arrays.std,
            "files": files,
        }
        (temporary / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")
        os.chmod(temporary, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
