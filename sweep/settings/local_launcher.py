"""The options of `hydra/launcher=local`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from gradsweep.errors import UsageError, bad_value
from gradsweep.options.hints import did_you_mean
from sweep.system import cores, gpus


@dataclasses.dataclass(frozen=True)
class LocalOptions:
    """The options of `hydra/launcher=local`, which trains on slots of this machine.

    Attributes:
        cores: the cores for the runs: their numbers, or how many are used at the same time; None: all that this process
            may use.
        gpus: the GPUs for the runs, as CUDA_VISIBLE_DEVICES names them; None: those in that variable, else all that
            nvidia-smi lists.
        gpus_per_worker: the number of GPUs that a run has for itself, per worker; None: see
            `sweep.system.gpus.count_wanted`.

    Raises:
        UsageError: this machine does not have these cores or GPUs.
    """

    cores: int | list[int] | str | None = None
    gpus: list[int | str] | None = None
    gpus_per_worker: int | None = None

    PER_SWEEP: ClassVar[tuple[str, ...]] = ("cores", "gpus")
    """Options that must be equal for all points of a sweep."""
    IS_LOCAL: ClassVar[bool] = True

    def __post_init__(self) -> None:
        cores.choose_cores(self.cores)
        each = self.gpus_per_worker
        if each is not None and (not isinstance(each, int) or isinstance(each, bool) or each < 0):
            raise bad_value("hydra.launcher.gpus_per_worker", each, "an integer from 0 up or null")
        if self.gpus is None:
            return
        names = [str(name) for name in self.gpus] if isinstance(self.gpus, list) else [""]
        inherited = gpus.list_inherited()
        allowed = [name for name in names if gpus.is_name(name) and (inherited is None or name in inherited)]
        if len(set(allowed)) < len(names):
            valid = "null or a list of numbers or UUIDs of GPUs, each once"
            if inherited is not None:
                valid += f", out of CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']}"
            raise bad_value("hydra.launcher.gpus", self.gpus, valid)

    def describe_location(self) -> dict[str, Any]:
        """Return the run's location for its provenance, which is only the cluster's name."""
        return {"cluster": "local"}

    def list_gpus(self) -> list[str]:
        """Return the GPUs for the runs, as CUDA_VISIBLE_DEVICES names them."""
        if self.gpus is not None:
            return [str(name) for name in self.gpus]
        inherited = gpus.list_inherited()
        return list(gpus.list_installed()) if inherited is None else inherited

    def count_gpus(self, config: Mapping[str, Any]) -> int:
        """Return how many GPUs a run gets for itself.

        Raises:
            UsageError: the run needs more GPUs than there are.
        """
        if config.get("device", "cpu") == "cpu":
            return 0  # no need to ask nvidia-smi, which may take seconds
        there = self.list_gpus()
        wanted = gpus.count_wanted(config, self.gpus_per_worker, len(there))
        if wanted > len(there):
            key = "null" if self.gpus_per_worker is None else self.gpus_per_worker
            raise UsageError(
                f"hydra.launcher.gpus_per_worker={key}: workers={config['workers']} want {wanted} GPUs of "
                f"{len(there)} ({','.join(there) or 'none was found'}); valid is fewer workers, or gpus_per_node="
                f"{max(1, len(there))} for ranks that share GPUs, or 0 for GPUs that are not shared out"
            )
        return wanted

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> LocalOptions:
        """Return the options of a config's section `launcher` without `cluster`.

        Raises:
            UsageError: an unknown key, or a value out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key in given:
            if key not in known:
                valid = f"one of the keys {', '.join(['cluster', *known])}"
                raise bad_value(f"hydra.launcher.{key}", given[key], valid, did_you_mean(key, known))
        return cls(**given)
