"""The options of optimizers by name; trainers/optimizers implements them."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsweep.options.parameters import Checked, InvalidParameter, boolean, integer, mapping, number
from trainers.options.own_code import ARGS, target


@dataclasses.dataclass(frozen=True)
class SGD(Checked):
    """Stochastic gradient descent with momentum, in PyTorch's convention (dampening 0)."""

    lr: float = number(0.1, 0.0)
    momentum: float = number(0.9, 0.0, 0.9999)
    nesterov: bool = boolean(True)
    weight_decay: float = number(5e-4, 0.0)
    decay_1d: bool = boolean(True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and self.momentum == 0:
            raise InvalidParameter("nesterov", True, "false where momentum is 0")


@dataclasses.dataclass(frozen=True)
class DGCSGD(SGD):
    """SGD for memory=dgc: the memory applies momentum to gradients, and the optimizer only to weight decay."""

    nesterov: bool = boolean(False)
    weight_decay: float = number(1e-4, 0.0)


@dataclasses.dataclass(frozen=True)
class Signum(Checked):
    """Signum: steps along the sign of the momentum of the mean gradient (Bernstein et al., ICML 2018)."""

    lr: float = number(1e-3, 0.0)
    momentum: float = number(0.9, 0.0, 0.9999)
    weight_decay: float = number(0.0, 0.0)
    decoupled: bool = boolean(True)
    decay_1d: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class Adam(Checked):
    """Adam (Kingma and Ba, ICLR 2015), or with `decoupled` AdamW (Loshchilov and Hutter, ICLR 2019)."""

    lr: float = number(1e-3, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.999, 0.0, 1.0, below=True)
    eps: float = number(1e-8, 0.0, above=True)
    weight_decay: float = number(0.0, 0.0)
    decoupled: bool = boolean(False)
    decay_1d: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class LARS(Checked):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017)."""

    lr: float = number(1.0, 0.0)
    momentum: float = number(0.9, 0.0, 0.9999)
    trust: float = number(0.001, 0.0, above=True)
    weight_decay: float = number(5e-4, 0.0)
    decay_1d: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class OneBitAdam(Checked):
    """1-bit Adam (Tang et al., ICML 2021): after `freeze_steps` the variance stays, and the momentum is exchanged."""

    lr: float = number(1e-3, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.999, 0.0, 1.0, below=True)
    eps: float = number(1e-4, 0.0, above=True)
    weight_decay: float = number(0.0, 0.0)
    decay_1d: bool = boolean(True)
    freeze_steps: int = integer(20, low=1)


@dataclasses.dataclass(frozen=True)
class Torch(Checked):
    """Any optimizer with the interface of torch.optim, built as `target(parameters, lr=lr, **args)`."""

    target: str = target()
    lr: float = number(0.01, 0.0)
    args: dict[str, Any] = mapping(ARGS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if "lr" in self.args:
            raise InvalidParameter("args.lr", self.args["lr"], "optimizer.lr, which the schedule multiplies")


OPTIMIZERS: dict[str, type] = {
    "sgd": SGD,
    "dgc_sgd": DGCSGD,
    "signum": Signum,
    "adam": Adam,
    "lars": LARS,
    "onebit_adam": OneBitAdam,
    "torch": Torch,
}
