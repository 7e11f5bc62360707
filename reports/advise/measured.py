"""Read the measurements of `python -m trainers.advise`."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradsweep.disturbance import OTHERS, SLOWER
from gradsweep.errors import UsageError
from gradsweep.files import read_json
from reports.reading.json_values import as_mapping, as_number
from reports.scaling.measured.traffic import CountedTraffic, Traffic, infer_traffic

Array = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class MethodTimes:
    """The measurements of a method, by number of workers; times in s, one for each round.

    Attributes:
        state: what a worker keeps from step to step, in words.
        needs: what its accuracy needs, in words; `reported`: what others report of it.
        kept_bytes: of what it keeps from step to step; `message_bytes`: of buffers of messages.
    """

    name: str
    memory: str
    state: str
    needs: str
    reported: str
    paper: str
    traffic: Traffic
    encode: Mapping[int, Array]
    decode: Mapping[int, Array]
    kept_bytes: float
    message_bytes: Mapping[int, float]

    def compute_memory(self, workers: int) -> float:
        """Return the bytes that the method takes with this many workers, whose messages are all kept until decoded."""
        counts = sorted(self.message_bytes)
        ends = [self.message_bytes[count] for count in counts]
        if len(counts) == 1:
            return self.kept_bytes + ends[0]
        slope = max(0.0, (ends[-1] - ends[0]) / (counts[-1] - counts[0]))
        return self.kept_bytes + max(0.0, ends[0] + slope * (workers - counts[0]))


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurements of one model on one machine.

    Attributes:
        compute: the seconds of a step without the exchange, one for each round; `backward`: of its backward pass.
        refused: the methods that were not measured, with the reasons.
        machine: a line on the device and the rounds.
        disturbed: a line if other programs have disturbed the measurement, else empty.
    """

    parameters: int
    batch: int
    compute: Array
    backward: Array
    methods: tuple[MethodTimes, ...]
    refused: Mapping[str, str]
    machine: str
    disturbed: str


def read_measured(path: Path) -> Measured:
    """Read the file of the measuring program.

    Raises:
        UsageError: it holds no measurements.
    """
    content = read_json(path) or {}
    compute = as_mapping(content.get("compute"))
    try:
        methods = [
            _read_method(str(name), as_mapping(entry)) for name, entry in as_mapping(content.get("methods")).items()
        ]
        found = Measured(
            parameters=int(content["parameters"]),
            batch=int(content["batch"]),
            compute=_read_times(compute["total"]),
            backward=_read_times(compute["backward"]),
            methods=tuple(one for one in methods if isinstance(one, MethodTimes)),
            refused={
                **{str(name): str(reason) for name, reason in as_mapping(content.get("refused")).items()},
                **{name: reason for name, reason in (one for one in methods if isinstance(one, tuple))},
            },
            machine=_describe_machine(content),
            disturbed=_describe_disturbance(content.get("yardstick")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: valid is a file of python -m trainers.advise: {error!r}") from error
    if not len(found.compute) or not found.methods:
        raise UsageError(f"{path}: no round of measurements is in it")
    return found


def _read_method(name: str, entry: Mapping[str, Any]) -> MethodTimes | tuple[str, str]:
    """Return the measurements of a method, or its name and the reason why its messages cannot be modelled."""
    worlds = {int(count): as_mapping(world) for count, world in as_mapping(entry["workers"]).items()}
    counted = [
        CountedTraffic(
            count,
            float(world["payload_bytes"]),
            float(world["sent_bytes"]),
            {str(kind): float(calls) for kind, calls in as_mapping(world["collectives_per_step"]).items()},
            {str(kind): float(calls) for kind, calls in as_mapping(world["early_collectives_per_step"]).items()},
        )
        for count, world in sorted(worlds.items())
    ]
    traffic = infer_traffic(name, str(entry["exchange"]), counted)
    if isinstance(traffic, str):
        return name, traffic
    if name == "none":
        traffic = dataclasses.replace(traffic, is_tuned=True)
    return MethodTimes(
        name=name,
        memory=str(entry["memory"]),
        state=str(entry["state"]),
        needs=str(entry["needs"]),
        reported=str(entry["reported"]),
        paper=str(entry["paper"]),
        traffic=traffic,
        encode={count: _read_times(world["encode"]) for count, world in worlds.items()},
        decode={count: _read_times(world["decode"]) for count, world in worlds.items()},
        kept_bytes=max(as_number(world["kept_bytes"]) for world in worlds.values()),
        message_bytes={count: as_number(world["message_bytes"]) for count, world in worlds.items()},
    )


def _read_times(values: Any) -> Array:
    found = np.array([float(value) for value in values])
    if not np.isfinite(found).all():
        raise ValueError("a time is no number")
    return found


def _describe_machine(content: Mapping[str, Any]) -> str:
    device = str(content.get("gpu") or content.get("device"))
    threads = content.get("threads")
    return f"measured on this machine ({device}, threads_per_worker={threads}) in {content.get('rounds')} rounds"


def _describe_disturbance(readings: Any) -> str:
    """Return in words how other programs disturbed the measurement, by the thresholds of runs; empty if not."""
    found = [as_mapping(one) for one in readings] if isinstance(readings, list) else []
    seconds = [value for one in found if (value := as_number(one.get("seconds"))) > 0]
    had = sum(max(0.0, as_number(one.get("cores_s"))) for one in found)
    others = sum(value for one in found if np.isfinite(value := as_number(one.get("others_s")))) / had if had else 0.0
    said = []
    if len(seconds) > 1 and statistics.quantiles(seconds, n=10)[-1] > SLOWER * min(seconds):
        said.append(
            f"its cores were at times {statistics.quantiles(seconds, n=10)[-1] / min(seconds):.2g} times slower"
        )
    if others > OTHERS:
        said.append(f"other programs took {100 * min(others, 1.0):.0f} % of its cores")
    return f"disturbed: {', and '.join(said)}; the times are too long, their ratios are less affected" if said else ""
