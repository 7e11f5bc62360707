"""What the conformance suite runs: every registered compressor, with its defaults and with variants.

A new method is tested with its defaults as soon as it is registered; options that change what is
computed earn a line in VARIANTS.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from compressors import Compressor, Key, registry

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "qsgd": [
        {"levels": 1, "norm": "l2"},
        {"levels": 3, "bucket_size": 100},
        {"levels": 127, "bucket_size": 3000, "norm": "l2"},
        {"levels": 2000, "bucket_size": 1},
    ],
    "svd": [
        {"rank": 1},
        {"budget": 2.5},
        {"budget": 0.4},
        {"random_sample": False},
    ],
}

SHAPES: list[tuple[int, ...]] = [
    (),
    (0,),
    (1,),
    (7,),
    (513,),
    (3, 0, 2),
    (1, 1),
    (1, 9),
    (9, 1),
    (33, 47),
    (97, 30),
    (17, 5, 3, 3),
]


def case_name(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


CASES = [(name, options) for name in registry() for options in [{}, *VARIANTS.get(name, [])]]

every_compressor = pytest.mark.parametrize("compressor", CASES, ids=case_name, indirect=True)
"""With the fixture `compressor` of conftest.py: a new one for every test."""

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def fresh(compressor: Compressor) -> Compressor:
    """The same method and options, without the state."""
    return dataclasses.replace(compressor)


def gaussian(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def key(step: int = 0, *, seed: int = 0, worker: int = 0, unit: int = 0) -> Key:
    return Key(seed, worker, step, unit)


def largest_deviation(samples: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest |z| over the columns of `samples` (draws, statistics) against their `expected` means.

    Columns that vary by no more than the rounding of float32 are left to the caller.
    """
    samples, expected = samples.double(), expected.double()
    spread = samples.std(0)
    varies = spread > 1e-5 * samples.abs().mean()
    z = (samples.mean(0) - expected) / spread * math.sqrt(len(samples))
    return float(z[varies].abs().max()) if varies.any() else 0.0


def critical_z(tests: int, error: float = 1e-6) -> float:
    """|z| that `tests` true hypotheses together exceed with the probability `error` (Bonferroni)."""
    return -float(torch.special.ndtri(torch.tensor(error / tests / 2, dtype=torch.float64)))
