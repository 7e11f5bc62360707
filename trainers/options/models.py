"""Models by name; built by trainers/models."""

from __future__ import annotations

import dataclasses

from compressors.parameters import InvalidParameter, integer, number
from trainers.options.base import Part


@dataclasses.dataclass(frozen=True)
class WideResNet(Part):
    """Zagoruyko and Komodakis, BMVC 2016: WRN-depth-widen with pre-activation blocks."""

    depth: int = integer(10, low=10)
    widen: int = integer(1, low=1)
    dropout: float = number(0.0, 0.0, 0.99)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.depth - 4) % 6:
            raise InvalidParameter("depth", self.depth, "6 n + 4 for a whole n: 10, 16, 22, 28, 34, 40, ...")


@dataclasses.dataclass(frozen=True)
class MLP(Part):
    """Fully connected layers with ReLU; no normalisation, so gradients add up exactly over workers."""

    width: int = integer(128, low=1)
    layers: int = integer(2, low=1)


MODELS: dict[str, type] = {"wideresnet": WideResNet, "mlp": MLP}
