"""The state of a hook: its method, the epoch and the learning rate that the user gives, and its counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gradsweep.errors import UsageError
from trainers.hooks.method import Method

if TYPE_CHECKING:
    from torch.optim import Optimizer

PHASES = ("encode", "communicate", "decode")


class Counts:
    """The seconds and bytes of a hook's steps since they were last taken, by columns of steps.csv."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all steps."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.payload_bytes = self.sent_bytes = self.gradient_bytes = 0.0
        self.error: float | None = None
        self.memory_norm: float | None = None

    def add_seconds(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of phases; others than PHASES are measurements."""
        for phase in PHASES:
            self.seconds[phase] += seconds.get(phase, 0.0)

    def get_columns(self) -> dict[str, Any]:
        """Return the counts as arguments of `gradsweep.script.Run.step`: the seconds of phases, and columns.

        The compression error and the norm of the memory are in it only if they were measured.
        """
        measured = {"compression_error": self.error, "memory_norm": self.memory_norm}
        return {
            "phases": dict(self.seconds),
            "payload_bytes": self.payload_bytes,
            "sent_bytes": self.sent_bytes,
            "compression_ratio": self.gradient_bytes / self.payload_bytes if self.payload_bytes else 1.0,
            **{column: value for column, value in measured.items() if value is not None},
        }


class HookState(ABC):
    """The state of a hook.

    Args:
        function: that the user has called, for error lines.
        optimizer: has the learning rate, in its first group.

    Attributes:
        epoch: the current epoch, from 1; set it in each epoch if the policy goes by epochs.
        counts: what the hook has taken since they were last taken.

    Raises:
        UsageError: the method needs the learning rate, but there is no optimizer.
    """

    def __init__(self, function: str, method: Method, optimizer: Optimizer | None) -> None:
        self.function, self.method, self.counts = function, method, Counts()
        self.epoch: int | None = None
        self._optimizer = optimizer
        if method.needs_lr and optimizer is None:
            raise UsageError(
                f"compressor={method.compressor.name}, memory={method.memory.name}: the learning rate of each step is "
                f"needed; valid is the argument optimizer=, whose first group has it"
            )

    def read_epoch(self) -> int:
        """Return the epoch, from 1.

        Raises:
            UsageError: the method needs the epoch, which was never set.
        """
        if self.epoch is None and self.method.needs_epoch:
            raise UsageError("policy: it goes by epochs; valid is to set `epoch` of the hook's state, from 1, in each")
        return 1 if self.epoch is None else self.epoch

    def read_lr(self) -> float:
        """Return the learning rate of the step."""
        return 1.0 if self._optimizer is None else float(self._optimizer.param_groups[0]["lr"])

    def take_counts(self) -> dict[str, Any]:
        """Return what the hook took since the last call, as arguments of `gradsweep.script.Run.step`.

        It has `phases` (seconds of encode, communicate, decode) and columns of steps.csv: payload_bytes, sent_bytes,
        compression_ratio, and in steps with a measurement compression_error and memory_norm; all of this worker. They
        are those of one step if this is called after each. The seconds are a part of what backward takes;
        communication that goes on beside backward is not in them.
        """
        self.count_seconds()
        columns = self.counts.get_columns()
        self.counts.begin()
        return columns

    @abstractmethod
    def count_seconds(self) -> None:
        """Add the seconds that are not counted yet."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this worker's state between two steps: each worker saves and loads its own."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` has returned on the same worker, for the same model and arguments.

        Call it before the first step. Whether the state fits the model shows in the first step.

        Raises:
            ValueError: it is not such a state, or steps have been taken.
        """
