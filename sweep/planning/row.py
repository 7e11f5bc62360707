"""A row of a dry run: what the command would do with one point of a grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from sweep.planning.estimate import Estimate


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a dry run, on one point. Rows are in the order of starts; points without a run to compute are last."""

    number: int | None
    """Its place in the order; None for what is not run."""

    standing: str
    name: str
    """Of the run's directory; of a point that is taken out, its values."""

    config: Mapping[str, Any]
    """Empty for a point that is taken out."""

    directory: Path | None
    """Of the run; None for a point that is taken out."""

    why: str = ""
    estimate: Estimate | None = None

    @property
    def seconds(self) -> float | None:
        """The estimated duration of the run; None if it is unknown."""
        return None if self.estimate is None else self.estimate.seconds

    @property
    def workers(self) -> int:
        return run_directory.count_ranks(self.config) if self.config else 0

    @property
    def cores(self) -> int:
        return self.workers * int(self.config["threads_per_worker"]) if self.config else 0

    @property
    def gpus(self) -> int | None:
        """The number of requested GPUs; None if it depends on the machine (device=auto)."""
        if not self.config or self.config["device"] == "cpu":
            return 0
        if self.config["gpus"]:
            return len(set(self.config["gpus"][: self.config["workers"]]))
        if self.config["device"] == "auto":
            return None
        return min(self.config["workers"], self.config["gpus_per_node"] or self.config["workers"])

    @property
    def nodes(self) -> int:
        """The number of nodes that the run requests from SLURM."""
        nodes = self.options.get("nodes")
        return nodes if isinstance(nodes, int) else 1

    @property
    def options(self) -> dict[str, Any]:
        """The launcher's options of this run."""
        return {key: value for key, value in self.config.get("launcher", {}).items() if key != "cluster"}
