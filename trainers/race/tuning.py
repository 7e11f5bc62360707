"""Find the fastest setting of an exchange in a short trial: overlap, size of the parts, algorithm of allreduce.

A trial is a race between settings of one run: they take blocks of steps in turns, and after each heat the faster half
stays (successive halving: Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013).
First the trial finds overlap and size of the parts together, then the algorithm for these. All settings share a replica
of their own, so that the run's parameters do not change.
"""

from __future__ import annotations

import copy
import dataclasses
import gc
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradsweep.errors import UsageError
from gradsweep.files import read_json, write_json
from gradsweep.run_directory import TUNED
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.options.exchanges import ALLREDUCES, RING, Allreduce, Mixed, Overlapping

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.race.racer import Racer

TRIAL_S = 1.5
"""Seconds of a trial, about, unless steps are long."""
LONGEST_S = 15.0
"""Seconds in which sizes of parts are tried, at most: if steps are long, only the smallest and the largest size are."""
STEPS = 4
"""That a setting takes in a trial, at least: two when it is set up, and two in a heat."""
PARTS_MIB = (4.0, 16.0, 64.0)
"""Sizes of parts that are tried beside the size that goes with the number of workers."""
PRECISION = 0.01
"""A heat ends early where the ratios of all settings are known so well."""
RATE = 1e-6
"""Part of the learning rate with which a trial steps, so that optimizers that share a model do not lead it astray."""


class Setting(NamedTuple):
    """A setting of an exchange; `allreduce` is None if it sums nothing, or if the algorithm cannot be chosen."""

    overlap: bool
    part_mib: float
    allreduce: str | None

    def apply_to(self, config: RunConfig) -> RunConfig:
        """Return the config with this setting."""
        return dataclasses.replace(config, exchange=dataclasses.replace(config.exchange, **self._asdict()))


def explain_untunable(config: RunConfig) -> str | None:
    """Return why there is nothing to tune in a run's exchange; None if there is."""
    if config.workers == 1:
        return "workers=1: nothing is sent"
    if not isinstance(config.exchange, Overlapping):
        return f"exchange={get_name(config.exchange)}: it has one setting only"
    if config.exchange.transport != "mpi":
        return f"exchange.transport={config.exchange.transport}: its library chooses the algorithm itself"
    return None


def describe_setting(config: RunConfig) -> dict[str, Any]:
    """Return the exchange setting of a config with the names in ratios.json; empty if its exchange has no settings."""
    from trainers.mpi.message_sizes import part_bytes

    exchange = config.exchange
    if not isinstance(exchange, Overlapping):
        return {}
    part_mib = part_bytes(config.workers, exchange.part_mib) / 2**20
    return Setting(exchange.overlap, part_mib, (exchange.allreduce or RING) if _sums(config) else None)._asdict()


def tune_run(config: RunConfig, comm: MPI.Intracomm, directory: Path) -> RunConfig | None:
    """Return the config of a run with the setting that a trial finds; without exchange.tune, return it unchanged.

    The first attempt of a run holds the trial and writes the setting into tuned.json. Later attempts use this setting,
    so that a run that continues from a checkpoint computes the same. All workers call this.

    Returns:
        None if a signal has ended the trial.

    Raises:
        UsageError: the run cannot be built.
        RunFailed: a setting has failed on this rank.
    """
    if not is_tuned(config) or explain_untunable(config):
        return config
    tuned = comm.bcast(read_tuned(directory, config) if comm.rank == 0 else None)
    if tuned is None:
        tuned = find_setting(config, comm, TRIAL_S)
        if tuned is None:
            return None
        if comm.rank == 0:
            write_json(directory / TUNED, tuned)
    return apply_tuned(config, tuned)


def is_tuned(config: RunConfig) -> bool:
    """Tell whether a trial chooses the setting of a run's exchange (exchange=tuned)."""
    return bool(getattr(config.exchange, "tune", False))


def read_tuned(directory: Path, config: RunConfig) -> dict[str, Any] | None:
    """Return the content of a run's tuned.json; None if it is missing or does not fit the run's config."""
    tuned = read_json(directory / TUNED)
    with suppress(KeyError, TypeError, ValueError):
        if tuned is not None:
            apply_tuned(config, tuned)
            return tuned
    return None


def apply_tuned(config: RunConfig, tuned: Mapping[str, Any]) -> RunConfig:
    """Return the config with the setting from `tuned`, the content of tuned.json."""
    return Setting(*(tuned[field] for field in Setting._fields)).apply_to(config)


def find_setting(config: RunConfig, comm: MPI.Intracomm, seconds: float) -> dict[str, Any] | None:
    """Find the fastest exchange setting of a run; return it with the seconds of a step of all tried settings.

    All workers call this.

    Args:
        comm: one rank for each worker.
        seconds: approximate duration of the trial.

    Returns:
        None if a signal to a rank has ended the trial.

    Raises:
        UsageError: the run cannot be built.
        RunFailed: a setting has failed on this rank.
    """
    trial = _Trial(config, comm, seconds)
    try:
        found = trial.find()
    finally:
        trial.close()
        gc.collect()  # hooks refer to the model and back
    if trial.is_stopped:
        return None
    tried = [{**setting._asdict(), "step_s": step_s} for setting, step_s in trial.step_s.items()]
    return {**found._asdict(), "tried": sorted(tried, key=lambda each: each["step_s"])}


