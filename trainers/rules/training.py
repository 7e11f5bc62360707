"""Rules on optimizers, schedules, algorithms, memories and clipping that do not go together."""

from __future__ import annotations

import math
from collections.abc import Callable

from compressors import Compressor
from gradsweep.errors import UsageError, bad_value
from gradsweep.options.parameters import InvalidParameter
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.options import optimizers as options
from trainers.options.algorithms import LocalSGD, NoLoCo
from trainers.options.schedules import WSD, Regime
from trainers.rules.rule import ACCORDION, Condition, Rule, given, has, has_above, has_other, read, refuse

_DGC = has("memory", "dgc")
_LOCAL_SGD = has("algorithm", "local_sgd")
_OF_MOMENTA = has("optimizer", *options.OF_MOMENTA)
_ONE_BIT = has("optimizer", *options.ONE_BIT)
_DISTRIBUTED_LION = has("optimizer", "distributed_lion")
_ZERO_ONE_ADAM = has("optimizer", "zero_one_adam")
_NOLOCO = has("algorithm", "noloco")
_DION = has("optimizer", "dion")
_EVERY_STEPS = given("evaluate_every_steps")
_GROUPS = Condition("optimizer.groups", lambda run: bool(run.optimizer.groups))
_FRAGMENTS = Condition(
    "algorithm.fragments above 1 or algorithm.delay above 0",
    lambda run: read(run, "algorithm.fragments", 1) > 1 or read(run, "algorithm.delay", 0) > 0,
    "{algorithm.fragments=} {algorithm.delay=}",
)
_STREAMS = Condition(
    "algorithm.fragments above 1, algorithm.delay or algorithm.mixing above 0",
    lambda run: isinstance(run.algorithm, LocalSGD) and run.algorithm.streams,
    "{algorithm.fragments=} {algorithm.delay=} {algorithm.mixing=}",
)
_NO_DELAY = Condition(
    "algorithm=local_sgd without delay", lambda run: read(run, "algorithm.delay", 1) == 0, "{algorithm.delay=}"
)
_RADIAL = has("algorithm.average", "radial_directional")
_OVERLAP = has("exchange.overlap", True)
_LATE = has_above("algorithm.from_step", 1)
_TWO_MOMENTA = "the memory has the momentum"
_DECAYS = Condition("memory.beta other than 1", lambda run: read(run, "memory.beta", 1) != 1, "{memory.beta=}")
_RESIDUAL = "the residual is its momentum, which mu shrinks"
_STEP_CLIPPED = "the exchanged values are a step of a fixed length"
_MOMENTUM_CLIPPED = "the exchanged values are momenta"
_OTHER_UNITS = "it keeps a part of gradients, which is no part of the changes of parameters"


def _is_kept_compressed(run: RunConfig) -> bool:
    """Tell whether parts of gradients would be held back in the synchronous phase of post-local SGD."""
    return read(run, "memory") in ("residual", "loco") and run.policy.start_step < run.algorithm.from_step


def _sends_steps(run: RunConfig) -> bool:
    """Tell whether compressor=dion may compress a tensor."""
    return any(one.name == "dion" for one in run.policy.list_possible(run.compressor))


def _is_second_kept_compressed(run: RunConfig) -> bool:
    """Tell whether the second phase of the exchange would hold back parts of gradients there."""
    second = read(run, "exchange.second_memory")
    return second in ("residual", "loco") and run.policy.start_step < run.algorithm.from_step


def _list_condition(words: str, test: Callable[[Compressor], bool]) -> Condition:
    """Return the condition that some compressor of a run, also by its policy, passes a test."""
    return Condition(words, lambda run: any(map(test, run.policy.list_possible(run.compressor))), "{compressor=}")


_MEAN_VALUES = _list_condition("compressor.values=mean", lambda one: getattr(one, "values", None) == "mean")

