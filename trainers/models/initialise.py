"""Initial weights that more than one family has."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


def draw_he_normal(model: nn.Module) -> None:
    """Convolutions normal with variance 2 / (kernel height x width x output channels), their biases zero.

    He et al., "Delving Deep into Rectifiers", ICCV 2015, with the fan of the output, as fb.resnet.torch has it.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def clear_scale(norms: Iterable[nn.BatchNorm2d]) -> None:
    """The last batch normalisations of residual branches start at zero, so that a block is the identity at first.

    Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 5.1.
    """
    for norm in norms:
        nn.init.zeros_(norm.weight)
