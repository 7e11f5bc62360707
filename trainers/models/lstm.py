"""The LSTM language model (Zaremba et al., "Recurrent Neural Network Regularization", 2014), as ChocoSGD trains it.

On WikiText-2 (28,869 words), three layers of 650 units with tied vectors have 28,949,319 parameters.
"""

from __future__ import annotations

import torch
from torch import nn

from trainers.options import models as options

RANGE = 0.1
"""Words' vectors are uniform in [-RANGE, RANGE] at first, as in torch's example of a language model and in ChocoSGD."""


class LanguageModel(nn.Module):
    """Predicts the next word at every position of a batch of streams of text.

    Input (n, length) int64, the next `length` words of n streams; output (n, length, words). The hidden state of each
    stream is carried from batch to batch, but no gradient flows back to earlier batches. It is reset when the number of
    streams changes, and by `train()` and `eval()`, which begin an epoch or an evaluation.

    The hidden state is no buffer of the module, because buffers are averaged over the workers.
    """

    def __init__(self, words: int, hidden: int, layers: int, dropout: float, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.decoder = nn.Linear(hidden, words)
        self.dropout = nn.Dropout(dropout)
        if tied:
            self.decoder.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -RANGE, RANGE)
        if not tied:
            nn.init.uniform_(self.decoder.weight, -RANGE, RANGE)
        nn.init.zeros_(self.decoder.bias)
        self._state: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        vectors = self.dropout(self.embedding(words))
        outputs, (hidden, cell) = self._layers(vectors)
        self._state = hidden.detach(), cell.detach()
        return self.decoder(self.dropout(outputs))

    def _layers(self, vectors: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Apply the LSTM layers: (n, length, hidden) to the same shape, and the state after the last word."""
        state = self._state
        if state is not None and state[0].shape[1] < len(vectors):
            state = None
        elif state is not None:  # a batch with fewer rows continues the first ones
            state = state[0][:, : len(vectors)].contiguous(), state[1][:, : len(vectors)].contiguous()
        if state is not None:  # under autocast it is of 16 bits, and what follows may not be
            state = state[0].to(vectors.dtype), state[1].to(vectors.dtype)
        if vectors.device.type == "cpu":  # where few processors have LSTMs of 16 bits, and torch fails on the others
            with torch.autocast("cpu", enabled=False):
                return self.lstm(vectors, state)
        return self.lstm(vectors, state)

    def train(self, mode: bool = True) -> LanguageModel:
        """Set training or evaluation mode, and reset the state: either mode begins at the beginning of a text."""
        self.forget()
        super().train(mode)
        return self

    def forget(self) -> None:
        """Reset the state, because the next batch is the beginning of a text."""
        self._state = None

    def copy_carried(self) -> dict[str, torch.Tensor]:
        """Return a copy of the state for the next batch: `hidden` and `cell`, (layers, n, hidden); empty at the start.

        It belongs into a worker's checkpoint: another model with the same parameters continues from it after `carry`.
        """
        if self._state is None:
            return {}
        return {"hidden": self._state[0].clone(), "cell": self._state[1].clone()}

    def carry(self, carried: dict[str, torch.Tensor]) -> None:
        """Restore the state from `copy_carried`; call this after `train()`, which resets it."""
        if not carried:
            self.forget()
            return
        like = self.decoder.bias
        self._state = carried["hidden"].to(like.device, copy=True), carried["cell"].to(like.device, copy=True)


def build(config: options.LSTM, shape: tuple[int, ...], classes: int) -> LanguageModel:
    """Build the model for `classes` words; LSTM layers start as torch's do, uniform within 1 / sqrt(hidden)."""
    return LanguageModel(classes, config.hidden, config.layers, config.dropout, config.tied)
