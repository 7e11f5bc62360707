"""Calibrate the machine of a launcher on a core that no run has."""

from __future__ import annotations

import os
from typing import Any

from gradsweep.errors import UsageError
from sweep.executors.slots import LockedSlots
from sweep.provenance.calibration import measure_core


def calibrate() -> dict[str, Any]:
    """Measure one core, which is leased meanwhile where one is free; see `measure_core` for what is returned."""
    slots = lease = None
    try:
        slots = LockedSlots(sweep="calibration")
        lease = slots.lease(1, first=False)
    except UsageError:
        pass  # a caller that needs slots reports it
    try:
        if lease is None:
            return measure_core(sorted(os.sched_getaffinity(0)), core_was_free=False)
        return measure_core(lease.cores, lease.descriptors, core_was_free=True)
    finally:
        if slots is not None:
            slots.close()
