"""A race of runs that need the same cores or GPUs: one heat, or several if not all runs fit into memory together."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradsweep.csv_columns import RACE_COLUMNS
from gradsweep.files import append_rows, now, write_json
from gradsweep.run_directory import CONFIG, DONE, FORMAT, PREEMPTED, RACE, RATIOS, RESULT, STOPPED
from trainers.config import run_config
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.devices.yardstick import Yardstick
from trainers.mpi.process import limit_threads
from trainers.race.heat import Heat, blame
from trainers.race.plan import Plan
from trainers.race.racer import Racer, explain_unraceable, has_room
from trainers.race.tuning import (
    TRIAL_S,
    apply_tuned,
    describe_setting,
    explain_untunable,
    find_setting,
    is_tuned,
    read_tuned,
)
from trainers.training.rank import (
    check_size_and_pin,
    describe_transport,
    find_attempt_directory,
    measure_network,
    uses_mpi,
)

if TYPE_CHECKING:
    from mpi4py import MPI

TRIAL_PART = 0.25
"""Part of a heat's time that the trial of one run's exchange may take."""


def run_race(directory: Path, comm: MPI.Intracomm | None = None) -> None:
    """Race the runs in the plan of `directory`, and write race.csv, ratios.json and result.json there.

    A signal ends the race early: stopped.json of the attempt says so, and ratios.json has the figures so far.

    Args:
        comm: one rank for each worker; None: all ranks.

    Raises:
        UsageError: the directory has no plan, or `comm` has the wrong size.
        RunFailed: a run has failed on this rank.
    """
    plan = Plan.load(directory)
    config = run_config.load(plan.runs[0] / CONFIG)
    if comm is None:
        limit_threads(config.threads_per_worker)
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    check_size_and_pin(config, comm, config.workers)

    import torch

    torch.set_num_threads(config.threads_per_worker)
    race = Race(comm, directory, plan)
    stopped = race.run()
    if comm.rank == 0:
        if stopped:
            reason = "stopped: ratios.json has what was measured until then"
            write_json(
                find_attempt_directory(directory) / STOPPED, {"status": PREEMPTED, "reason": reason, "time": now()}
            )
        else:
            write_json(directory / RESULT, {"format": FORMAT, "status": DONE, "reason": None})


class Race:
    """The heats of a race on one rank. All ranks call `run` together.

    Args:
        comm: one rank for each worker.
        directory: where rank 0 writes race.csv and ratios.json.
        plan: has the runs, the duration and the required precision.
    """

    def __init__(self, comm: MPI.Intracomm, directory: Path, plan: Plan) -> None:
        self.comm, self.directory, self.plan = comm, directory, plan
        self._random = np.random.default_rng(plan.seed)
        self._heats: list[dict[str, Any]] = []
        self._left_out: dict[str, str] = {}
        self._transport: dict[str, Any] | None = None
        self._network: dict[str, Any] | None = None
        self._traffic: dict[str, Any] = {}
        """The traffic of a step of each run, for the cost model (python -m reports scaling)."""
        self._has_written = False
        self._settings: dict[str, Any] = {}
        """The keys of ratios.json on exchanges: `tuned` or `untuned` of the run `tuned_run`, `also_tuned`."""

    def run(self) -> bool:
        """Race all runs; return whether a signal has ended the race early.

        Raises:
            RunFailed: a run has failed on this rank.
        """
        configs = {run.name: run_config.load(run / CONFIG) for run in self.plan.runs}
        unraceable = {name: why for name, config in configs.items() if (why := explain_unraceable(config))}
        self._left_out = {**self.plan.without, **unraceable}
        if all(map(uses_mpi, configs.values())):
            self._transport = describe_transport(next(iter(configs.values())), self.comm)
        self._network = measure_network(next(iter(configs.values())), self.comm, self.directory)
        names = [name for name in configs if name not in self._left_out]
        least = min(2, len(configs))  # a plan of one run is to measure its throughput again
        if len(names) >= least:
            tuned = self._tune({name: configs[name] for name in names})
            if tuned is None:
                return True  # the figures of an earlier race stay
            configs |= tuned
        stopped = False
        while len(names) >= least and not stopped:
            racers = self._set_up({name: configs[name] for name in names})
            rest = names[len(racers) :]
            if len(racers) < least:
                self._left_out[rest.pop(0)] = f"no memory for it beside {names[0]}"
            else:
                stopped = self._run_heat(racers)
            for racer in racers.values():
                racer.close()
            names = [names[0], *rest] if rest else []
        self._write(finished=not stopped)
        return stopped

    def _tune(self, configs: Mapping[str, RunConfig]) -> dict[str, RunConfig] | None:
        """Return the configs with the exchange settings that trials find.

        A trial is held for the baseline `none`, unless the plan says why not, and for runs with exchange.tune. A
        setting that a run has found before its training is used again. The trials take at most half of the time of the
        heats.

        Returns:
            None if a signal has ended a trial.
        """
        began = time.monotonic()
        found, tuned = dict(configs), dict[str, Any]()
        for name, config in configs.items():
            is_baseline = len(configs) > 1 and name == next(iter(configs))
            why = self._explain_untuned(config, is_baseline)
            if why is None:
                with blame(name, in_trial=True):
                    known = read_tuned(self._find_run(name), config) if is_tuned(config) else None
                    seconds = min(TRIAL_S, TRIAL_PART * self.plan.seconds)
                    setting = self.comm.bcast(known) or find_setting(config, self.comm, seconds)
                    if setting is None:
                        return None
                    tuned[name], found[name] = setting, apply_tuned(config, setting)
            elif is_baseline:
                self._settings["untuned"] = {**describe_setting(config), "why": why}
        baseline = next(iter(configs), None)
        if len(configs) > 1:
            self._settings["tuned_run"] = baseline
        if baseline in tuned:
            self._settings["tuned"] = tuned.pop(baseline)
        if tuned:
            self._settings["also_tuned"] = tuned
        left_s = self.comm.bcast(max(self.plan.seconds - (time.monotonic() - began), self.plan.seconds / 2))
        self.plan = dataclasses.replace(self.plan, seconds=left_s)
        return found

    def _explain_untuned(self, config: RunConfig, is_baseline: bool) -> str | None:
        """Return why a run races with the exchange setting of its config; None if a trial has to find one."""
        if (why := explain_untunable(config)) or is_tuned(config):
            return why
        if not is_baseline:
            return "only the baseline is tuned without exchange=tuned"
        compressor = get_name(config.compressor)
        return self.plan.untuned if compressor == "none" else f"compressor={compressor}: tuned by exchange=tuned only"

    def _find_run(self, name: str) -> Path:
        return next(run for run in self.plan.runs if run.name == name)

    def _set_up(self, configs: Mapping[str, RunConfig]) -> dict[str, Racer]:
        """Build the first of these runs, and further ones while there is memory for another as large as the largest."""
        racers: dict[str, Racer] = {}
        largest = 0
        for name, config in configs.items():
            if racers and not has_room(self.comm, next(iter(racers.values())).worker.device, largest):
                break
            with blame(name):
                racers[name] = Racer(config, self.comm)
                racers[name].warm_up()
            largest = max(largest, racers[name].bytes)
        return racers

    def _run_heat(self, racers: Mapping[str, Racer]) -> bool:
        number = len(self._heats) + 1

        def report(figures: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
            self._heats[number - 1 :] = [{"heat": number, **figures}]
            self._write()
            append_rows(self.directory / RACE, RACE_COLUMNS, [{"heat": number, **row} for row in rows])

        threads = next(iter(racers.values())).config.threads_per_worker
        heat = Heat(self.comm, racers, self.plan, self._random, Yardstick(self.comm, threads), report)
        stopped = heat.run()
        self._left_out |= heat.left
        self._traffic |= {name: racer.measure_traffic() for name, racer in heat.racers.items()}
        return stopped

    def _write(self, *, finished: bool = False) -> None:
        """Write ratios.json on rank 0, with whether the race is `finished`.

        The first call replaces the file of an earlier race.
        """
        if self.comm.rank == 0:
            about = {"format": FORMAT, "finished": finished, "workers": self.comm.size, "transport": self._transport}
            about |= {"network": self._network, "traffic": self._traffic}
            figures = {"racers": self.plan.racers, "heats": self._heats, "left_out": self._left_out, **self._settings}
            write_json(self.directory / RATIOS, {**about, **figures}, durable=False)
            if not self._has_written:
                (self.directory / RACE).unlink(missing_ok=True)
            self._has_written = True
