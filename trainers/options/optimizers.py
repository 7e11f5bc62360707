"""The options of optimizers by name; trainers/optimizers implements them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from gradsweep.options.hints import did_you_mean
from gradsweep.options.parameters import (
    Checked,
    InvalidParameter,
    boolean,
    choice,
    from_mapping,
    integer,
    mapping,
    number,
    sequence,
)
from trainers.options.own_code import ARGS, target

KINDS = MATRICES, EMBEDDINGS, HEAD, VECTORS = "matrices", "embeddings", "head", "vectors"
"""Kinds of tensors (trainers.gradients.flat.find_kinds)."""

GROUPS = (
    "a list of {kinds: [some of " + ", ".join(KINDS) + "], match: a regular expression, optimizer: {name: ..., ...}}, "
    "each with kinds, match or both"
)


def is_group(item: Any) -> bool:
    """Tell whether a value has the form of an entry in `optimizer.groups`."""
    return (
        isinstance(item, Mapping)
        and {"optimizer"} < set(item) <= {"kinds", "match", "optimizer"}
        and isinstance(item.get("match", ""), str)
        and isinstance(item.get("kinds", []), (list, tuple))
        and all(kind in KINDS for kind in item.get("kinds", []))
        and isinstance(item["optimizer"], Mapping)
        and isinstance(item["optimizer"].get("name"), str)
    )


@dataclasses.dataclass(frozen=True)
class Group:
    """The tensors of one of some kinds (none: of any) whose names match a regular expression, and their optimizer."""

    kinds: tuple[str, ...]
    match: str
    optimizer: Any

    def __str__(self) -> str:
        kinds = f"kinds: [{', '.join(self.kinds)}]" if self.kinds else ""
        return "{" + ", ".join(filter(None, (kinds, f"match: {self.match}" if self.match else ""))) + "}"

    def has(self, name: str, kind: str) -> bool:
        """Tell whether a tensor is in the group."""
        return (not self.kinds or kind in self.kinds) and re.search(self.match, name) is not None


@dataclasses.dataclass(frozen=True)
class Optimizer(Checked):
    """The base of all optimizers: `groups` are the exceptions, tensors that have an optimizer of their own.

    The first entry that a tensor belongs to decides. Its `lr` changes by the same factor as that of the rest.
    """

    _: dataclasses.KW_ONLY
    groups: list[Any] = sequence(GROUPS, is_group)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.build_groups() and not getattr(self, "lr", 1.0):
            raise InvalidParameter("lr", 0.0, "a number above 0 with groups, whose rates change by the same factor")

    def build_groups(self) -> list[Group]:
        """Return the entries of `groups` with their optimizers.

        Raises:
            InvalidParameter: a regular expression is not valid, or an optimizer is not known, has an option that is
                out of range or cannot be one of several.
        """
        return [_build_group(item) for item in self.groups]


def _build_group(item: Mapping[str, Any]) -> Group:
    pattern, given = item.get("match", ""), dict(item["optimizer"])
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidParameter("groups.match", pattern, f"a regular expression ({error})") from error
    name = given.pop("name")
    if name not in GROUPED:
        valid = "one of " + ", ".join(GROUPED)
        raise InvalidParameter(
            "groups.optimizer.name", name, valid, "" if name in OPTIMIZERS else did_you_mean(name, GROUPED)
        )
    try:
        if given.pop("groups", None):
            raise InvalidParameter("groups", item["optimizer"]["groups"], "none within a group")
        optimizer = from_mapping(OPTIMIZERS[name], {**given, "groups": []})
    except InvalidParameter as error:
        raise error.prefix("groups.optimizer") from error
    return Group(tuple(item.get("kinds", ())), pattern, optimizer)


@dataclasses.dataclass(frozen=True)
class SGD(Optimizer):
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
class Signum(Optimizer):
    """Signum: steps along the sign of the momentum of the mean gradient (Bernstein et al., ICML 2018)."""

    lr: float = number(1e-3, 0.0)
    momentum: float = number(0.9, 0.0, 0.9999)
    weight_decay: float = number(0.0, 0.0)
    decoupled: bool = boolean(True)
    decay_1d: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, ICLR 2015), or with `decoupled` AdamW (Loshchilov and Hutter, ICLR 2019)."""

    lr: float = number(1e-3, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.999, 0.0, 1.0, below=True)
    eps: float = number(1e-8, 0.0, above=True)
    weight_decay: float = number(0.0, 0.0)
    decoupled: bool = boolean(False)
    decay_1d: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class LARS(Optimizer):
    """Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017)."""

    lr: float = number(1.0, 0.0)
    momentum: float = number(0.9, 0.0, 0.9999)
    trust: float = number(0.001, 0.0, above=True)
    weight_decay: float = number(5e-4, 0.0)
    decay_1d: bool = boolean(False)


@dataclasses.dataclass(frozen=True)
class OneBitAdam(Optimizer):
    """1-bit Adam (Tang et al., ICML 2021): after `freeze_steps` the variance stays, and the momentum is exchanged."""

    lr: float = number(1e-3, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.999, 0.0, 1.0, below=True)
    eps: float = number(1e-4, 0.0, above=True)
    weight_decay: float = number(0.0, 0.0)
    decay_1d: bool = boolean(True)
    freeze_steps: int = integer(20, low=1)


DENSE, COMPRESSED, SKIPPED = "dense", "compressed", "skipped"
"""Kinds of rounds of `ZeroOneAdam.find_round`."""


