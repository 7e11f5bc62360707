"""Which optimizer, schedule, algorithm, memory and clipping go together, beyond what a table of compressors can say."""

from __future__ import annotations

import math

from compressors.memories.dgc_momentum import DGC
from gradsweep.errors import UsageError, bad_value
from gradsweep.parameters import InvalidParameter
from trainers.config.groups import name_of
from trainers.config.run_config import RunConfig
from trainers.options import optimizers as options
from trainers.options.algorithms import LocalSGD
from trainers.options.schedules import Regime

_WITHOUT_MOMENTUM = {options.SGD: "optimizer.momentum=0 optimizer.nesterov=false, or optimizer=dgc_sgd"}
_NO_MOMENTUM = "the gradient would have no momentum; valid is memory=dgc, or optimizer=sgd"
_CLIPPED_TWICE = "the same gradient would be clipped twice; valid is one of the two"
_DENSE_WARMUP = (
    "both say how long the gradient is sent dense; valid is policy.start_step=1, which leaves it to the other"
)
_FROZEN_LATER = (
    "a step that overflows is left out, so the variance would freeze after policy.start_step; valid is precision=bf16 "
    "or fp32"
)
_MOMENTUM_CLIPPED = "what is exchanged is a momentum; valid is clip.local_norm"
_MOMENTUM_EXCHANGED = "it exchanges momenta, not what workers have moved; valid is optimizer=adam"
_MOVES_HAVE_MOMENTUM = "what the workers have moved has momentum already; valid is another memory, or algorithm=sgd"
_OWN_GRADIENTS = "gradients are not exchanged; valid is clip.norm, of every worker's own gradient"
_MIXED_STATISTICS = (
    "the workers' models differ, so that samples would be normalised by what other models make of others; valid is "
    "batch_norm=averaged or local"
)
_NOTHING_LEAVES = "nothing leaves while backward goes on; valid is exchange.overlap=false"
_OTHER_UNITS = (
    "what it keeps of gradients is no part of what workers have moved; valid is memory=none or scaled_residual"
)

LINES = (
    "memory=dgc with optimizer.momentum or optimizer.beta1 above 0, but for optimizer=dgc_sgd: the memory has the "
    "momentum",
    f"optimizer=dgc_sgd with another memory than dgc: {_NO_MOMENTUM}",
    f"memory.clip with clip.local_norm: {_CLIPPED_TWICE}",
    f"optimizer=onebit_adam with policy.start_step other than 1 and optimizer.freeze_steps + 1: {_DENSE_WARMUP}",
    f"optimizer=onebit_adam with precision=fp16: {_FROZEN_LATER}",
    f"optimizer=onebit_adam with clip.norm or clip.value: {_MOMENTUM_CLIPPED}",
    f"algorithm=local_sgd with optimizer=onebit_adam: {_MOMENTUM_EXCHANGED}",
    f"algorithm=local_sgd with memory=dgc: {_MOVES_HAVE_MOMENTUM}",
    f"algorithm=local_sgd with clip.local_norm: {_OWN_GRADIENTS}",
    f"algorithm=local_sgd with exchange.overlap=true: {_NOTHING_LEAVES}",
    f"algorithm=local_sgd with batch_norm=synchronised: {_MIXED_STATISTICS}",
    f"algorithm.from_step above 1 with memory=ef21, or with memory=residual while gradients are compressed: "
    f"{_OTHER_UNITS}, or policy.start_step=algorithm.from_step with residual",
)
"""The rules in words, for docs/reference/compatibility.md."""


