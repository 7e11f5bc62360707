"""The second phase of an exchange: the owner of a unit compresses the mean again before sending it to all workers.

Double compression with error feedback on both sides: Tang, Lian, Yu, Zhang and Liu, "DoubleSqueeze", ICML 2019; Zheng,
Huang and Kwok, "dist-EF-SGD", NeurIPS 2019. With memory=ef21 the workers' sum of what arrives is EF21-BC of
Fatkhullin et al., "EF21 with bells and whistles", 2021: the residual is the server's mean less what the workers hold.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

import compressors
from compressors import Compressor, Key, unit_state
from compressors.memories.base import Memory
from compressors.quantisation.signs import Signum
from trainers.lanes.parcel import Parcel


class SecondPhase:
    """Compresses means for the second phase of an exchange, with a memory for the parts that compression drops.

    Its compressors have a state of their own, apart from those of the first phase. For the mean of unit i, they use the
    random numbers of unit `units` + i and of the worker that has formed the mean.

    Args:
        units: number of units.
        again: compress by the method of the first phase; else send means uncompressed, in fp32.
        memory: of this worker, for the means that it forms; unused with `scale_free` compressors.
    """

    def __init__(self, units: int, *, again: bool, memory: Memory) -> None:
        self.units, self.again, self.memory = units, again, memory
        self._dense = compressors.build("none")
        self._variants: dict[str, Compressor] = {}  # by their repr, as in a selector
        self._saved: dict[str, Any] = {}  # restored states of variants that are not built yet

    def begin(self, lr: float) -> None:
        """Start a step with this learning rate."""
        self.memory.begin(lr, 1, _no_norm)

    def get_compressor(self, first: Compressor) -> Compressor:
        """Return the compressor for the mean of payloads of `first`: the same method, set up for one worker.

        Momentum must not be applied twice: the mean of Signum's payloads is compressed by `sign`.
        """
        if not self.again:
            return self._dense
        key = repr(first)
        if key not in self._variants:
            variant = compressors.build("sign") if isinstance(first, Signum) else dataclasses.replace(first)
            variant.join(1)
            if key in self._saved:
                variant.load_state_dict(self._saved.pop(key))
            self._variants[key] = variant
        return self._variants[key]

    def make_parcel(self, first: Parcel, owner: int) -> Parcel:
        """Return the parcel that worker `owner` sends in the second phase; its x is the mean in the unit's gradient."""
        key = Key(first.key.seed, owner, first.key.step, self.units + first.key.unit)
        return Parcel(first.unit, self.get_compressor(first.compressor), key, first.unit.gradient)

    def compensate(self, parcel: Parcel) -> Parcel:
        """Return the parcel plus the part that the memory holds back of earlier means of its unit."""
        if parcel.compressor.scale_free:
            return parcel
        x = self.memory.compensate(parcel.key.unit, parcel.x, parcel.compressor.is_exact(parcel.x.shape, parcel.key))
        return dataclasses.replace(parcel, x=x)

    def keep_rest(self, parcel: Parcel, payload: torch.Tensor) -> None:
        """Store in the memory the part of a compensated parcel that `payload` does not carry."""
        if not parcel.compressor.scale_free:
            self.memory.update(parcel.key, parcel.x, payload, parcel.compressor)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state that lasts from step to step."""
        return {
            "memory": repr(self.memory),
            "kept": self.memory.state_dict(),
            "compressors": {
                **copy.deepcopy(self._saved),
                **{key: variant.state_dict() for key, variant in self._variants.items()},
            },
        }

    def check_state(self, state: Any) -> None:
        """Raise ValueError unless `state` can come from `state_dict` of the same memory."""
        unit_state.require_keys("a second phase", state, ("memory", "kept", "compressors"))
        if state["memory"] != repr(self.memory):
            raise ValueError(
                f"the second phase's state is that of {state['memory']}, but its memory is {self.memory!r}"
            )
        if not isinstance(state["compressors"], Mapping):
            given = type(state["compressors"]).__name__
            raise ValueError(f"compressors of a second phase's state is a {given}, not a mapping")
        dataclasses.replace(self.memory).load_state_dict(state["kept"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that `state_dict` has returned.

        Raises:
            ValueError: the state does not fit; nothing has been changed.
        """
        self.check_state(state)
        self.memory.load_state_dict(state["kept"])
        self._variants, self._saved = {}, copy.deepcopy(dict(state["compressors"]))


def _no_norm() -> float:
    raise RuntimeError("a second phase clips nothing")
