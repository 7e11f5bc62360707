"""Features in LIBSVM's format, a sample a line: `label index:value index:value ...`, indices from 1."""

from __future__ import annotations

import bz2
import dataclasses
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from gradsweep.errors import UsageError, bad_value
from trainers.data.arrays import Arrays
from trainers.data.store import Prepared, refuse_source
from trainers.options import datasets as options_of

LINES = 4096
"""The number of lines that are read at once; those of epsilon have 2,000 values."""
MAX_CLASSES = 65_536


@dataclasses.dataclass(frozen=True)
class Source:
    """The paths of a data set's files below data.root; each may have the suffix .bz2, as on LIBSVM's page."""

    name: str
    train: str
    test: str | None
    features: int | None
    dense: bool
    samples: tuple[int, ...] = ()
    """Known numbers of samples; nobody publishes checksums."""


EPSILON = Source("epsilon", "epsilon_normalized", "epsilon_normalized.t", 2000, True, (400_000, 100_000))
RCV1 = Source("rcv1", "rcv1_train.binary", "rcv1_test.binary", 47_236, False, (20_242, 677_399))


def find_source(options: Any) -> Source:
    if isinstance(options, options_of.Epsilon):
        return EPSILON
    if isinstance(options, options_of.RCV1):
        return RCV1
    return Source("libsvm", options.train, options.test, options.features, options.dense)


def _find(root: Path, name: str) -> Path | None:
    for path in (root / name, root / f"{name}.bz2"):
        if path.is_file():
            return path
    return None


def build(options: Any, root: Path, download: bool = False) -> Prepared:
    """Read features as float32, dense or sparse, and number the labels from 0, in ascending order.

    Raises:
        UsageError: files are missing, or a line is not in the format.
    """
    source = find_source(options)
    names = [name for name in (source.train, source.test) if name is not None]
    missing = [name for name in names if _find(root, name) is None]
    if missing:
        raise UsageError(
            f"dataset={source.name}: not found: {', '.join(missing)} in {root.absolute()}; valid is the file, or its "
            f".bz2 from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/, there (or data.root=DIR where it is)"
        )
    paths = [path for name in names if (path := _find(root, name)) is not None]
    parts = [_read(source, path) for path in paths]
    for path, part, count in zip(paths, parts, source.samples, strict=False):
        if len(part.labels) != count:
            fault = f"has {len(part.labels):,} samples instead of {count:,}"
            raise refuse_source(source.name, path, fault, "the published file, or dataset=libsvm for any other")
    width = source.features or max(1, parts[0].width)
    for path, part in zip(paths, parts, strict=True):
        if part.width > width:
            raise refuse_source(source.name, path, f"has index {part.width}", f"up to {width}")
    classes, train_y = np.unique(parts[0].labels, return_inverse=True)
    if len(classes) < 2:
        raise UsageError(f"dataset={source.name}: {paths[0].absolute()}: all labels are alike; valid are two or more")
    if len(classes) > MAX_CLASSES:
        raise UsageError(
            f"dataset={source.name}: {paths[0].absolute()}: has {len(classes)} different labels, as values to be "
            f"predicted would be; valid are classes, up to {MAX_CLASSES}"
        )
    train_x = parts[0].samples(width, source.dense)
    if len(parts) == 2:
        unknown = np.setdiff1d(parts[1].labels, classes)
        if len(unknown):
            raise refuse_source(source.name, paths[1], f"has label {unknown[0]:g}", f"one of {paths[0].name}'s")
        test_x, test_y = parts[1].samples(width, source.dense), np.searchsorted(classes, parts[1].labels)
    else:
        train_x, train_y, test_x, test_y = _split(train_x, train_y, options.test_share)
    labels = [np.ascontiguousarray(y, dtype=np.int64) for y in (train_y, test_y)]
    return Arrays(train_x, labels[0], test_x, labels[1], len(classes)).to_prepared(paths)


def _split(x: Any, y: np.ndarray, share: float) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Split samples into a training set and a random test set with `share` of them, both in the order of the file."""
    count = round(share * len(y))
    if not 0 < count < len(y):
        raise bad_value("dataset.test_share", share, f"a share that leaves {len(y)} samples to train and to test")
    order = np.random.RandomState(0).permutation(len(y))
    test, train = np.sort(order[:count]), np.sort(order[count:])
    return x[train], y[train], x[test], y[test]


@dataclasses.dataclass
class _Read:
    """The content of a file in memory, always as CSR."""

    labels: np.ndarray
    values: list[np.ndarray]
    columns: list[np.ndarray]
    counts: np.ndarray
    width: int

    def samples(self, width: int, dense: bool) -> Any:
        starts = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64)
        if not dense:
            return sparse.csr_matrix(
                (np.concatenate(self.values), np.concatenate(self.columns), starts), (len(self.labels), width)
            )
        kept = np.zeros((len(self.labels), width), dtype=np.float32)
        row = 0
        while self.values:  # given back piece by piece: epsilon's values are 3.2 GB
            values, columns = self.values.pop(0), self.columns.pop(0)
            rows = min(LINES, len(kept) - row)
            kept[np.repeat(np.arange(row, row + rows), self.counts[row : row + rows]), columns] = values
            row += rows
        return kept


def _read(source: Source, path: Path) -> _Read:
    labels, values, columns, counts, width, line = [], [], [], [], 0, 0
    for lines in _chunks(source, path):
        try:
            x, y = _parse(lines)
        except (ValueError, OverflowError) as error:
            number, why = _find_bad_line(lines)
            valid = "`label index:value ...` with rising indices from 1 and finite values"
            raise refuse_source(source.name, path, f"line {line + number}: {why}", valid) from error
        line += len(lines)
        labels.append(y)
        values.append(x.data.astype(np.float32))
        columns.append(x.indices.astype(np.int32))
        counts.append(np.diff(x.indptr))
        width = max(width, int(x.indices.max()) + 1 if len(x.indices) else 0)
    if not labels:
        raise refuse_source(source.name, path, "is empty", "a file of samples")
    return _Read(np.concatenate(labels), values, columns, np.concatenate(counts), width)


def _chunks(source: Source, path: Path) -> Iterator[list[bytes]]:
    with bz2.open(path) if path.suffix == ".bz2" else path.open("rb") as file:
        try:
            while lines := list(itertools.islice(file, LINES)):
                yield lines
        except (OSError, EOFError) as error:
            raise UsageError(f"dataset={source.name}: {path.absolute()}: cannot be unpacked: {error}") from error


def _parse(lines: list[bytes]) -> tuple[Any, np.ndarray]:
    """Return the features (CSR) and the labels of lines.

    Raises:
        ValueError, OverflowError: a line is not in the format; the message says what is wrong.
    """
    from sklearn.datasets import load_svmlight_file

    x, y = load_svmlight_file(io.BytesIO(b"".join(lines)), dtype=np.float32, zero_based=False)
    if len(y) != len(lines):
        raise ValueError("has no sample")
    if not np.isfinite(x.data).all() or not np.isfinite(y).all():
        raise ValueError("has a value that is not finite")
    return x, y


def _find_bad_line(lines: list[bytes]) -> tuple[int, str]:
    """Return the number (from 1) and the error of the first invalid line."""
    for number, line in enumerate(lines, 1):
        try:
            _parse([line])
        except (ValueError, OverflowError) as error:
            return number, " ".join(str(error).split())[:200]
    return 1, "cannot be read"
