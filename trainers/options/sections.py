"""Sections of a run's config that have no choice of a name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from gradsweep.options.parameters import Checked, InvalidParameter, boolean, choice, integer, number

TRACKERS: Mapping[str, str] = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""The package that each tracker needs, by the tracker's name, which is also that of the extra that installs it."""


@dataclasses.dataclass(frozen=True)
class Batch(Checked):
    """Samples per optimizer step: of all workers together (`global`) or of each (`worker`).

    A worker computes its share in `accumulate` pieces, one after the other.
    """

    size: int = integer(128, low=1)
    per: str = choice("global", "global", "worker")
    accumulate: int = integer(1, low=1)

    def count_samples(self, workers: int) -> int:
        """Return the global batch size."""
        return self.size if self.per == "global" else self.size * workers


@dataclasses.dataclass(frozen=True)
class Data(Checked):
    """Where data comes from and who reads it, which changes no number of a run: not in its signature.

    Args:
        root: of the user's data sets, with the prepared arrays in `root`/prepared.
        download: fetch what is missing, where its publisher offers it.
        loaders: processes of each rank that decode images of dataset=imagenet; 0: the rank does it itself.
    """

    root: str = "data"
    download: bool = boolean(False)
    loaders: int = integer(0, low=0, high=256)


@dataclasses.dataclass(frozen=True)
class Partition(Checked):
    """How the training samples are divided among the workers.

    Args:
        scheme: `iid` (at random), `contiguous` (as the training set is ordered), `label` (sorted by class) or
            `dirichlet`: of each class, the workers get parts drawn from a symmetric Dirichlet distribution
            (Yurochkin et al., ICML 2019), so that they differ in classes and in size.
        alpha: of the Dirichlet distribution; the smaller, the more unlike are the workers.
        reshuffle: draw anew in every epoch who sees what; null: with iid only, as others have nothing to draw anew.
    """

    scheme: str = choice("iid", "iid", "contiguous", "label", "dirichlet")
    alpha: float = number(0.5, 0.001, 1e6)
    reshuffle: bool | None = boolean(None, optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reshuffle and self.scheme != "iid":
            raise InvalidParameter(
                "reshuffle", self.reshuffle, f"false or null with scheme={self.scheme}, which says who sees what"
            )

    @property
    def reshuffled(self) -> bool:
        """Whether every epoch has an assignment of its own."""
        return self.scheme == "iid" if self.reshuffle is None else self.reshuffle


@dataclasses.dataclass(frozen=True)
class Checkpoint(Checked):
    """When a run is saved, so that a later attempt can go on from there; changes no number of it."""

    every_minutes: float | None = number(10.0, 0.0, above=True, optional=True)
    every_steps: int | None = integer(None, low=1, optional=True)
    every_epochs: int | None = integer(None, low=1, optional=True)
    keep: int = integer(2, low=1)
    final: bool = False


@dataclasses.dataclass(frozen=True)
class LossScale(Checked):
    """The factor of the loss with precision=fp16: the loss is multiplied, and the gradient divided by it.

    Dynamic as in Micikevicius et al. (ICLR 2018): halved where the gradient of any worker overflows, a step that all
    workers then leave out; doubled after `growth_interval` steps in a row without that.
    """

    initial: float = number(65536.0, 0.0, 2.0**100, above=True)
    dynamic: bool = boolean(True)
    growth_interval: int = integer(2000, low=1)


@dataclasses.dataclass(frozen=True)
class Clip(Checked):
    """Limits of gradients: of the gradient for the optimizer, and of a worker's own before it is compressed."""

    norm: float | None = number(None, 0.0, above=True, optional=True)
    value: float | None = number(None, 0.0, above=True, optional=True)
    local_norm: float | None = number(None, 0.0, above=True, optional=True)


@dataclasses.dataclass(frozen=True)
class Scaling(Checked):
    """The learning rate grows with the number of workers, with the degree of the graph in which they exchange (of how
    many the contributions are averaged), with the global batch over `base_batch`, or with the batch of the
    `neighbourhood` over `base_batch`: of those whose contributions are averaged, which is the global batch where all
    exchange with all."""

    rule: str = choice("none", "none", "linear", "sqrt")
    by: str = choice("workers", "workers", "degree", "batch", "neighbourhood")
    base_batch: int = integer(128, low=1)
    warmup_from_base: bool = boolean(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_from_base and self.rule == "none":
            raise InvalidParameter("warmup_from_base", True, "false with rule=none: nothing is scaled")

    def compute_factor(self, workers: int, degree: int, global_batch: int) -> float:
        """Return the factor by which the learning rate is multiplied."""
        samples = global_batch / self.base_batch
        grown = {"workers": workers, "degree": degree, "batch": samples, "neighbourhood": samples * degree / workers}
        times = float(grown[self.by])
        return {"none": 1.0, "linear": times, "sqrt": math.sqrt(times)}[self.rule]
