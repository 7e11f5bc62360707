"""The Hydra plugins of Gradsweep: Hydra 1.3 finds launchers and sweepers in this namespace only.

This file only composes the points of a grid; sweep/ checks and runs them.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gradsweep.errors import UsageError, bad_value

if TYPE_CHECKING:
    from gradsweep.run_directory import Run
    from sweep.launch.session import Session


def run_points(
    session: Session,
    compose_them: Callable[[], list[dict[str, Any]]],
    overrides: Sequence[Sequence[str]],
    directory: Path,
    *,
    whole: bool = True,
) -> list[Run | None]:
    """Run the points of a grid, or of one batch of a search, as the sweep in `directory` (sweep.launch.execute).

    Args:
        session: the state of the command.
        compose_them: composes the configs of the points (sweep.config.composer).
        overrides: the overrides of each point, as typed.
        whole: these are all points of the sweep; else they are a batch of a search.
    """
    from gradsweep.run_directory import is_script
    from sweep.config import directories  # not at the top: Hydra imports this file for every command
    from sweep.launch import probe
    from sweep.launch.execute import execute
    from trainers.config.run_config import parse
    from trainers.rules.idle_options import find_idle
    from trainers.rules.lost_errors import find_lost_errors
    from trainers.rules.resolve import resolve

    def check(config: Mapping[str, Any]) -> dict[str, Any]:
        if is_script(config):
            raise bad_value("trainer", "script", "left out of a probe, which starts no training")
        parse(config)  # what goes together in training makes no difference to a probe
        return dict(config)

    fresh = session.new_directory is not None and os.path.abspath(session.new_directory) == os.path.abspath(directory)
    try:
        typed = [dict(override.lstrip("+~").partition("=")[::2] for override in point) for point in overrides]
        configs = compose_them()
        if session.flags.probe_s is not None:
            return probe.probe_points(session, configs, typed, directory, check, fresh=fresh, whole=whole)
        runs = execute(
            session,
            configs,
            typed,
            directory,
            resolve,
            idle=find_idle,
            find_lost_errors=find_lost_errors,
            fresh=fresh,
            whole=whole,
        )
        if configs[0]["sweep"]["dry_run"]:
            directories.remove_traces(directory)
        return runs
    except BaseException:
        directories.remove_traces(directory)
        raise
    finally:
        if session.fork_servers is not None:
            session.fork_servers.close()


def find_session(task_function: TaskFunction) -> Session:
    """Return the session that multirun.py has attached to Hydra's task function; for other callers a new session."""
    from sweep.launch.session import Session

    session = getattr(getattr(task_function, "__self__", None), "session", None)
    return session if isinstance(session, Session) else Session()


class PluginFolders(SearchPathPlugin):
    """Adds the folders with YAML files that installed distributions bring (gradsweep/plugins.py)."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        from gradsweep.plugins import list_conf_directories

        for folder in list_conf_directories():
            search_path.append("gradsweep-plugin", f"file://{folder}")


class NothingLeft(Callback):
    """Records which directories Hydra is about to create, so that they can be removed if the command is refused."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        self._note(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        self._note(config, "sweep")

    @staticmethod
    def _note(config: DictConfig, section: str) -> None:
        from sweep.config.directories import note_absent

        with suppress(OmegaConfBaseException):  # Hydra is about to find the same, and an error here is a warning there
            note_absent(config.hydra[section].dir)


