"""Samples in memory: data sets of separate samples, images or vectors of features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from trainers.data.store import Prepared


def read_rows(x: Any, rows: np.ndarray | slice) -> np.ndarray:
    """Return rows of samples (N, ...) as a dense array, also if they are a sparse matrix of scipy (CSR)."""
    chosen = x[rows]
    return chosen.toarray() if hasattr(chosen, "toarray") else np.asarray(chosen)


@dataclasses.dataclass(frozen=True)
class Arrays:
    """A data set of labelled samples.

    Images are uint8 (N, channels, height, width), with `mean` and `std` of the training set, per channel, in levels.
    Features are float32 (N, width), dense or in a sparse matrix of scipy (CSR), without `mean` and `std`. Labels are
    int64 (N,).
    """

    train_x: Any
    train_y: np.ndarray
    test_x: Any
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
            if isinstance(x, np.ndarray):
                arrays[f"{part}_x"] = x
            else:
                arrays |= {f"{part}_values": x.data, f"{part}_columns": x.indices, f"{part}_starts": x.indptr}
                facts["width"] = x.shape[1]
            arrays[f"{part}_y"] = y
        return Prepared(arrays, facts, sources)


def from_prepared(prepared: Prepared) -> Arrays:
    """Return the arrays from the form that `Arrays.to_prepared` returns."""
    arrays, facts = prepared.arrays, prepared.facts

    def samples(part: str) -> Any:
        if f"{part}_x" in arrays:
            return arrays[f"{part}_x"]
        from scipy import sparse

        parts = tuple(arrays[f"{part}_{name}"] for name in ("values", "columns", "starts"))
        return sparse.csr_matrix(parts, (len(parts[2]) - 1, facts["width"]))

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
