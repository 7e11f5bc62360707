"""Refuse phases (progressive resizing) that a run cannot have, before anything starts."""

from __future__ import annotations

from gradsweep.errors import UsageError
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.options.phases import Phase
from trainers.rules.rule import Condition, Rule, given, has, read, refuse

_ONE_SIZE = Condition(
    "model=lenet, fc, mlp, logistic, alexnet1 or a vision transformer", lambda run: run.model.one_size, "{model=}"
)
_SIZES = Condition("size", lambda run: any(phase.size is not None for phase in run.completed_phases))
_BUILT_FOR_ONE = "it is built for the size of its images"
_ONLY_ONE = "phases of one size"


def _is_rectangular(run: RunConfig) -> bool:
    datasets = [run.adapt_to(phase).dataset for phase in run.completed_phases] if run.phases else [run.dataset]
    return any(getattr(dataset, "rectangular", False) for dataset in datasets)


RULES = (
    Rule(
        Condition("phases", lambda run: bool(run.phases)),
        Condition("a data set of text", lambda run: run.dataset.kind == "text", "{dataset=}"),
        "streams of text go on from step to step",
        "phases=[]",
    ),
    Rule(
        Condition("phases", lambda run: any(phase.get("batch") for phase in run.phases) and run.scaling.rule != "none"),
        Condition("batch", lambda run: True) & has("scaling.by", "batch", "neighbourhood"),
        "the rate would be scaled for the first batch",
        "by=workers or degree, or schedule knots with the rates",
    ),
    Rule(
        Condition("phases", _SIZES.test),
        _SIZES & Condition("a data set of features", lambda run: run.dataset.kind == "features", "{dataset=}"),
        "features have no size",
        "phases without size",
        verb="are",
    ),
    Rule(
        Condition("phases", _SIZES.test),
        _SIZES & given("model.input_size"),
        "all images would have that size again",
        "model.input_size=null",
    ),
    Rule(
        Condition("phases of several sizes", lambda run: len({phase.size for phase in run.completed_phases}) > 1),
        _ONE_SIZE,
        _BUILT_FOR_ONE,
        _ONLY_ONE,
        verb="are",
    ),
    Rule(Condition("rectangular images", _is_rectangular), _ONE_SIZE, _BUILT_FOR_ONE, _ONLY_ONE, verb="are"),
)

LINES = (
    "phases that begin after the last epoch, or have a batch without a sample for each worker or for each of "
    "batch.accumulate pieces, or a size that the model cannot take",
)
"""Descriptions of the checks that are no rules, for docs/reference/compatibility.md."""


def check(run: RunConfig) -> None:
    """Refuse phases that do not go together with the other options of the run.

    Raises:
        UsageError: names the phase and what would work.
    """
    refuse(run, RULES if run.phases else RULES[-1:])
    for phase in run.completed_phases if run.phases else ():
        _check_phase(run, phase)


def _check_phase(run: RunConfig, phase: Phase) -> None:
    if phase.epoch >= run.epochs:
        raise UsageError(
            f"phases: epoch={phase.epoch}: valid is an integer up to {run.epochs - 1}, as the run has epochs="
            f"{run.epochs}"
        )
    least = run.workers * run.batch.accumulate
    if run.adapt_to(phase).global_batch < least:
        raise UsageError(
            f"phases: batch={phase.batch} from epoch {phase.epoch} on: valid are at least {least} samples of all "
            f"workers together: workers={run.workers} times batch.accumulate={run.batch.accumulate}"
        )
    if phase.size is not None and phase.size < read(run, "model.smallest", 0):
        raise UsageError(
            f"phases: size={phase.size} from epoch {phase.epoch} on: valid is an integer from {run.model.smallest} up "
            f"with model={get_name(run.model)}"
        )
