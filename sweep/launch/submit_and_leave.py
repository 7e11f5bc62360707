"""Submit and leave (sweep.wait=false): SLURM's jobs need nobody who waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradsweep.run_directory import Run
from sweep.attempts.build_task import Tasks, weight
from sweep.console.console import manner
from sweep.console.events import Events
from sweep.console.messages import report_left
from sweep.directory import completion
from sweep.directory.description import add_to_description
from sweep.directory.run_state import include
from sweep.launch.calibrate import calibrate
from sweep.launchers.launchers import build_launcher
from sweep.planning import reuse
from sweep.planning.estimate import Estimator
from sweep.settings.sweep import settings_of

if TYPE_CHECKING:
    from sweep.directory.sweep_directory import Sweep


def leave(sweep: Sweep, runs: Sequence[Run]) -> None:
    """Submit what is missing of the runs of an open sweep, where no job of theirs is left, and say how to follow it.

    Raises:
        UsageError: SLURM refuses or does not answer.
    """
    configs = {run: completion.load_config(run) for run in completion.list_unfinished(runs)}
    first = next(iter(configs.values()))
    settings, _ = settings_of(first)
    tasks, how = Tasks(sweep.directory, keep_code=settings.snapshot), manner(settings)
    if settings.reuse:
        for run in reuse.take_and_tell(sweep.directory, configs, tasks.version, how.info()):
            del configs[run]
    if configs:
        add_to_description(sweep.directory, calibration=calibrate())
    estimator = Estimator(sweep.directory)
    executor = build_launcher(first["launcher"]).build_executor(
        sweep.directory,
        settings,
        estimate=(lambda task: estimator.seconds(configs[task.run])) if len(configs) > 1 else None,  # to share them out
        weigh=lambda task: weight(configs[task.run]),
    )
    for run in configs:
        include(run)
    todo = completion.list_missing(configs, executor.reconcile)
    jobs = executor.submit_runs([tasks(run, configs[run]) for run in todo])
    executor.leave()
    Events(sweep.directory, echo=how.json).left("slurm", len(set(runs)), len(jobs), pid=None)
    report_left(
        sweep.directory,
        f"{len(jobs)} of {len(set(runs))} runs are with SLURM, which goes on without this command",
        {"watch": "how far it is", "cancel": "end it", "resume": "what failed, again"},
        how,
    )