RULES = (
    Rule(
        Condition("compressor=dion", _sends_steps),
        has_other("optimizer", "dion"),
        "the mean of what it sends is a step, not a gradient",
        "optimizer=dion",
    ),
    Rule(_DION, has_other("compressor", "dion"), "its steps are what compressor=dion exchanges", "compressor=dion"),
    Rule(_DION, has_other("memory", "residual"), _RESIDUAL, "memory=residual"),
    Rule(_DION, _DECAYS, _RESIDUAL, "memory.beta=1"),
    *(
        Rule(_DION, one, "tensors that are sent in another way would step along plain gradients", "optimizer.groups")
        for one in (
            Condition("policy.patterns", lambda run: bool(run.policy.patterns)),
            has_above("policy.min_elements", 1),
            has_above("policy.start_step", 1),
        )
    ),
    Rule(
        _DISTRIBUTED_LION, has_other("compressor", "sign"), "its steps are votes or means of signs", "compressor=sign"
    ),
    *(
        Rule(_DISTRIBUTED_LION, one, "tensors that are sent in another way would step along no signs", instead)
        for one, instead in (
            (Condition("policy.patterns", lambda run: bool(run.policy.patterns)), "policy.patterns=[]"),
            (has("policy.dense_1d", True), "policy.dense_1d=false"),
            (has_above("policy.min_elements", 1), "policy.min_elements=0"),
            (has_above("policy.start_step", 1), "policy.start_step=1"),
        )
    ),
    Rule(
        _ZERO_ONE_ADAM,
        Condition(
            "another memory than residual or none",
            lambda run: read(run, "memory") not in ("residual", "none"),
            "{memory=}",
        ),
        "gradients are exchanged first, and sums of momenta later",
        "memory=residual",
    ),
    Rule(
        _ZERO_ONE_ADAM,
        has("exchange", "hierarchical"),
        "it also sends uncompressed gradients, in one sum over all workers",
        "exchange=auto, allgather or sharded",
    ),
    *(
        Rule(_ZERO_ONE_ADAM, one, "in some steps workers exchange without the server, or nothing", "exchange=sharded")
        for one in (has("exchange.placement", "dedicated"), has_above("exchange.backup", 0))
    ),
    Rule(given("clip.norm"), _DION, _STEP_CLIPPED, "clip.local_norm"),
    Rule(given("clip.value"), _DION, _STEP_CLIPPED, "clip.local_norm"),
    Rule(_LOCAL_SGD, _DION, "Dion exchanges momenta, and local SGD the changes of parameters", "optimizer=muon"),
    Rule(
        has("optimizer", "dgc_sgd"),
        has_other("memory", "dgc"),
        "the gradient would have no momentum",
        "memory=dgc, or optimizer=sgd",
    ),
    Rule(
        _DGC,
        has_above("optimizer.momentum", 0) & has("optimizer", "sgd", shown=""),
        _TWO_MOMENTA,
        "optimizer.momentum=0 optimizer.nesterov=false, or optimizer=dgc_sgd",
    ),
    Rule(
        _DGC,
        has_above("optimizer.momentum", 0) & has("optimizer", "signum", "lars", "muon", shown=""),
        _TWO_MOMENTA,
        "optimizer.momentum=0",
    ),
    Rule(_DGC, has_above("optimizer.args.momentum", 0), _TWO_MOMENTA, "optimizer.args.momentum=0"),
    Rule(_DGC, has_above("optimizer.beta1", 0), _TWO_MOMENTA, "optimizer.beta1=0"),
    Rule(
        _EVERY_STEPS,
        has("exchange.mode", "asynchronous"),
        "workers have the same parameters at the end of an epoch only",
        "evaluate_every",
    ),
    Rule(_DGC, _GROUPS, "the memory has the same momentum for all tensors", "optimizer.groups=[]"),
    Rule(
        has("optimizer", "dgc_sgd", *options.OF_MOMENTA),
        _GROUPS,
        "what is exchanged is this optimizer's for all tensors",
        "optimizer.groups=[]",
    ),
    Rule(given("clip.local_norm"), given("memory.clip"), "the same gradient would be clipped twice", "one of the two"),
    Rule(
        Condition(
            "policy.start_step other than 1 and optimizer.freeze_steps + 1",
            lambda run: _ONE_BIT.test(run) and run.policy.start_step - 1 != run.optimizer.freeze_steps,
            "{policy.start_step=}",
        ),
        has("optimizer", *options.ONE_BIT, shown="{optimizer.freeze_steps=}"),
        "both say how long the gradient is sent dense",
        "policy.start_step=1, which leaves it to the other",
    ),
    Rule(
        has("precision", "fp16"),
        _ONE_BIT,
        "a step that overflows is left out, so the variance would freeze after policy.start_step",
        "precision=bf16 or fp32",
    ),
    Rule(given("clip.norm"), _OF_MOMENTA, _MOMENTUM_CLIPPED, "clip.local_norm"),
    Rule(given("clip.value"), _OF_MOMENTA, _MOMENTUM_CLIPPED, "clip.local_norm"),
    Rule(
        _LOCAL_SGD,
        _OF_MOMENTA,
        "the optimizer exchanges momenta, and local SGD the changes of parameters",
        "optimizer=adam",
    ),
    Rule(_LOCAL_SGD, _DGC, "the changes of parameters have momentum already", "another memory, or algorithm=sgd"),
    Rule(
        _LOCAL_SGD,
        given("clip.local_norm"),
        "workers send no gradients",
        "clip.norm, here for each worker's gradient",
    ),
    Rule(
        _NO_DELAY,
        has("exchange.overlap", True),
        "workers wait for the result, so that no message travels during a step",
        "exchange.overlap=false, or algorithm.delay above 0",
    ),
    Rule(
        _FRAGMENTS,
        Condition(
            "another exchange than allreduce, allgather, mixed or sharded",
            lambda run: read(run, "exchange") not in ("auto", "allreduce", "allgather", "mixed", "sharded"),
            "{exchange=}",
        ),
        "it exchanges the whole model at once",
        "exchange=auto, allreduce, allgather, mixed or sharded",
    ),
    Rule(
        _STREAMS,
        Condition(
            "a compressor that needs the movement of all parameters",
            lambda run: any(possible.needs_movement for possible in run.policy.list_possible(run.compressor)),
            "{compressor=}",
        ),
        "it looks at the movement since the last averaging, which differs between workers",
        "algorithm.fragments=1 algorithm.delay=0 algorithm.mixing=0, or another compressor",
    ),
    Rule(_RADIAL, _OVERLAP, "all workers wait for the mean lengths before messages leave", "exchange.overlap=false"),
    Rule(_RADIAL, has_other("memory", "none"), "the memory would keep errors of directions", "memory=none"),
    Rule(
        _RADIAL,
        _list_condition("a sparsifier", lambda one: one.sparse),
        "the few elements of a mean direction would get the length of the whole change",
        "algorithm.average=mean, or a compressor that sends all elements",
    ),
    Rule(_LOCAL_SGD, ACCORDION, "the learning rate of its exchanges is constant", "policy.accordion.option=null"),
    Rule(
        _LOCAL_SGD,
        has_above("exchange.backup", 0),
        "the server would take a worker that is a few local steps behind for one that is rounds behind",
        "exchange.backup=0",
    ),
    *(
        Rule(
            one,
            _MEAN_VALUES,
            "it sends positive and negative elements in turns, step by step, and workers do not exchange in every step",
            "compressor.values=fp32",
        )
        for one in (_LOCAL_SGD, _ZERO_ONE_ADAM, _NOLOCO)
    ),
    *(
        Rule(
            one,
            _list_condition("a compressor of directions only", lambda one: one.scale_free),
            "what workers send is applied with its magnitude, which directions do not have",
            "compressor=sign_norm",
        )
        for one in (_LOCAL_SGD, _ZERO_ONE_ADAM)
    ),
    Rule(
        _RADIAL,
        has("exchange.granularity", "bucket", "model"),
        "it averages the changes of single tensors",
        "exchange.granularity=layer",
    ),
    *(
        Rule(
            one,
            has("batch_norm", "synchronised"),
            "the workers' models differ, so that samples would be normalised by statistics of other models",
            "batch_norm=averaged or local",
        )
        for one in (_LOCAL_SGD, _ZERO_ONE_ADAM)
    ),
    Rule(_LATE, has("memory", "ef21", "econtrol"), _OTHER_UNITS, "memory=none or scaled_residual"),
    Rule(
        _LATE,
        Condition("memory=residual or loco while gradients are compressed", _is_kept_compressed, "{memory=}"),
        _OTHER_UNITS,
        "memory=none or scaled_residual, or policy.start_step={algorithm.from_step}",
    ),
    Rule(
        _LATE,
        Condition(
            "exchange.second_memory=residual or loco while gradients are compressed",
            _is_second_kept_compressed,
            "{exchange.second_memory=}",
        ),
        _OTHER_UNITS,
        "exchange.second_memory=none or scaled_residual, or policy.start_step={algorithm.from_step}",
    ),
)


