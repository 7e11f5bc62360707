"""Rules on options that do not go together with a server that is dedicated, asynchronous, or drops messages."""

from __future__ import annotations

from trainers.options.optimizers import OF_MOMENTA
from trainers.rules.rule import ACCORDION, LGRECO, Rule, has, has_above

_ASYNCHRONOUS = has("exchange.mode", "asynchronous")
_DEDICATED = has("exchange.placement", "dedicated")
_BACKUP = has_above("exchange.backup", 0)
_SYNCHRONISED = has("batch_norm", "synchronised")
_FP16 = has("precision", "fp16")
_LOCAL_STATISTICS = "batch_norm=averaged or local"
_OTHER_PRECISION = "precision=bf16 or fp32"
_UNSEEN = "workers choose compressors by measurements that the server does not receive"
_NO_LGRECO = "policy.lgreco.option=null"

_BY_TORCH = has("exchange.transport", "torch")

RULES = (
    Rule(
        _DEDICATED,
        _BY_TORCH,
        "the server takes messages as they come, from any worker",
        "exchange.transport=mpi, or exchange.placement=colocated",
    ),
    Rule(
        _BACKUP,
        _BY_TORCH,
        "the server takes the first messages that come",
        "exchange.transport=mpi, or exchange.backup=0",
    ),
    Rule(_ASYNCHRONOUS, has("algorithm", "local_sgd"), "the server takes every step", "algorithm=sgd"),
    Rule(
        _ASYNCHRONOUS,
        has("optimizer", *OF_MOMENTA),
        "it takes one step of all workers together",
        "optimizer=adam",
    ),
    Rule(_ASYNCHRONOUS, _SYNCHRONISED, "workers would wait for each other in every layer", _LOCAL_STATISTICS),
    Rule(_ASYNCHRONOUS, _FP16, "all workers leave a step out together", _OTHER_PRECISION),
    Rule(_ASYNCHRONOUS, ACCORDION, "it uses the mean gradient, which no worker has", "policy.accordion.option=null"),
    Rule(_ASYNCHRONOUS, LGRECO, "all workers choose together, so that they would wait for each other", _NO_LGRECO),
    Rule(_DEDICATED, LGRECO, _UNSEEN, f"exchange.placement=colocated, or {_NO_LGRECO}"),
    Rule(_BACKUP, LGRECO, "all workers choose together, so that they would wait for the last one", _NO_LGRECO),
    Rule(_DEDICATED, ACCORDION & has("memory", "ef21", "econtrol"), _UNSEEN, "exchange.placement=colocated"),
    Rule(_DEDICATED, ACCORDION & _FP16, _UNSEEN, "exchange.placement=colocated"),
    Rule(_BACKUP, _SYNCHRONISED, "workers would wait for the last one in every layer", _LOCAL_STATISTICS),
    Rule(
        _BACKUP,
        _FP16,
        "all workers meet in every step to agree whether it is left out, so they would wait for the last one",
        _OTHER_PRECISION,
    ),
)