def check(run: RunConfig) -> None:
    """Refuse what does not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    _check_optimizer(run)
    _check_schedule(run)
    _check_algorithm(run)
    if run.max_steps is not None:
        _check_steps(run, run.max_steps)


def check_length(run: RunConfig, samples: int) -> None:
    """Refuse what comes into force only after the end of a run on a training set of so many samples.

    Raises:
        UsageError: names the option.
    """
    lengths = run.lengths(samples)
    _check_steps(run, lengths.steps)
    try:
        run.policy.check_length(math.ceil(lengths.length), lengths.steps)
    except InvalidParameter as error:
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error


def _check_steps(run: RunConfig, steps: int) -> None:
    if isinstance(run.optimizer, options.OneBitAdam) and run.optimizer.freeze_steps >= steps:
        valid = f"an integer below the number of steps ({steps})"
        raise bad_value("optimizer.freeze_steps", run.optimizer.freeze_steps, valid)
    for compressor in run.policy.possible(run.compressor):
        if (first := getattr(compressor, "start_step", 0)) > steps:
            key = "compressor" if compressor is run.compressor else f"policy.patterns: {compressor.name}"
            raise bad_value(f"{key}.start_step", first, f"an integer up to the number of steps ({steps})")
    if isinstance(run.algorithm, LocalSGD):
        first, period = run.algorithm.from_step, run.algorithm.steps
        if first > steps:
            raise bad_value("algorithm.from_step", first, f"an integer up to the number of steps ({steps})")
        if first + period - 1 > steps:
            valid = f"an integer up to {steps - first + 1}, or nothing would be averaged in {steps} steps"
            raise bad_value("algorithm.steps", period, valid)


def _check_optimizer(run: RunConfig) -> None:
    optimizer, memory = run.optimizer, run.memory
    if isinstance(optimizer, options.DGCSGD):
        if not isinstance(memory, DGC):
            raise UsageError(f"optimizer=dgc_sgd with memory={memory.name}: {_NO_MOMENTUM}")
    elif isinstance(memory, DGC):
        for option in ("momentum", "beta1"):
            if given := getattr(optimizer, option, 0.0):
                valid = _WITHOUT_MOMENTUM.get(type(optimizer), f"optimizer.{option}=0")
                raise UsageError(
                    f"memory=dgc with optimizer.{option}={given}: the memory has the momentum; valid is {valid}"
                )
    if isinstance(memory, DGC) and memory.clip is not None and run.clip.local_norm is not None:
        raise UsageError(f"clip.local_norm={run.clip.local_norm} with memory.clip={memory.clip}: {_CLIPPED_TWICE}")
    if isinstance(optimizer, options.OneBitAdam):
        dense = run.policy.start_step - 1
        if dense != optimizer.freeze_steps:
            raise UsageError(
                f"policy.start_step={run.policy.start_step} with optimizer.freeze_steps={optimizer.freeze_steps}: "
                f"{_DENSE_WARMUP}"
            )
        if run.precision == "fp16":
            raise UsageError(f"precision=fp16 with optimizer=onebit_adam: {_FROZEN_LATER}")
        for bound in ("norm", "value"):
            if (given := getattr(run.clip, bound)) is not None:
                raise UsageError(f"clip.{bound}={given} with optimizer=onebit_adam: {_MOMENTUM_CLIPPED}")


def _check_schedule(run: RunConfig) -> None:
    schedule = run.schedule
    if run.scaling.warmup_from_base:
        if not schedule.warmup_epochs:
            raise bad_value("scaling.warmup_from_base", True, "false where schedule.warmup_epochs is 0")
        if schedule.warmup_from is not None:
            raise bad_value("schedule.warmup_from", schedule.warmup_from, "null with scaling.warmup_from_base=true")
    if not isinstance(schedule, Regime):
        return
    for option in ("momentum", "weight_decay"):
        given = next((phase[option] for phase in schedule.phases if phase.get(option)), None)
        if given is None:
            continue
        if not hasattr(run.optimizer, option):
            raise UsageError(
                f"{option}={given} in schedule.phases with optimizer={name_of(run.optimizer)}, which has none; "
                f"valid is phases without {option}"
            )
        if option == "momentum" and isinstance(run.memory, DGC) and not isinstance(run.optimizer, options.DGCSGD):
            raise UsageError(
                f"momentum={given} in schedule.phases with memory=dgc: the memory has the momentum; "
                "valid is phases without momentum"
            )


def _check_algorithm(run: RunConfig) -> None:
    algorithm = run.algorithm
    if not isinstance(algorithm, LocalSGD):
        return
    if isinstance(run.optimizer, options.OneBitAdam):
        raise UsageError(f"algorithm=local_sgd with optimizer=onebit_adam: {_MOMENTUM_EXCHANGED}")
    if isinstance(run.memory, DGC):
        raise UsageError(f"algorithm=local_sgd with memory=dgc: {_MOVES_HAVE_MOMENTUM}")
    if run.clip.local_norm is not None:
        raise UsageError(f"algorithm=local_sgd with clip.local_norm={run.clip.local_norm}: {_OWN_GRADIENTS}")
    if getattr(run.exchange, "overlap", False):
        raise UsageError(f"algorithm=local_sgd with exchange.overlap=True: {_NOTHING_LEAVES}")
    if run.batch_norm == "synchronised":
        raise UsageError(f"algorithm=local_sgd with batch_norm=synchronised: {_MIXED_STATISTICS}")
    kept = run.memory.name
    if algorithm.from_step > 1 and (
        kept == "ef21" or (kept == "residual" and run.policy.start_step < algorithm.from_step)
    ):
        raise UsageError(
            f"algorithm.from_step={algorithm.from_step} with memory={kept}: {_OTHER_UNITS}"
            + ("" if kept == "ef21" else f", or policy.start_step={algorithm.from_step}")
        )
