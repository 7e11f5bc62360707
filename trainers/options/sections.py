"""Sections of a run's config without named choices, such as `batch`, `data` and `clip`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from gradsweep.options.parameters import Checked, InvalidParameter, boolean, choice, integer, number

TRACKERS: Mapping[str, str] = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""The package that each tracker needs, by the tracker's name, which is also that of the extra that installs it."""


@dataclasses.dataclass(frozen=True)
class Batch(Checked):
    """The batch size of an optimizer step: of all workers together (`global`) or of each worker (`worker`).

    A worker computes the gradient of its part in `accumulate` pieces, one after the other.
    """

    size: int = integer(128, low=1)
    per: str = choice("global", "global", "worker")
    accumulate: int = integer(1, low=1)

    def count_samples(self, workers: int) -> int:
        """Return the global batch size."""
        return self.size if self.per == "global" else self.size * workers


@dataclasses.dataclass(frozen=True)
class Data(Checked):
    """Options on the source and the loading of data. They change no number of a run, so they are not in its signature.

    Args:
        root: directory of the user's data sets; the prepared arrays are in `root`/prepared.
        download: download missing data sets, if their publishers offer them.
        loaders: processes of each rank that read samples of dataset=imagenet or custom; 0: the rank does it itself.
    """

    root: str = "data"
    download: bool = boolean(False)
    loaders: int = integer(0, low=0, high=256)


@dataclasses.dataclass(frozen=True)
class Partition(Checked):
    """Options on the division of the training samples among the workers.

    Args:
        scheme: `iid` (at random), `contiguous` (as the training set is ordered), `label` (sorted by class) or
            `dirichlet`: the workers' shares of each class are drawn from a symmetric Dirichlet distribution
            (Yurochkin et al., ICML 2019), so that workers differ in classes and in number of samples.
        alpha: of the Dirichlet distribution; the smaller it is, the more do the workers differ.
        reshuffle: assign samples to workers anew in every epoch; null: only with iid, since other schemes have nothing
            random to draw anew.
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
        """Whether samples are assigned to workers anew in every epoch."""
        return self.scheme == "iid" if self.reshuffle is None else self.reshuffle

    @property
    def by_class(self) -> bool:
        """Whether the workers' samples follow from their classes."""
        return self.scheme in ("label", "dirichlet")


@dataclasses.dataclass(frozen=True)
class Checkpoint(Checked):
    """Options on when a run saves a checkpoint, from which a later attempt can continue. They change no number."""

    every_minutes: float | None = number(10.0, 0.0, above=True, optional=True)
    every_steps: int | None = integer(None, low=1, optional=True)
    every_epochs: int | None = integer(None, low=1, optional=True)
    keep: int = integer(2, low=1)
    final: bool = False


@dataclasses.dataclass(frozen=True)
class LossScale(Checked):
    """The factor of the loss with precision=fp16: the loss is multiplied, and the gradient divided by it.

    It is dynamic as in Micikevicius et al. (ICLR 2018): halved when the gradient of any worker overflows, in which case
    all workers skip the step, and doubled after `growth_interval` successive steps without an overflow.
    """

    initial: float = number(65536.0, 0.0, 2.0**100, above=True)
    dynamic: bool = boolean(True)
    growth_interval: int = integer(2000, low=1)


@dataclasses.dataclass(frozen=True)
class Clip(Checked):
    """Limits for gradient clipping: of the mean gradient, and of a worker's own gradient before compression."""

    norm: float | None = number(None, 0.0, above=True, optional=True)
    value: float | None = number(None, 0.0, above=True, optional=True)
    local_norm: float | None = number(None, 0.0, above=True, optional=True)


@dataclasses.dataclass(frozen=True)
class Scaling(Checked):
    """Options on scaling the learning rate (`linear` or `sqrt`) by a quantity that `by` names.

    `workers`: the number of workers; `degree`: the number of workers whose contributions a worker averages in a step;
    `batch`: the global batch size over `base_batch`; `neighbourhood`: the samples of the `degree` workers over
    `base_batch`, which is the same as `batch` if all workers exchange with all."""

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
