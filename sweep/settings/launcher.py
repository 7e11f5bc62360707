"""Where runs are started: the options of conf/hydra/launcher, checked, and what each launcher can do.

The options of a point are the section `launcher` of its config.yaml: a place, not part of its signature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gradsweep.errors import bad_value
from gradsweep.hints import did_you_mean
from sweep.settings.local_launcher import LocalOptions
from sweep.settings.slurm_launcher import SlurmOptions

if TYPE_CHECKING:
    from gradsweep.run_directory import Run
    from sweep.directory.sweep_directory import Sweep
    from sweep.executors.base import RunExecutor
    from sweep.settings.sweep import SweepSettings


class Options(Protocol):
    """The checked options of a launcher, for one point."""

    ONE: ClassVar[tuple[str, ...]]
    """Options that all points of a sweep have alike."""

    HERE: ClassVar[bool]
    """Its runs are computed on this machine; else nobody knows on which before they begin."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options in a config's section `launcher`, without `cluster`.

        Raises:
            UsageError: an unknown key, or a value out of range.
        """

    def check_run(self, config: Mapping[str, Any], settings: SweepSettings) -> None:
        """Hold the options against a run and its sweep.

        Raises:
            UsageError: they do not fit.
        """

    def executor(self, directory: Path, settings: SweepSettings) -> RunExecutor:
        """What runs the points of a sweep."""

    def where(self) -> dict[str, Any]:
        """What says where a run is computed, as its provenance has it: `cluster`, and what nodes are asked for."""

    def gpus_of(self, config: Mapping[str, Any]) -> int:
        """How many GPUs this launcher has to find for a run."""

    def leave(self, sweep: Sweep, runs: Sequence[Run]) -> None:
        """Have these runs computed without this process (sweep.wait=false) and say how to follow them."""

    @classmethod
    def known_jobs(cls, jobs: Sequence[str]) -> dict[str, str | None] | None:
        """Which of these jobs (`id` of job.json) wait, for what, or run (None); None where it cannot be found out."""

    @classmethod
    def unnoted_jobs(cls, runs: Sequence[Run]) -> dict[Run, str]:
        """The jobs of those runs whose job.json has no `id`, as their launcher died too early, that got one.

        Raises:
            UsageError: the scheduler does not answer.
        """

    @classmethod
    def cancel_jobs(cls, jobs: Mapping[Run, str], reason: str) -> None:
        """End the jobs of runs; returns when they are gone, or nothing more can be done.

        Raises:
            UsageError: the scheduler does not answer or refuses.
        """


LAUNCHERS: dict[str, type[Options]] = {"local": LocalOptions, "slurm": SlurmOptions}
"""Classes of options by what `hydra.launcher.cluster` may say."""


def options_of(launcher: Mapping[str, Any]) -> Options:
    """The options in a config's section `launcher`, checked.

    Raises:
        UsageError: an unknown cluster or key, another launcher's options, or a value out of range.
    """
    given = dict(launcher)
    cluster = given.pop("cluster", None)
    if not isinstance(cluster, str) or cluster not in LAUNCHERS:
        meant = did_you_mean(cluster, LAUNCHERS)
        raise bad_value("hydra.launcher.cluster", cluster, "one of " + ", ".join(LAUNCHERS), meant)
    whose = [name for name, options in LAUNCHERS.items() if _keys(options) <= given.keys()]
    if whose and cluster not in whose:
        valid = f"{whose[0]} with hydra/launcher={whose[0]}; to choose the other one, hydra/launcher={cluster}"
        raise bad_value("hydra.launcher.cluster", cluster, valid)
    return LAUNCHERS[cluster].of(given)


def _keys(options: type[Options]) -> set[str]:
    """What conf/hydra/launcher has for them."""
    assert dataclasses.is_dataclass(options)
    return {field.name for field in dataclasses.fields(options)}
