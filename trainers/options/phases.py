"""Phases of a run: sizes of images and batches that change by epoch (progressive resizing)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.options.parameters import Checked, InvalidParameter, boolean, from_mapping, integer, number

WORDS = (
    "a list of {epoch, size, batch, scale, rectangular}, by epoch from 0 up: image side in pixels from 8 to 4096, "
    "batch.size from 1 up and not at epoch 0, scale above 0 to 1, rectangular true or false"
)


@dataclasses.dataclass(frozen=True)
class Phase(Checked):
    """The sizes of batches and images from epoch `epoch` (from 0) on.

    Args:
        batch: replaces batch.size.
        size: side in pixels to which images are resized; None: they are not resized.
        scale, rectangular: replace the data set's options of these names for images that are decoded from files;
            None: the data set's options hold.
    """

    epoch: int = integer(0, low=0)
    batch: int | None = integer(None, low=1, optional=True)
    size: int | None = integer(None, low=8, high=4096, optional=True)
    scale: float | None = number(None, 0.0, 1.0, above=True, optional=True)
    rectangular: bool | None = boolean(None, optional=True)


def is_phase(item: Any) -> bool:
    """Tell whether an item of the option `phases` has an epoch, and values in range."""
    if not isinstance(item, Mapping) or item.get("epoch") is None:
        return False
    try:
        from_mapping(Phase, dict(item))
    except InvalidParameter:
        return False
    return True


def check_order(phases: Sequence[Mapping[str, Any]]) -> None:
    """Refuse phases that are not in order of their epochs, and a first phase that repeats batch.size.

    Raises:
        InvalidParameter: the phases are invalid.
    """
    epochs = [phase["epoch"] for phase in phases]
    rises = all(after > before for before, after in zip(epochs, epochs[1:], strict=False))
    if not rises or any(phase["epoch"] == 0 and phase.get("batch") is not None for phase in phases):
        raise InvalidParameter("phases", [dict(phase) for phase in phases], WORDS)


def complete_phases(phases: Sequence[Mapping[str, Any]], batch: int) -> tuple[Phase, ...]:
    """Return all options of each phase, the first from epoch 0 on with batches of `batch`."""
    completed = [Phase(batch=batch)]
    for phase in phases:
        changes = {key: value for key, value in phase.items() if value is not None}
        completed.append(dataclasses.replace(completed[-1], **changes))
    return tuple(completed[1:] if len(completed) > 1 and completed[1].epoch == 0 else completed)
