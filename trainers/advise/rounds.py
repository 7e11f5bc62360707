"""Measure in rounds: in each, the computation and every method take a turn in a new random order.

So other programs slow all of them alike. Between two rounds the yardstick is read, as in runs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gradsweep import csv_columns
from gradsweep.cli.tables import print_line
from gradsweep.files import now, write_json
from gradsweep.text import plural
from trainers.advise.bench import Computation, MethodBench, Times, explain_errors, is_out_of_memory, list_times
from trainers.advise.methods import Method, describe_needs, describe_state
from trainers.advise.request import Request
from trainers.advise.sizes import FEW, MANY
from trainers.config.groups import get_name
from trainers.devices import choose, memory
from trainers.devices.yardstick import Yardstick

FORMAT = 1
LEAST, MOST = 5, 400
"""Rounds, at least and at most."""
_QUICK_S = 0.02
"""Seconds of a step below which the first step of a turn does not count: caches are cold."""
_SLOW_S, _SHARE, _SLOWER = 1.0, 1 / 30, 5.0
"""A method is left out if its step takes longer than all of these: seconds, share of the request's, computations."""
_WRITE_S = 2.0

_COMPUTE = ("", 0)
Turn = tuple[str, int]
"""A method and a number of workers; the computation is _COMPUTE."""


class Rounds:
    """The rounds of a measurement, and what they have measured so far."""

    def __init__(
        self, request: Request, methods: list[Method], refused: dict[str, str], computation: Computation
    ) -> None:
        from mpi4py import MPI

        self._request, self._computation, self._refused = request, computation, refused
        self._methods = {method.name: method for method in methods}
        self._benches: dict[Turn, MethodBench] = {}
        self._times: dict[Turn, list[Times]] = {_COMPUTE: []}
        self._facts: dict[Turn, Mapping[str, Any]] = {}
        config = methods[0].config
        self._random = random.Random(config.seed)
        self._yardstick = Yardstick(MPI.COMM_SELF, config.threads_per_worker)
        self._readings: list[dict[str, float]] = []
        self._written = 0.0

    def run(self) -> None:
        """Measure for about the seconds of the request, and write the measurements after rounds and at the end."""
        self._set_up()
        self._read_yardstick()
        end, number = time.monotonic() + self._request.seconds, 0
        while number < LEAST or (time.monotonic() < end and number < MOST):
            number += 1
            turns = list(self._times)
            self._random.shuffle(turns)
            for turn in turns:
                self._take_turn(turn)
            self._read_yardstick()
            if time.monotonic() - self._written > _WRITE_S:
                self._write()
        self._write()

    def _set_up(self) -> None:
        """Try each method once, and find out for which a further payload costs time."""
        for name in list(self._methods):
            try:
                bench = self._get_bench((name, MANY))
            except Exception as error:  # of a method of others, too
                self._refused[name] = "not enough memory" if is_out_of_memory(error) else " ".join(str(error).split())
                del self._methods[name]
                continue
            if (reason := explain_slow(bench, self._computation.first.total, self._request.seconds)) is not None:
                self._refused[name] = reason
                self._forget((name, MANY))
                del self._methods[name]
                continue
            self._times[name, MANY] = []
            if {"allgather", "swaps"} & bench.exchange.collectives.calls.keys():
                self._times[name, FEW] = []
        left = f"; left out: {', '.join(self._refused)}" if self._refused else ""
        print_line(f"measuring {plural(len(self._methods), 'method')} for {self._request.seconds:g} s{left}", "dim")

    def _take_turn(self, turn: Turn) -> None:
        take: Callable[[], Times] = self._computation.take_step
        if turn != _COMPUTE:
            take = self._get_bench(turn).take_step
        with explain_errors(self._request, self._methods["none"].config):
            taken = take()
            self._times[turn].append(take() if taken.total < _QUICK_S else taken)

    def _get_bench(self, turn: Turn) -> MethodBench:
        """Return the exchange of a turn; it is built first, if it is not there, and others go if memory is short."""
        if turn not in self._benches:
            gradients = self._computation.replica.flat.gradients
            while self._benches and memory.measure_free_bytes(gradients.device) < (MANY + 4) * gradients.nbytes:
                self._forget(next(iter(self._benches)))
            self._benches[turn] = MethodBench(self._methods[turn[0]], turn[1], self._computation)
        return self._benches[turn]

    def _forget(self, turn: Turn) -> None:
        bench = self._benches.pop(turn)
        self._facts[turn] = _describe(bench)
        bench.exchange.close()

    def _read_yardstick(self) -> None:
        reading = self._yardstick.read()
        self._readings.append(
            {"seconds": float(reading.seconds[0]), "others_s": reading.others_s, "cores_s": reading.cores_s}
        )

    def _write(self) -> None:
        self._written = time.monotonic()
        config, computation = self._methods["none"].config, self._computation
        compute = {part: [getattr(one, part) for one in self._times[_COMPUTE]] for part in Times._fields}
        own = [one.total - one.encode - one.communicate - one.decode for one in self._times[_COMPUTE]]
        device = computation.replica.device
        write_json(
            self._request.output,
            {
                "format": FORMAT,
                "written": now(),
                "parameters": len(computation.replica.flat),
                "batch": config.batch.size,
                "threads": config.threads_per_worker,
                **choose.describe(device),
                "torch": torch.__version__,
                "rounds": len(own),
                "compute": {**{part: compute[part] for part in csv_columns.PHASES if part in compute}, "total": own},
                "yardstick": self._readings,
                "methods": {name: self._describe_method(name) for name in self._methods},
                "refused": self._refused,
            },
            durable=False,
        )

    def _describe_method(self, name: str) -> dict[str, Any]:
        method = self._methods[name]
        worlds = {}
        for turn in self._times:
            if turn[0] == name:
                facts = _describe(self._benches[turn]) if turn in self._benches else self._facts[turn]
                worlds[str(turn[1])] = {**facts, **list_times(self._times[turn])}
        return {
            "memory": method.memory,
            "state": describe_state(method),
            "needs": describe_needs(method.compressor),
            "reported": method.compressor.reported,
            "paper": method.compressor.paper,
            "exchange": get_name(method.config.exchange),
            "workers": worlds,
        }


def explain_slow(bench: MethodBench, compute_s: float, seconds: float) -> str | None:
    """Return why a method is too slow to be measured in rounds of so many seconds in all; None if it is not."""
    limit = max(_SLOW_S, seconds * _SHARE, _SLOWER * compute_s)
    if bench.first.total < limit or (taken := bench.take_step().total) < limit:  # the first loads code
        return None
    return f"it takes {taken:.2g} s to encode and decode, {taken / compute_s:.2g} times the computation"


def _describe(bench: MethodBench) -> dict[str, Any]:
    return {**bench.counts.compute_means(bench.exchange.collectives), **bench.measure_bytes()}
