"""The config of one run as dataclasses with checked types and ranges, for the launcher and every rank.

Loads neither torch nor Hydra. The launcher registers these dataclasses with Hydra, so that composing a config fails on
a wrong type or an unknown key. `resolve` (trainers/rules) then checks ranges, and which options go together, before
anything is started. A rank builds the same objects from config.yaml.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from compressors.policy.policy import Policy
from gradsweep import plugins as plugin_modules
from gradsweep.errors import LISTED_BY, UsageError, bad_value
from gradsweep.options.hints import did_you_mean, one_of
from gradsweep.options.parameters import (
    Checked,
    InvalidParameter,
    boolean,
    choice,
    from_mapping,
    integer,
    is_integer,
    sequence,
)
from gradsweep.signature import ADDED
from trainers.config.epochs import Epochs
from trainers.config.groups import GROUPS
from trainers.options.algorithms import Decentralised
from trainers.options.datasets import ImageNet
from trainers.options.phases import WORDS, Phase, check_order, complete_phases, is_phase
from trainers.options.sections import TRACKERS, Batch, Checkpoint, Clip, Data, LossScale, Partition, Scaling


@dataclasses.dataclass(frozen=True)
class RunConfig(Checked):
    """The config of a run: all options that determine its numbers, and a few paths."""

    workers: int = integer(2, low=1, high=4096)
    threads_per_worker: int = integer(1, low=1, high=1024)
    epochs: int = integer(8, low=1)
    max_steps: int | None = integer(None, low=1, optional=True)
    tokens: int | None = integer(None, low=1, optional=True)
    seed: int = integer(0, low=0, high=2**63 - 1)
    warmup_steps: int = integer(10, low=0)
    measure_every: int = integer(50, low=1)
    check_every: int = integer(1000, low=0)
    evaluate_every: int = integer(1, low=1)
    evaluate_every_steps: int | None = integer(None, low=1, optional=True)
    kernels: str = choice("auto", "auto", "numba", "triton", "torch")
    batch_norm: str = choice("averaged", "averaged", "local", "synchronised")
    precision: str = choice("fp32", "fp32", "bf16", "fp16")
    channels_last: bool = boolean(False)
    compile: bool = boolean(False)
    device: str = choice("auto", "auto", "cpu", "cuda")
    gpus_per_node: int | None = integer(None, low=1, optional=True)
    gpus: list[int] = sequence("a list of numbers of GPUs, from 0 up", lambda value: is_integer(value, 0))
    trackers: list[str] = sequence("a list of some of " + ", ".join(TRACKERS), lambda name: name in TRACKERS)
    plugins: list[str] = sequence(f"a list, each item {plugin_modules.FORMS}", lambda text: isinstance(text, str))
    phases: list[Any] = sequence(WORDS, is_phase)
    batch: Batch = dataclasses.field(default_factory=Batch)
    clip: Clip = dataclasses.field(default_factory=Clip)
    scaling: Scaling = dataclasses.field(default_factory=Scaling)
    data: Data = dataclasses.field(default_factory=Data)
    partition: Partition = dataclasses.field(default_factory=Partition)
    checkpoint: Checkpoint = dataclasses.field(default_factory=Checkpoint)
    loss_scale: LossScale = dataclasses.field(default_factory=LossScale)
    policy: Policy = dataclasses.field(default_factory=Policy)
    trainer: Any = None
    model: Any = None
    dataset: Any = None
    task: Any = None
    algorithm: Any = None
    topology: Any = None
    compressor: Any = None
    memory: Any = None
    exchange: Any = None
    optimizer: Any = None
    schedule: Any = None
    network: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_order(self.phases)

    @property
    def global_batch(self) -> int:
        """The number of samples in a step of all workers together; with `phases`, in a step of the first phase."""
        return self.batch.count_samples(self.workers)

    @property
    def completed_phases(self) -> tuple[Phase, ...]:
        """The phases of the run with all their settings; a single phase if nothing changes."""
        return complete_phases(self.phases, self.batch.size)

    def adapt_to(self, phase: Phase) -> RunConfig:
        """Return the config of a run that has the settings of this phase from start to end."""
        dataset = self.dataset.adapt_to(phase) if isinstance(self.dataset, ImageNet) else self.dataset
        batch = dataclasses.replace(self.batch, size=phase.batch or self.batch.size)
        return dataclasses.replace(self, phases=[], batch=batch, dataset=dataset)

    @property
    def decentralised(self) -> bool:
        """Whether each worker has its own parameters and exchanges messages with its neighbours only."""
        return isinstance(self.algorithm, Decentralised)

    @property
    def ranks(self) -> int:
        """The number of ranks that mpirun starts: one for each worker, then one for a dedicated server, if any."""
        return self.workers + int(self.exchange.servers)

    def compute_epochs(self, samples: int) -> Epochs:
        """Return the epochs of the run in optimizer steps, for a training set of this size."""
        by_epoch = [(one.epoch, math.ceil(samples / self.adapt_to(one).global_batch)) for one in self.completed_phases]
        return Epochs.from_lengths(by_epoch, self.epochs, self.max_steps)


@functools.cache
def _sections_of(cls: type) -> Mapping[str, type]:
    """Return the fields of a dataclass that are dataclasses themselves."""
    return {
        field.name: part
        for field in dataclasses.fields(cls)
        if isinstance(part := cast(object, field.default_factory), type) and dataclasses.is_dataclass(part)
    }


MISSING = object()

SECTIONS = _sections_of(RunConfig)
"""Parts of a run that every run has, and that have no name."""

OTHER_SECTIONS = ("sweep", "race", "mpi", "launcher")
"""Sections of a config that are the launcher's business."""