class _Trial:
    """A trial on one rank, which races settings in heats; all ranks call each method together.

    Attributes:
        step_s: by tried setting, the seconds of a step in its last heat.
        is_stopped: whether a signal to a rank has ended the trial.
    """

    def __init__(self, config: RunConfig, comm: MPI.Intracomm, seconds: float) -> None:
        import numpy as np
        from mpi4py import MPI

        from trainers.devices.yardstick import Yardstick

        self.comm, self._config = comm, copy.deepcopy(config)  # parts of a config, such as a memory, have state
        self._can_overlap = bool(comm.allreduce(MPI.Query_thread() >= MPI.THREAD_MULTIPLE, MPI.LAND))
        self.is_stopped = False
        self._deadline = time.monotonic() + seconds
        self._random = np.random.default_rng(config.seed)
        self._yardstick = Yardstick(comm, config.threads_per_worker)
        self.step_s: dict[Setting, float] = {}
        self._racers: dict[Setting, Racer] = {}
        self._first = self._build(_choose_first(config, comm))
        self._heats = 0
        """The number of heats that are still to come."""

    def _build(self, setting: Setting) -> Racer:
        from trainers.race.racer import Racer

        like = next(iter(self._racers.values()), None)
        config = setting.apply_to(copy.deepcopy(self._config))
        racer = self._racers[setting] = Racer(config, self.comm, like=like, rate=RATE)
        racer.warm_up(1)
        return racer

    def find(self) -> Setting:
        """Race the settings; return the fastest."""
        first = next(iter(self._racers))
        gradient_mib = self._first.worker.replica.flat.gradients.nbytes / 2**20
        parts = [first.part_mib]
        for part_mib in PARTS_MIB:
            if parts[-1] < min(gradient_mib, part_mib):  # larger parts than the gradient are the same
                parts.append(part_mib)
        settings = [Setting(overlap, part_mib, first.allreduce) for part_mib in parts for overlap in (False, True)]
        if self.comm.bcast(self._first.warm_step_s) * STEPS * len(settings) > LONGEST_S:
            settings = [setting for setting in settings if setting.part_mib in (parts[0], parts[-1])]
        algorithms = [] if first.allreduce is None else [name for name in ALLREDUCES if name != first.allreduce]
        self._heats = _count_heats(len(settings)) + _count_heats(1 + len(algorithms))
        best = self._keep_fastest(settings)
        if self.is_stopped:
            return best
        return self._keep_fastest([best, *(best._replace(allreduce=name) for name in algorithms)])

    def _keep_fastest(self, settings: Sequence[Setting]) -> Setting:
        """Race settings in heats, after each of which the faster half stays; return the fastest setting."""
        left = [setting for setting in settings if self._is_possible(setting)]
        while len(left) > 1:
            times = self._race(left)
            left = sorted(times, key=lambda setting: times[setting])[: math.ceil(len(times) / 2)]
            if self._is_over():
                break
        return left[0]

    def _is_possible(self, setting: Setting) -> bool:
        """Tell whether MPI allows a setting, and no rule forbids it (such as overlap with local SGD)."""
        from trainers.rules.check import check_together

        if setting.overlap and not self._can_overlap:
            return False
        try:
            check_together(setting.apply_to(self._config))
        except UsageError:
            return False
        return True

    def _is_over(self) -> bool:
        return self.is_stopped or bool(self.comm.bcast(time.monotonic() > self._deadline))

    def _race(self, settings: Sequence[Setting]) -> dict[Setting, float]:
        """Race settings in a heat, as far as there is memory for them; return the seconds of a step of each."""
        from trainers.race.heat import Heat
        from trainers.race.plan import Plan
        from trainers.race.racer import has_room

        for setting in list(self._racers):
            if setting not in settings and self._racers[setting] is not self._first:
                self._racers.pop(setting).close()
        for setting in settings:
            largest = max(racer.bytes for racer in self._racers.values())
            if setting not in self._racers and has_room(self.comm, self._first.worker.device, largest):
                self._build(setting)
        racers = {repr(setting): self._racers[setting] for setting in settings if setting in self._racers}
        seconds = self.comm.bcast(max(self._deadline - time.monotonic(), 0.01) / max(self._heats, 1))
        self._heats -= 1
        found: dict[str, float] = {}

        def note(figures: dict[str, Any], rows: list[dict[str, Any]]) -> None:
            found.update({name: run["step_s"] for name, run in figures["runs"].items()})

        plan = Plan((), seconds, PRECISION, 0)
        heat = Heat(self.comm, racers, plan, self._random, self._yardstick, note, least_rounds=1)
        self.is_stopped = heat.run()
        found = self.comm.bcast(found)
        times = {setting: found.get(repr(setting), math.inf) for setting in settings if repr(setting) in racers}
        self.step_s.update(times)
        return times

    def close(self) -> None:
        """Free the memory, threads and communicators of all settings."""
        for racer in reversed(self._racers.values()):
            racer.close()


def _choose_first(config: RunConfig, comm: MPI.Comm) -> Setting:
    """Return the default setting: no overlap, parts of the default size, and a ring if it can be chosen."""
    from mpi4py import MPI

    from trainers.mpi import allreduce
    from trainers.mpi.message_sizes import part_bytes

    can_choose = comm.allreduce(allreduce.can_choose(), MPI.LAND)
    chosen = RING if _sums(config) and can_choose else None
    return Setting(False, part_bytes(config.workers) / 2**20, chosen)


def _sums(config: RunConfig) -> bool:
    return isinstance(config.exchange, (Allreduce, Mixed))


def _count_heats(settings: int) -> int:
    """Return the number of heats after which one of `settings` settings is left."""
    return (settings - 1).bit_length()
