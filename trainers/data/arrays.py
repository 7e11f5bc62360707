"""Samples in memory: data sets of separate samples, images or vectors of features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from trainers.data.store import Prepared


class SparseRows:
    """Vectors (N, width) with few non-zero values (CSR); an index returns dense float32."""

    def __init__(self, values: np.ndarray, columns: np.ndarray, starts: np.ndarray, width: int) -> None:
        self.values, self.columns, self.starts = values, columns, starts
        self.shape = (len(starts) - 1, width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        wanted = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        first, counts = self.starts[wanted], self.starts[wanted + 1] - self.starts[wanted]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - counts), counts)
        dense = np.zeros((len(wanted), self.shape[1]), dtype=np.float32)
        dense[np.repeat(np.arange(len(wanted)), counts), self.columns[places]] = self.values[places]
        return dense


@dataclasses.dataclass(frozen=True)
class Arrays:
    """A data set of labelled samples.

    Images are uint8 (N, channels, height, width), and `mean` and `std` those of the training set, per channel, in
    levels; features are float32 (N, width), without. Labels are int64 (N,).
    """

    train_x: np.ndarray | SparseRows
    train_y: np.ndarray
    test_x: np.ndarray | SparseRows
    test_y: np.ndarray
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train_x.shape[1:])

    def to_prepared(self, sources: Any = ()) -> Prepared:
        """Return the data set in the form in which the store keeps it."""
        arrays: dict[str, np.ndarray] = {}
        facts: dict[str, Any] = {"classes": self.classes, "mean": list(self.mean), "std": list(self.std)}
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if isinstance(x, SparseRows):
                arrays |= {f"{part}_values": x.values, f"{part}_columns": x.columns, f"{part}_starts": x.starts}
                facts["width"] = x.shape[1]
            else:
                arrays[f"{part}_x"] = x
            arrays[f"{part}_y"] = y
        return Prepared(arrays, facts, sources)


def from_prepared(prepared: Prepared) -> Arrays:
    """Return the arrays from the form that `Arrays.to_prepared` returns."""
    arrays, facts = prepared.arrays, prepared.facts

    def samples(part: str) -> np.ndarray | SparseRows:
        if f"{part}_x" in arrays:
            return arrays[f"{part}_x"]
        values, columns, starts = (arrays[f"{part}_{name}"] for name in ("values", "columns", "starts"))
        return SparseRows(values, columns, starts, facts["width"])

    return Arrays(
        samples("train"),
        arrays["train_y"],
        samples("test"),
        arrays["test_y"],
        facts["classes"],
        tuple(facts["mean"]),
        tuple(facts["std"]),
    )


def from_images(
    train_x: np.ndarray, train_y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray, classes: int
) -> Arrays:
    """Return arrays that include the mean and standard deviation of the training images, per channel."""
    # sums of uint8 in exact integers: no float copy of the data set, the same on every machine
    counts = [np.bincount(train_x[:, c].ravel(), minlength=256) for c in range(train_x.shape[1])]
    levels = np.arange(256, dtype=np.float64)
    mean = [float(count @ levels / count.sum()) for count in counts]
    std = [
        float(np.sqrt(count @ (levels - m) ** 2 / count.sum())) or 1.0 for count, m in zip(counts, mean, strict=True)
    ]
    return Arrays(train_x, train_y, test_x, test_y, classes, tuple(mean), tuple(std))
