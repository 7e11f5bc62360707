"""Which phases (progressive resizing) a run can have: known before anything starts."""

from __future__ import annotations

from gradsweep.errors import UsageError
from trainers.config.groups import name_of
from trainers.config.run_config import RunConfig
from trainers.options.models import ImageModel
from trainers.options.phases import Phase

_TEXT = "streams of text go on from step to step; valid is phases=[]"
_NO_IMAGES = "features have no size; valid are phases without size"
_SCALED = (
    "the rate would be scaled for the first batch; valid is by=workers or degree, or schedule knots with the rates"
)
_RESIZED_BACK = "all images would have that size again; valid is model.input_size=null"
_ONE_SIZE = "it is built for the size of its images; valid are phases of one size"

LINES = (
    "phases that begin after the last epoch, or have a batch without a sample for each worker or for each of "
    "batch.accumulate pieces",
    f"phases with a data set of text: {_TEXT}",
    f"phases with size and a data set of features: {_NO_IMAGES}",
    f"phases with batch and scaling.by=batch or neighbourhood: {_SCALED}",
    f"phases with size and model.input_size: {_RESIZED_BACK}",
    f"phases of several sizes, or rectangular, with model=lenet, fc, mlp, logistic, alexnet1 or a vision transformer: "
    f"{_ONE_SIZE}",
)
"""The rules in words, for docs/reference/compatibility.md."""


def check(run: RunConfig) -> None:
    """Refuse phases that do not go with the rest of the run.

    Raises:
        UsageError: names the phase and what would work.
    """
    if not run.phases:
        _check_rectangles(run)
        return
    dataset = name_of(run.dataset)
    if run.dataset.kind == "text":
        raise UsageError(f"phases with dataset={dataset}: {_TEXT}")
    for phase in run.settled:
        if phase.epoch >= run.epochs:
            raise UsageError(
                f"phases: epoch={phase.epoch}: valid is an integer up to {run.epochs - 1}, as the run has epochs="
                f"{run.epochs}"
            )
        _check_batch(run, phase)
    by = run.scaling.by
    if by in ("batch", "neighbourhood") and run.scaling.rule != "none" and any(one.get("batch") for one in run.phases):
        raise UsageError(f"phases with batch and scaling.by={by}: {_SCALED}")
    sized = [phase for phase in run.settled if phase.size is not None]
    if not sized:
        _check_rectangles(run)
        return
    if run.dataset.kind != "images":
        raise UsageError(f"phases with size and dataset={dataset}: {_NO_IMAGES}")
    model = name_of(run.model)
    if isinstance(run.model, ImageModel):
        if run.model.input_size is not None:
            raise UsageError(f"phases with size and model.input_size={run.model.input_size}: {_RESIZED_BACK}")
        for phase in sized:
            if phase.size is not None and phase.size < run.model.smallest:
                raise UsageError(
                    f"phases: size={phase.size} from epoch {phase.epoch} on: valid is an integer from "
                    f"{run.model.smallest} up with model={model}"
                )
    if run.model.one_size and len({phase.size for phase in run.settled}) > 1:
        raise UsageError(f"phases of several sizes with model={model}: {_ONE_SIZE}")
    _check_rectangles(run)


def _check_batch(run: RunConfig, phase: Phase) -> None:
    total = run.within(phase).global_batch
    least = run.workers * run.batch.accumulate
    if total < least:
        raise UsageError(
            f"phases: batch={phase.batch} from epoch {phase.epoch} on: valid are at least {least} samples of all "
            f"workers together: workers={run.workers} times batch.accumulate={run.batch.accumulate}"
        )


def _check_rectangles(run: RunConfig) -> None:
    if not run.model.one_size:
        return
    if any(getattr(run.within(phase).dataset, "rectangular", False) for phase in run.settled):
        raise UsageError(f"rectangular images with model={name_of(run.model)}: {_ONE_SIZE}")
