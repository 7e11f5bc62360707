"""The hidden state that a language model carries from batch to batch, for batches computed in pieces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


@contextlib.contextmanager
def keep_hidden_state(model: nn.Module) -> Iterator[None]:
    """Restore the hidden state that a language model carries after the block, which evaluates it."""
    untyped: Any = model
    if not hasattr(model, "carry"):
        yield
        return
    carried = untyped.copy_carried()
    yield
    untyped.carry(carried)


class HiddenState:
    """Cuts the hidden state of a batch of `samples` into `count` pieces, one for each piece of the batch.

    Pieces are cut as trainers.replica.replica.split_batch cuts the batch. Only models with methods `copy_carried` and
    `carry` have a hidden state; its tensors have the samples in their second dimension (trainers/models/lstm.py). Call
    `begin` and `end` around the forward of each piece, in order; after the last one the model carries all pieces again.
    """

    def __init__(self, model: nn.Module, count: int, samples: int) -> None:
        untyped: Any = model  # mypy does not know its methods
        self.model = untyped if count > 1 and hasattr(model, "carry") else None
        self._before: list[dict[str, torch.Tensor]] = []
        self._after: list[dict[str, torch.Tensor]] = []
        if self.model is None:
            return
        carried: dict[str, torch.Tensor] = self.model.copy_carried()
        if any(tensor.shape[1] != samples for tensor in carried.values()):
            carried = {}  # another number of samples begins without a state
        cut = {name: tensor.tensor_split(count, 1) for name, tensor in carried.items()}
        self._before = [{name: pieces[number] for name, pieces in cut.items()} for number in range(count)]

    def begin(self) -> None:
        """Set the model's state to that of the next piece."""
        if self.model is not None:
            self.model.carry(self._before[len(self._after)])

    def end(self) -> None:
        """Store the state after the piece; after the last piece, set the model's state to that of the whole batch."""
        if self.model is None:
            return
        self._after.append(self.model.copy_carried())
        if len(self._after) == len(self._before):
            names = self._after[0]
            self.model.carry({name: torch.cat([piece[name] for piece in self._after], 1) for name in names})
