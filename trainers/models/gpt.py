"""The GPT language model: a decoder-only transformer with pre-normalised blocks (Radford et al., 2019).

Its options also make the blocks of Llama (Touvron et al., 2023): RMSNorm, rotary positions and SwiGLU.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from trainers.options import models as options

INIT_STD = 0.02
"""Standard deviation of the initial weights (GPT-2); of a block's two outputs it is divided by sqrt(2 layers)."""
ROTARY_BASE = 10_000.0


class Attention(nn.Module):
    """Causal self-attention: every position sees itself and earlier ones; (n, length, width) to the same shape."""

    def __init__(self, width: int, heads: int, bias: bool, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width, bias)
        self.output = nn.Linear(width, width, bias)

    def forward(self, x: torch.Tensor, angles: torch.Tensor | None) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        dropped = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=dropped, is_causal=True)
        return self.output(seen.transpose(1, 2).reshape(n, length, width))


class FeedForward(nn.Module):
    """Two layers with GELU, or SwiGLU (Shazeer, 2020): silu(gate) * hidden; (n, length, width) to the same shape."""

    def __init__(self, width: int, inner: int, gated: bool, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias) if gated else None
        self.hidden = nn.Linear(width, inner, bias)
        self.output = nn.Linear(inner, width, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.hidden(x)
        return self.output(F.gelu(hidden) if self.gate is None else F.silu(self.gate(x)) * hidden)


class Block(nn.Module):
    """Attention and feed-forward layers, each behind a normalisation and beside a residual connection."""

    def __init__(self, config: options.GPT) -> None:
        super().__init__()
        self.attention_norm = build_norm(config)
        self.attention = Attention(config.width, config.heads, config.bias, config.dropout)
        self.feed_forward_norm = build_norm(config)
        self.feed_forward = FeedForward(config.width, config.inner_width, config.activation == "swiglu", config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor, angles: torch.Tensor | None) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), angles))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))


class GPT(nn.Module):
    """Predicts the next token at every position of a batch of texts.

    Input (n, length) int64, with a length of at most `context`; output (n, length, words).
    """

    def __init__(self, config: options.GPT, words: int, context: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, config.width)
        self.positions = nn.Embedding(context, config.width) if config.positions == "learned" else None
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = build_norm(config)
        self.head = nn.Linear(config.width, words, bias=False)
        self.rotary_width = config.width // config.heads
        self._initialise(config.layers)
        if config.tied:
            self.head.weight = self.embedding.weight

    def _initialise(self, layers: int) -> None:
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                is_output = name.startswith("blocks.") and name.endswith(".output")
                nn.init.normal_(module.weight, std=INIT_STD / math.sqrt(2 * layers) if is_output else INIT_STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x, angles = self.embedding(tokens), None
        if self.positions is None:
            angles = compute_angles(places, self.rotary_width)
        else:
            x = x + self.positions(places)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, angles)
        return self.head(self.norm(x))


def build_norm(config: options.GPT) -> nn.Module:
    if config.norm == "rms":
        return nn.RMSNorm(config.width, eps=1e-5)
    return nn.LayerNorm(config.width, bias=config.bias)


def compute_angles(places: torch.Tensor, width: int) -> torch.Tensor:
    """Return the angles of rotary positions (Su et al., RoFormer, 2021, equation 15): (length, width / 2).

    Args:
        width: of a head.
    """
    frequencies = ROTARY_BASE ** (-torch.arange(0, width, 2, device=places.device) / width)
    return torch.outer(places, frequencies)


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of elements i and i + width / 2 of (..., length, width) by its angle."""
    cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def build(config: options.GPT, shape: tuple[int, ...], classes: int) -> GPT:
    """Build the model for `classes` tokens and texts of shape[0] of them."""
    return GPT(config, classes, config.context or shape[0])