@dataclasses.dataclass(frozen=True)
class ZeroOneAdam(Optimizer):
    """0/1 Adam (Lu et al., ICLR 2023): compressed rounds from the first steps on, and later local steps."""

    lr: float = number(1e-3, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.999, 0.0, 1.0, below=True)
    eps: float = number(1e-4, 0.0, above=True)
    weight_decay: float = number(0.0, 0.0)
    decay_1d: bool = boolean(True)
    variance_rounds: int = integer(16, low=1)
    freeze_steps: int = integer(40, low=1)
    local_doubling: int = integer(40, low=1)
    local_steps: int = integer(16, low=1)

    def find_round(self, step: int) -> str:
        """Return the kind of the round that ends a step (from 1), as DeepSpeed plans it.

        Up to `freeze_steps`, multiples of an interval are dense, and all others compressed. The interval is 1 at first,
        and doubles after every `variance_rounds` dense rounds. Later, multiples of another interval are compressed, and
        all others skipped. That interval is 1 for `local_doubling` steps, and doubles after as many up to
        `local_steps`.
        """
        if step > self.freeze_steps:
            doubled = (step - self.freeze_steps - 1) // self.local_doubling
            interval = min(self.local_steps, 2 ** min(doubled, self.local_steps.bit_length()))
            return SKIPPED if step % interval else COMPRESSED
        interval, last = 1, 0
        while True:
            last = (last // interval + self.variance_rounds) * interval
            if step <= last:
                return COMPRESSED if step % interval else DENSE
            interval *= 2


@dataclasses.dataclass(frozen=True)
class LAMB(Optimizer):
    """LAMB: Adam's direction times the norm of the tensor (You et al., ICLR 2020)."""

    lr: float = number(0.02, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.999, 0.0, 1.0, below=True)
    eps: float = number(1e-6, 0.0, above=True)
    weight_decay: float = number(0.01, 0.0)
    decay_1d: bool = boolean(False)
    min_coefficient: float = number(0.01, 0.0)
    max_coefficient: float = number(10.0, 0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_coefficient > self.max_coefficient:
            valid = f"a number up to max_coefficient ({self.max_coefficient})"
            raise InvalidParameter("min_coefficient", self.min_coefficient, valid)


@dataclasses.dataclass(frozen=True)
class OneBitLAMB(LAMB):
    """1-bit LAMB (Li et al., HiPC 2022): after `freeze_steps` the variance stays, and the momentum is exchanged."""

    freeze_steps: int = integer(20, low=1)
    coefficient_beta: float = number(0.9, 0.0, 1.0, below=True)
    min_factor: float = number(0.5, 0.0, 1.0)
    max_factor: float = number(4.0, 1.0)
    factor_change: float = number(0.1, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Lion(Optimizer):
    """Lion: steps along the sign of a mean of momentum and gradient (Chen et al., NeurIPS 2023)."""

    lr: float = number(1e-4, 0.0)
    beta1: float = number(0.9, 0.0, 1.0, below=True)
    beta2: float = number(0.99, 0.0, 1.0, below=True)
    weight_decay: float = number(0.0, 0.0)
    decay_1d: bool = boolean(True)


@dataclasses.dataclass(frozen=True)
class DistributedLion(Lion):
    """Distributed Lion: the vote or the mean of the signs of each worker's own Lion (Liu et al., NeurIPS 2024)."""


BESIDE_MATRICES = {
    "kinds": [EMBEDDINGS, HEAD, VECTORS],
    "optimizer": {"name": "adam", "lr": 1e-3, "beta2": 0.95, "decoupled": True},
}
"""The tensors that are no hidden matrices."""


@dataclasses.dataclass(frozen=True)
class Muon(Optimizer):
    """Muon: steps along the orthogonalised momentum of a matrix (Jordan et al., 2024); for hidden matrices only.

    `adjust_lr` is the factor of the rate for a matrix of r rows and c columns: `original` sqrt(max(1, r / c)),
    `match_rms_adamw` 0.2 sqrt(max(r, c)) (Moonlight: Liu et al., 2025), `spectral` sqrt(r / c).
    """

    lr: float = number(0.02, 0.0)
    momentum: float = number(0.95, 0.0, 0.9999)
    nesterov: bool = boolean(True)
    weight_decay: float = number(0.0, 0.0)
    iterations: int = integer(5, low=1, high=100)
    adjust_lr: str = choice("original", "original", "match_rms_adamw", "spectral")
    groups: list[Any] = sequence(GROUPS, is_group, [BESIDE_MATRICES], kw_only=True)


@dataclasses.dataclass(frozen=True)
class Dion(Optimizer):
    """Dion: steps along orthonormal factors that compressor=dion exchanges (Ahn et al., 2025); for matrices only."""

    lr: float = number(0.02, 0.0)
    weight_decay: float = number(0.01, 0.0)
    groups: list[Any] = sequence(GROUPS, is_group, [BESIDE_MATRICES], kw_only=True)


@dataclasses.dataclass(frozen=True)
class Torch(Optimizer):
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
    "zero_one_adam": ZeroOneAdam,
    "lamb": LAMB,
    "onebit_lamb": OneBitLAMB,
    "lion": Lion,
    "distributed_lion": DistributedLion,
    "muon": Muon,
    "dion": Dion,
    "torch": Torch,
}

ONE_BIT = ("onebit_adam", "onebit_lamb")
"""Optimizers that exchange compressed momenta after a warm-up with dense gradients."""

OF_MOMENTA = (*ONE_BIT, "zero_one_adam", "distributed_lion")
"""Optimizers whose workers exchange momenta, or sums of them, in place of gradients."""

GROUPED = tuple(name for name in OPTIMIZERS if name not in ("dgc_sgd", "dion", *OF_MOMENTA))
"""Optimizers of which a run may have several; the others depend on what is exchanged."""
