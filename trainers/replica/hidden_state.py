"""What a model carries from batch to batch, where it computes a batch in pieces: each piece has its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class HiddenState:
    """Gives each of `count` pieces of a batch of `samples` what the samples in it have left behind.

    Cut as trainers.replica.replica.split_batch cuts the batch. For models with methods `carried` and `carry`, whose
    tensors have
    the samples in their second dimension (trainers/models/lstm.py); others have nothing to carry. Call `begin` and
    `end` around each piece's forward, in their order; after the last one the model carries what all have left.
    """

    def __init__(self, model: nn.Module, count: int, samples: int) -> None:
        carrying: Any = model  # mypy knows no methods of it
        self.model = carrying if count > 1 and hasattr(model, "carry") else None
        self._before: list[dict[str, torch.Tensor]] = []
        self._after: list[dict[str, torch.Tensor]] = []
        if self.model is None:
            return
        carried: dict[str, torch.Tensor] = self.model.carried()
        if any(tensor.shape[1] != samples for tensor in carried.values()):
            carried = {}  # other samples begin afresh
        cut = {name: tensor.tensor_split(count, 1) for name, tensor in carried.items()}
        self._before = [{name: parts[number] for name, parts in cut.items()} for number in range(count)]

    def begin(self) -> None:
        """The next piece comes."""
        if self.model is not None:
            self.model.carry(self._before[len(self._after)])

    def end(self) -> None:
        """It has been computed."""
        if self.model is None:
            return
        self._after.append(self.model.carried())
        if len(self._after) == len(self._before):
            names = self._after[0]
            self.model.carry({name: torch.cat([part[name] for part in self._after], 1) for name in names})