def check(run: RunConfig) -> None:
    """Refuse a run whose optimizer, schedule, algorithm, memory and clipping do not go together.

    Raises:
        UsageError: names the combination, the reason and what would work.
    """
    refuse(run, RULES)
    _check_schedule(run)
    if run.max_steps is not None:
        _check_steps(run, run.max_steps)


def check_length(run: RunConfig, samples: int) -> None:
    """Refuse settings that would have no effect before the end of a run with `samples` training samples.

    Raises:
        UsageError: names the option.
    """
    lengths = run.compute_epochs(samples)
    if run.tokens is not None and run.max_steps is not None and lengths.steps < run.max_steps:
        enough = math.ceil(run.epochs * run.max_steps / lengths.steps)
        raise bad_value(
            "epochs", run.epochs, f"at least {enough} with tokens={run.tokens}, which are {run.max_steps} steps"
        )
    _check_steps(run, lengths.steps)
    try:
        run.policy.check_length(math.ceil(lengths.length), lengths.steps, _count_exchanges(run, lengths.steps))
    except InvalidParameter as error:
        raise bad_value(f"policy.{error.name}", error.value, error.valid) from error


def _count_exchanges(run: RunConfig, steps: int) -> int:
    """Return how often a run of so many steps exchanges gradients, or with local steps the changes of a fragment."""
    if not isinstance(run.algorithm, LocalSGD):
        return steps
    first = run.algorithm.from_step
    return first - 1 + (steps - first + 1) // run.algorithm.period


