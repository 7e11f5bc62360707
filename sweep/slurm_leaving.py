"""Submit and leave (sweep.wait=false): SLURM's jobs need nobody who waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweep import plan, reuse
from sweep.calibration import calibrate
from sweep.directory import add_to_description
from sweep.ending import say_left
from sweep.estimate import Estimator
from sweep.events import Events
from sweep.output import manner
from sweep.run import Run
from sweep.settings import settings_of
from sweep.states import take_in
from sweep.tasks import Tasks, weight

if TYPE_CHECKING:
    from sweep.directory import Sweep
    from sweep.slurm_options import SlurmOptions


def leave(options: SlurmOptions, sweep: Sweep, runs: Sequence[Run]) -> None:
    """Submit what is missing of the runs of an open sweep, where no job of theirs is left, and say how to follow it.

    Raises:
        UsageError: SLURM refuses or does not answer.
    """
    configs = {run: plan.load_config(run) for run in plan.unfinished(runs)}
    settings, _ = settings_of(next(iter(configs.values())))
    tasks, how = Tasks(sweep.directory, keep_code=settings.snapshot), manner(settings)
    if settings.reuse:
        for run in reuse.take_and_tell(sweep.directory, configs, tasks.version, how.chatter()):
            del configs[run]
    if configs:
        add_to_description(sweep.directory, calibration=calibrate())
    executor = options.executor(sweep.directory, settings)
    executor.weigh = lambda task: weight(configs[task.run])
    if len(configs) > 1:  # with sweep.pack they are shared out
        estimator = Estimator(sweep.directory)
        executor.estimate = lambda task: estimator.seconds(configs[task.run])
    for run in configs:
        take_in(run)
    todo = plan.missing(configs, executor.settle)
    jobs = executor.submit_runs([tasks(run, configs[run]) for run in todo])
    executor.leave()
    Events(sweep.directory, echo=how.json).left("slurm", len(set(runs)), len(jobs), pid=None)
    say_left(
        sweep.directory,
        f"{len(jobs)} of {len(set(runs))} runs are with SLURM, which goes on without this command",
        {"watch": "how far it is", "cancel": "end it", "resume": "what failed, again"},
        how,
    )
