"""Mixed precision: autocast, and the loss scale that keeps fp16 gradients in range."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from compressors import unit_state
from trainers.mpi.message_sizes import allreduce_bytes
from trainers.options.sections import LossScale

if TYPE_CHECKING:
    from mpi4py import MPI

_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Within the block, compute in 16 bits if the operation allows it; do nothing with fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=_TYPES[precision])


class ScaleExhausted(RuntimeError):
    """The gradient is not finite although the loss scale is at its minimum."""


class LossScaler:
    """Keeps the loss scale, the factor of the loss before backward, which is the same on all workers.

    Loss scaling as in Micikevicius et al., Mixed Precision Training (ICLR 2018), with the factors and the interval of
    torch.amp.GradScaler. That class is not used, because if one worker must skip a step, all workers have to skip it.
    """

    def __init__(self, config: LossScale) -> None:
        self.config = config
        self.scale = config.initial
        self.good = 0
        self.skipped = 0
        self.unmeasured = False
        """The last step was to be measured but was skipped: the next one is measured instead."""
        self.sent_bytes = 0.0

    def unscale(self, gradients: torch.Tensor) -> bool:
        """Divide the flat gradient by the scale in place; return whether it is finite."""
        gradients.div_(self.scale)
        return math.isfinite(float(torch.linalg.vector_norm(gradients, math.inf)))

    def agree(self, finite: bool, comm: MPI.Comm) -> bool:
        """Return whether the gradients of all workers are finite, and adapt the scale; costs an allreduce of 4 bytes.

        Raises:
            ScaleExhausted: the gradient overflows with a dynamic scale below 1; on all workers.
        """
        from mpi4py import MPI

        everywhere = np.array([finite], dtype=np.int32)
        comm.Allreduce(MPI.IN_PLACE, everywhere, MPI.MIN)
        self.sent_bytes += allreduce_bytes(1, everywhere.itemsize, comm.size)
        if everywhere[0]:
            self.good += 1
            if self.config.dynamic and self.good == self.config.growth_interval:
                self.scale, self.good = min(2 * self.scale, 2.0**100), 0
            return True
        self.good = 0
        self.skipped += 1
        if self.config.dynamic:
            self.scale /= 2
            if self.scale < 1:
                raise ScaleExhausted("the gradient is not finite even where the loss is not scaled up")
        return False

    def state_dict(self) -> dict[str, float]:
        """Return the state that lasts from step to step."""
        return {"scale": self.scale, "good": self.good, "skipped": self.skipped, "unmeasured": self.unmeasured}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: the state does not fit.
        """
        unit_state.require_keys("a loss scaler", state, self.state_dict())
        self.scale, self.good, self.skipped = float(state["scale"]), int(state["good"]), int(state["skipped"])
        self.unmeasured = bool(state["unmeasured"])