class GridSweeper(BasicSweeper):
    """Hydra's sweeper for grids: all combinations of values, except that the keys in sweep.zip change together.

    The launcher composes each point once, and checks all points before it starts any.
    """

    def __init__(self, params: dict[str, Any] | None = None) -> None:
        super().__init__(max_batch_size=None, params=params)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Refuse launchers of other packages, which do not start MPI, before any directory is created."""
        from sweep.config.schema import refuse_foreign_launcher

        refuse_foreign_launcher(config.hydra)
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments: list[str]) -> list[Sequence[JobReturn]]:
        """Run the grid as one batch, so that invalid points are found before the first run starts."""
        from sweep.config import grid
        from sweep.config.schema import MEMBERS

        assert self.config is not None and self.launcher is not None and self.hydra_context is not None
        zipped = OmegaConf.to_container(self.config.sweep, resolve=True)["zip"]  # type: ignore[index, call-overload]
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        points = grid.expand_points(self.params, arguments, zipped, parser)
        points = grid.drop_foreign_options(points, MEMBERS, self._list_options)
        return [self.launcher.launch(points, initial_job_idx=0)]

    def _list_options(self, overrides: Sequence[str], group: str) -> list[str]:
        """Return the options that a group has in a config; none if Hydra refuses the config, as the composer will."""
        assert self.config is not None and self.hydra_context is not None
        with suppress(HydraException, OmegaConfBaseException):
            section = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides)).get(group)
            return [str(key) for key in section] if isinstance(section, DictConfig) else []
        return []


class SweepLauncher(Launcher):
    """Hydra's launcher: passes the points of a grid, each with its own launcher's options, to sweep.launch."""

    def __init__(self, **options: Any) -> None:
        """Ignore the options of conf/hydra/launcher: each point has its own (sweep/settings/launcher.py)."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Refuse options that only `GridSweeper` supports if another sweeper is used, before it starts."""
        from sweep.config.hydra_patches import tolerate_last_failure
        from sweep.config.idle_options import refuse_unread
        from sweep.config.optuna_defaults import refuse_search_of_nothing
        from sweep.provenance.secrets import refuse_names

        refuse_names("hydra.job.env_set", map(str, config.hydra.job.env_set))  # sweepers write it into multirun.yaml
        self.hydra_context, self.config = hydra_context, config
        self.own = str(config.hydra.sweeper._target_).endswith(f".{GridSweeper.__name__}")
        self.session = find_session(task_function)
        for key in ("quiet", "json"):  # for what is printed before there are points with settings
            if config.sweep[key]:
                setattr(self.session.flags, key, True)
        for key in ("zip", "dry_run"):
            if config.sweep[key] and not self.own:
                raise bad_value(f"sweep.{key}", config.sweep[key], "for grids only, of hydra/sweeper=grid")
        refuse_unread(config.hydra.overrides.hydra, grid=True)
        refuse_search_of_nothing(config.hydra)
        if not config.sweep.wait and not self.own:
            raise bad_value("sweep.wait", "false", "true with a sweeper that goes by results, or hydra/sweeper=grid")
        if "optuna" in sys.modules:
            tolerate_last_failure()
        # the sweep reports failures itself; sweepers' messages still reach what hydra/job_logging may set up
        logging.getLogger("hydra_plugins").addHandler(logging.NullHandler())
        logging.getLogger("optuna").setLevel(logging.WARNING)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run a batch of points; return each point's value of sweep.metric, for a sweeper that optimises.

        The value is NaN for a failed run and for a point that was left out of the grid: an exception would lose the
        results of the other runs. But if the sweeper has a max_failure_rate, reading the value raises an exception, as
        with Hydra's own launchers. `GridSweeper` ignores the values.
        """
        from sweep.config.composer import Composer
        from sweep.settings.metrics import read_value

        if self.session.is_stopped:
            raise SearchEnded("the sweep was asked to end, or too many runs have failed: the search ends here")
        composer = Composer(self.hydra_context.config_loader, self.config, silent=self.session.flags.is_terse)
        directory = Path(self.config.hydra.sweep.dir)
        runs = run_points(
            self.session, lambda: composer.compose(job_overrides), job_overrides, directory, whole=self.own
        )
        bears = "max_failure_rate" in self.config.hydra.sweeper
        metric = self.config.sweep.metric
        returns: list[JobReturn] = []
        for overrides, run in zip(job_overrides, runs, strict=True):
            value = math.nan if run is None or self.own else read_value(run, metric)
            returned = NoValue() if bears and math.isnan(value) else JobReturn()
            returned.overrides, returned.working_dir = overrides, None if run is None else str(run.directory)
            returned.status, returned.return_value = JobStatus.COMPLETED, value
            if isinstance(returned, NoValue):
                what = "a point that was taken out" if run is None else f"{run.name}, which is {run.status()}"
                returned.status, returned.return_value = JobStatus.FAILED, SearchEnded(f"no {metric} of {what}")
            returns.append(returned)
        return returns


class SearchEnded(UsageError):
    """More runs of a batch have failed than the sweeper accepts (max_failure_rate), or the sweep was stopped."""


class NoValue(JobReturn):
    """The result of a failed run. Like Hydra's, it raises an error when its value is read, but it prints nothing."""

    @property
    def return_value(self) -> Any:
        raise self._return_value

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self._return_value = value
