"""The Hydra plugins of Gradsweep: Hydra 1.3 finds launchers and sweepers in this namespace only.

Thin: points are composed here; what is done with them is in sweep/.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from sweep.run import Run


def run_points(
    configs: Sequence[DictConfig], overrides: Sequence[Sequence[str]], directory: Path, cluster: str
) -> list[Run]:
    """Run composed configs as (a part of) the sweep in `directory`; see sweep.launch.execute."""
    from sweep import compose, launch  # not at the top: Hydra imports this file for every command
    from trainers.config import resolve

    fresh = compose.is_fresh(str(directory))
    with launch.forgetting(directory):
        return launch.execute(
            [_without_hydra(config) for config in configs],
            [dict(override.lstrip("+~").partition("=")[::2] for override in typed) for typed in overrides],
            directory,
            resolve,
            fresh=fresh,
            cluster=cluster,
        )


class NothingLeft(Callback):
    """Notes which directories Hydra is about to make, so that a command that is refused leaves none of them."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        self._note(config.hydra.run.dir)

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self._note(config.hydra.sweep.dir)

    @staticmethod
    def _note(directory: str) -> None:
        from sweep.compose import note_absent

        note_absent(directory)


class GridSweeper(BasicSweeper):
    """All combinations. Points are composed once, by the launcher, which checks all before it starts any."""

    def __init__(self, params: dict[str, str] | None = None) -> None:
        super().__init__(max_batch_size=None, params=params)  # in one batch: a bad point is found before a start

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Nothing to do: Hydra's basic sweeper would compose every point here, and the launcher again."""


class SweepLauncher(Launcher):
    """Hands the points of a grid to sweep.launch; `cluster` names the submitit executor that runs them."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run a batch; returns in its order, with the test accuracy as what a sweeper optimises.

        A run that failed returns NaN: its neighbours' results are not lost to an exception.
        """
        from sweep.launch import forgetting

        directory = Path(self.config.hydra.sweep.dir)
        loader = self.hydra_context.config_loader
        with forgetting(directory):
            composed = [loader.load_sweep_config(self.config, list(overrides)) for overrides in job_overrides]
        runs = run_points(composed, job_overrides, directory, self.cluster)
        returns = []
        for overrides, config, run in zip(job_overrides, composed, runs, strict=True):
            accuracy = (run.result() or {}).get("accuracy")
            returned = JobReturn(overrides=overrides, cfg=config, working_dir=str(run.directory))
            returned.status = JobStatus.COMPLETED
            returned.return_value = float("nan") if accuracy is None else accuracy
            returns.append(returned)
        return returns


def _without_hydra(config: DictConfig) -> dict[str, Any]:
    """The resolved config as plain data; Hydra's own section is needed to resolve it, but is not part of a run."""
    return {
        str(key): OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
        if OmegaConf.is_config(node := config[key])
        else node
        for key in config
        if key != "hydra"
    }