def _check_steps(run: RunConfig, steps: int) -> None:
    if getattr(run.optimizer, "freeze_steps", 0) >= steps:
        valid = f"an integer below the number of steps ({steps})"
        raise bad_value("optimizer.freeze_steps", run.optimizer.freeze_steps, valid)
    for compressor in run.policy.list_possible(run.compressor):
        if (first := getattr(compressor, "start_step", 0)) > steps:
            key = "compressor" if compressor is run.compressor else f"policy.patterns: {compressor.name}"
            raise bad_value(f"{key}.start_step", first, f"an integer up to the number of steps ({steps})")
    if isinstance(run.algorithm, LocalSGD):
        first, period, delay = run.algorithm.from_step, run.algorithm.steps, run.algorithm.delay
        if first > steps:
            raise bad_value("algorithm.from_step", first, f"an integer up to the number of steps ({steps})")
        if first + period - 1 + delay > steps:
            late = f" with algorithm.delay={delay}" * (delay > 0)
            valid = f"an integer up to {steps - first + 1 - delay}, or nothing would be averaged in {steps} steps{late}"
            raise bad_value("algorithm.steps", period, valid)

    if isinstance(run.algorithm, NoLoCo) and run.algorithm.steps > steps:
        valid = f"an integer up to {steps}, or nothing would be exchanged in {steps} steps"
        raise bad_value("algorithm.steps", run.algorithm.steps, valid)
    warmup = run.schedule.warmup_steps or 0
    if warmup >= steps:
        raise bad_value("schedule.warmup_steps", warmup, f"an integer below the number of steps ({steps})")
    if isinstance(run.schedule, WSD) and warmup + run.schedule.count_decay_steps(steps) > steps:
        valid = f"at most {(steps - warmup) / steps:.3g}, the part of the {steps} steps after the warm-up"
        raise bad_value("schedule.decay", run.schedule.decay, valid)


def _check_schedule(run: RunConfig) -> None:
    schedule = run.schedule
    if run.scaling.warmup_from_base:
        if not schedule.warms_up:
            raise bad_value("scaling.warmup_from_base", True, "false where the schedule has no warm-up")
        if schedule.warmup_from is not None:
            raise bad_value("schedule.warmup_from", schedule.warmup_from, "null with scaling.warmup_from_base=true")
    if not isinstance(schedule, Regime):
        return
    for key in ("momentum", "weight_decay"):
        value = next((phase[key] for phase in schedule.phases if phase.get(key)), None)
        if value is None:
            continue
        if not hasattr(run.optimizer, key):
            raise UsageError(
                f"{key}={value} in schedule.phases with optimizer={get_name(run.optimizer)}, which has none; "
                f"valid is phases without {key}"
            )
        if key == "momentum" and _DGC.test(run) and not isinstance(run.optimizer, options.DGCSGD):
            raise UsageError(
                f"momentum={value} in schedule.phases with memory=dgc: {_TWO_MOMENTA}; valid is phases without momentum"
            )
