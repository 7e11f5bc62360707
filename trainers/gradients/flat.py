"""A model's parameters and gradients in two flat buffers, and the units that payloads encode."""

from __future__ import annotations

import copy
import dataclasses
import hashlib

import torch
from torch import nn

from trainers.options.optimizers import EMBEDDINGS, HEAD, MATRICES, VECTORS


@dataclasses.dataclass(frozen=True)
class Unit:
    """The part of the model that one payload encodes: a layer's tensor, or a contiguous piece of the flat buffer (with
    granularity `bucket` or `model`).

    `gradient` is a view of the flat gradient buffer, so writing to it changes the gradients of the model.
    `values` is the matching view of the parameters.
    """

    index: int
    name: str
    gradient: torch.Tensor
    values: torch.Tensor


def find_kinds(model: nn.Module) -> dict[str, str]:
    """Return the kind of every parameter that is trained, by its name.

    `vectors` have one dimension at most. `embeddings` are the weights of `nn.Embedding`, also where the output layer
    shares them. `head` is the weight of the last `nn.Linear`; of a model with embeddings only if it has an output for
    each row of one of them, because other models may compute their outputs without a layer. The rest are `matrices`;
    kernels of convolutions count as such.
    """
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    linear = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    outputs = {len(table) for table in tables}
    head = linear[-1] if linear and (not tables or len(linear[-1]) in outputs) else None

    def find_kind(parameter: nn.Parameter) -> str:
        if any(parameter is table for table in tables):
            return EMBEDDINGS
        if parameter.dim() <= 1:
            return VECTORS
        return HEAD if parameter is head else MATRICES

    return {name: find_kind(parameter) for name, parameter in model.named_parameters() if parameter.requires_grad}


class Flat:
    """The parameters of a model in one float32 buffer `values`, and their gradients in `gradients`, on the model's
    device.

    Every `parameter.data` and `parameter.grad` becomes a view, so backward accumulates in place,
    an exchange sees one array, and an optimizer updates all layers with a handful of operations.
    """

    def __init__(self, model: nn.Module) -> None:
        self.named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.kinds = find_kinds(model)
        size = sum(parameter.numel() for _, parameter in self.named)
        device = self.named[0][1].device if self.named else None
        self.values = torch.empty(size, device=device)
        self.gradients = torch.zeros(size, device=device)
        offset = 0
        for _, parameter in self.named:
            piece = slice(offset, offset + parameter.numel())
            self.values[piece].copy_(parameter.data.reshape(-1))
            parameter.data = self.values[piece].view(parameter.shape)
            parameter.grad = self.gradients[piece].view(parameter.shape)
            offset = piece.stop

    def __len__(self) -> int:
        return self.values.numel()

    def cut(self, first: int, last: int) -> Flat:
        """Return a view of the tensors `first` to before `last`, in the order of the parameters."""
        sizes = [parameter.numel() for _, parameter in self.named]
        piece = slice(sum(sizes[:first]), sum(sizes[:last]))
        part = copy.copy(self)
        part.named, part.values, part.gradients = self.named[first:last], self.values[piece], self.gradients[piece]
        return part

    def replace_buffers(self, values: torch.Tensor, gradients: torch.Tensor) -> Flat:
        """Return the same tensors with other buffers, which need not be those of the model.

        Only an optimizer that looks at no single tensor can use the result.
        """
        part = copy.copy(self)
        part.values, part.gradients = values, gradients
        return part

    def cut_units(self, granularity: str, bucket_mib: float, pieces: int = 1) -> list[Unit]:
        """Cut the gradient into units, in the order of the parameters.

        `layer`: a tensor each, with its shape. `model`: one flat vector, or `pieces` of it that differ in size by one
        element at most, so that as many workers can share the work. `bucket`: neighbouring tensors together up to
        `bucket_mib`; a tensor is never cut, so a larger one is a bucket of its own.
        """
        if granularity == "layer":
            return [
                Unit(index, name, parameter.grad, parameter.data)
                for index, (name, parameter) in enumerate(self.named)
                if parameter.grad is not None
            ]
        if granularity == "model":
            pieces = max(1, min(pieces, len(self)))
            edges = [len(self) * piece // pieces for piece in range(pieces + 1)]
        else:
            edges = self._bucket_edges(int(bucket_mib * 2**20 / self.gradients.element_size()))
        return [
            Unit(index, f"{granularity}-{index}", self.gradients[low:high], self.values[low:high])
            for index, (low, high) in enumerate(zip(edges, edges[1:], strict=False))
        ]

    def _bucket_edges(self, limit: int) -> list[int]:
        """Return the edges of buckets of up to `limit` elements."""
        edges, start, offset = [0], 0, 0
        for _, parameter in self.named:
            if offset > start and offset + parameter.numel() - start > limit:
                edges.append(offset)
                start = offset
            offset += parameter.numel()
        return [*edges, offset]

    def digest(self) -> bytes:
        """Return a hash of all parameters, which is equal on two workers only if every bit is."""
        return hashlib.sha256(self.values.cpu().numpy().tobytes()).digest()
