"""What to measure for an advice: the content of the file that `python -m reports advise` writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.files import read_json
from trainers.config.groups import get_name
from trainers.config.run_config import RunConfig
from trainers.options import exchanges
from trainers.options import tasks as tasks_options
from trainers.options.algorithms import Synchronous
from trainers.options.optimizers import ZeroOneAdam

BATCH, SHAPE = "--batch", "--shape"


@dataclasses.dataclass(frozen=True)
class Request:
    """A request to measure.

    Attributes:
        config: the composed config of a run; its compressor's options hold for that compressor.
        shape: of a sample of random data; None: the config's data set is read.
        classes: of the random data.
        seconds: that the rounds take, about.
        methods: compressors to measure; empty: all.
        memory: memory of all methods; empty: error feedback for methods that need it.
        output: the file for the measurements.
    """

    config: Mapping[str, Any]
    shape: tuple[int, ...] | None
    classes: int
    seconds: float
    methods: tuple[str, ...]
    memory: str
    output: Path


def read_request(path: Path) -> Request:
    """Read a request.

    Raises:
        UsageError: the file is no request.
    """
    content = read_json(path) or {}
    try:
        shape = content["shape"]
        return Request(
            config=dict(content["config"]),
            shape=None if shape is None else tuple(map(int, shape)),
            classes=int(content["classes"]),
            seconds=float(content["seconds"]),
            methods=tuple(map(str, content["methods"])),
            memory=str(content["memory"]),
            output=Path(content["output"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: valid is a request of python -m reports advise: {error!r}") from error


def check_measurable(config: RunConfig, request: Request) -> None:
    """Refuse a config whose step is not that of synchronous SGD with an exchange of all workers.

    Raises:
        UsageError: such a part of the config, with what is valid.
    """
    if not isinstance(config.algorithm, Synchronous):
        raise bad_value("algorithm", get_name(config.algorithm), "sgd, whose step advise measures")
    if isinstance(config.optimizer, ZeroOneAdam):
        raise bad_value("optimizer", get_name(config.optimizer), "one whose steps exchange alike, such as onebit_adam")
    overlapping = (exchanges.Allreduce, exchanges.Allgather, exchanges.Mixed)
    if not isinstance(config.exchange, overlapping) or config.exchange.transport != "mpi":
        name = get_name(config.exchange)
        raise bad_value("exchange", name, "auto, allreduce, allgather or mixed by MPI, whose steps advise measures")
    if config.phases:
        raise bad_value("phases", "a list", "empty: advise measures one kind of step")
    if request.shape is not None and isinstance(config.task, tasks_options.Custom):
        raise bad_value("task", "custom", f"a data set with its labels (dataset=...) in place of {SHAPE}")
