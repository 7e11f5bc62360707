"""Sparsifiers that keep the largest elements; the shape alone determines how many."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from compressors.base import EXACT, Law
from compressors.kernels import backend
from compressors.lazy import torch
from compressors.random_key import Key
from compressors.sparsification import counts
from compressors.sparsification.sparsifier import RatioSparsifier


@dataclasses.dataclass(frozen=True)
class TopK(RatioSparsifier):
    """The k elements with the largest magnitudes, exactly (Aji and Heafield, "Sparse communication for
    distributed gradient descent", EMNLP 2017; Stich et al., "Sparsified SGD with memory", NeurIPS 2018).

    k is `ratio` of the number of elements by the rule `count` (see `counts`). Of equal magnitudes those with
    the lower positions are kept; NaN is larger than Inf, and Inf larger than all numbers. With `values: mean`
    the k largest elements of the step's sign are kept, or fewer if no more have it.

    Payload and values: see `Sparsifier`. Up to k NaN or Inf arrive, so that the receiver sees at least one of them.
    More than k are what everything is that is not sent: kept in the memory, or zero if there is none.
    """

    name: ClassVar[str] = "topk"
    aliases: ClassVar[tuple[str, ...]] = ("top_k",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {"dgc_topk": {"ratio": 0.001, "count": "floor_plus_one"}}
    paper: ClassVar[str] = "Aji and Heafield, EMNLP 2017"
    reported: ClassVar[str] = "CIFAR-100, ResNet-18, error feedback: 70.4 % (71.4 %); documentation of BytePS"

    ratio: float = counts.ratio(0.01)

    bound_kept = count_kept = RatioSparsifier.compute_k

    def selection_law(self, n: int) -> Law:
        # The k largest squares are no smaller on average than all n; equal magnitudes reach the bound.
        return EXACT if self.compute_k(n) == n else Law(delta=self.compute_k(n) / n)

    def select(self, x: torch.Tensor, key: Key, side: int = 0) -> torch.Tensor:
        kept: torch.Tensor = backend.load("selection", x.device).topk(x, self.compute_k(len(x)), side)
        return kept