OURS = frozenset((*(field.name for field in dataclasses.fields(RunConfig)), *OTHER_SECTIONS))
"""The keys and sections of a config; with trainer=script there may be others, which are the script's own."""


def _build(prefix: str, cls: type, values: Mapping[str, Any]) -> Any:
    try:
        return from_mapping(cls, dict(values))
    except InvalidParameter as error:
        raise bad_value(f"{prefix}.{error.name}", error.value, error.valid, error.meant) from error


def build_member(group: str, value: Any) -> Any:
    """Build the dataclass that a mapping with `name` and options chooses from a group, such as `compressor`."""
    if not isinstance(value, Mapping) or value.get("name") not in GROUPS[group]:
        given = value.get("name") if isinstance(value, Mapping) else value
        members = GROUPS[group]
        raise bad_value(group, given, one_of(members, LISTED_BY), did_you_mean(given, members))
    return _build(group, GROUPS[group][value["name"]], {k: v for k, v in value.items() if k != "name"})


def build_section(prefix: str, cls: type, values: Any) -> Any:
    """Build the dataclass of a section, and those of its nested sections, from a mapping."""
    if not isinstance(values, Mapping):
        raise bad_value(prefix, values, "a mapping with the keys " + ", ".join(f.name for f in dataclasses.fields(cls)))
    nested = _sections_of(cls)
    given = {
        key: build_section(f"{prefix}.{key}", nested[key], value) if key in nested else value
        for key, value in values.items()
    }
    return _build(prefix, cls, given)


def parse(config: Mapping[str, Any]) -> RunConfig:
    """Build the RunConfig of a resolved config; keys that no rank needs (`sweep`, `mpi`) are ignored.

    Loads the plug-ins that the config names. A section that earlier versions did not have may be missing
    (`gradsweep.signature.ADDED`).

    Raises:
        UsageError: one line with the key, its value and what is valid.
    """
    known = [field.name for field in dataclasses.fields(RunConfig)]
    for key in config:
        if key not in (*known, *OTHER_SECTIONS):
            meant = did_you_mean(key, known)
            raise UsageError(f"{key}={config[key]}: unknown key; {meant}valid is {one_of(known, LISTED_BY, 'keys')}")
    if isinstance(config.get(plugin_modules.KEY), list):
        plugin_modules.load(config[plugin_modules.KEY])
    values: dict[str, Any] = {}
    for field in dataclasses.fields(RunConfig):
        key = field.name
        value = config.get(key, [] if key == plugin_modules.KEY else ADDED.get(key, MISSING))
        if value is MISSING:
            raise UsageError(f"{key}: missing from the config")
        if key in GROUPS:
            values[key] = build_member(key, value)
        elif key in SECTIONS:
            values[key] = build_section(key, SECTIONS[key], value)
        else:
            values[key] = value
    try:
        return RunConfig(**values)
    except InvalidParameter as error:
        raise bad_value(error.name, error.value, error.valid, error.meant) from error


def load(path: Path) -> RunConfig:
    """Read the config.yaml of a run directory, and return its RunConfig.

    Raises:
        UsageError: the file is missing or is not a config.
    """
    from gradsweep import yaml_files

    try:
        return parse(yaml_files.read_mapping(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
