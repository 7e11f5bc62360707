"""Local SGD: local steps on every worker, and after every few of them an outer step along the mean of their changes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from compressors import unit_state
from trainers import optimizers
from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.fragments import Fragment, cut_fragments
from trainers.algorithms.radial_directional import RadialDirectional
from trainers.algorithms.synchronous import Synchronous
from trainers.exchange.base import Traffic
from trainers.gradients.flat import Unit
from trainers.mpi.averaging import replace_by_mean
from trainers.optimizers.base import Optimizer
from trainers.options import algorithms as options
from trainers.options.optimizers import EMBEDDINGS, SGD

_NOTHING_SENT = Traffic(0.0, 0.0, None)


@dataclasses.dataclass
class _Averaging:
    """An averaging that has begun and whose result has not been used yet.

    Args:
        fragment: number of the fragment.
        lengths: for radial-directional averaging, mean lengths of the changes of its units.
        age: steps since it began.
        is_open: whether its exchange is not complete.
    """

    fragment: int
    lengths: torch.Tensor | None
    age: int = 0
    is_open: bool = True


class LocalSGD(Synchronous):
    """Local SGD: worker i takes `steps` steps from the last average x to x_i along its own gradients.

    Then the exchange computes the mean of all x - x_i, with compressor and memory. It is the gradient of an outer step
    of SGD from x, with `outer_lr` and `outer_momentum`; by default this step leads to the mean of the x_i. After it all
    workers have the same x to the bit. Stich, "Local SGD converges fast and communicates little", ICLR 2019; with
    Nesterov's momentum outside DiLoCo (Douillard et al., 2023). The optimizer's own state, such as momentum, stays
    with the worker.

    Steps before `from_step` are synchronous, with gradients exchanged: post-local SGD (Lin, Stich, Patel and Jaggi,
    "Don't use large mini-batches, use local SGD", ICLR 2020). The first averaging is `steps` steps after them.

    With `fragments` P above 1, each averaging is that of one fragment of the model, with an x of its own: after local
    step t, a multiple of steps / P, that of fragment (t mod steps) / (steps / P). With `delay`, the outer step comes
    that many steps after the exchange has begun, and meanwhile the worker goes on. When it comes, the worker takes
    x_i <- mixing x_i + (1 - mixing) x for the fragment's part: Streaming DiLoCo (Douillard et al., "Streaming DiLoCo
    with overlapping communication", 2025, Algorithm 2). With a delay of `steps`, workers begin each round from x, to
    which the changes of the round before the last have been added.

    Between two averagings, evaluations use the exact mean of the workers' parameters, which counts as no traffic.
    Neither an evaluation nor the end of the run is an averaging.
    """

    replicated = False

    def __init__(self, config: options.LocalSGD, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        flat = setup.flat
        self._anchor = flat.values.clone()  # x
        self._has_begun = False  # whether there was a local step
        self._change = torch.zeros_like(flat.gradients) if config.delay else flat.gradients
        self._fragments = cut_fragments([self._replace_gradient(unit) for unit in setup.units], config.fragments)
        outer = SGD(config.outer_lr, config.outer_momentum, config.outer_nesterov, weight_decay=0.0)
        self.outer: list[Optimizer] = [
            optimizers.build(outer, flat.replace_buffers(self._anchor[part.place], self._change[part.place]))
            for part in self._fragments
        ]
        self._radial: RadialDirectional | None = None
        if config.average == "radial_directional":
            self._radial = RadialDirectional(
                setup.comm, [name for name, kind in flat.kinds.items() if kind == EMBEDDINGS]
            )
        self._local = 0  # steps since the last fragment was averaged
        self._averaging: _Averaging | None = None
        self._wanted = False  # whether the next averaging is measured
        self._traffic = _NOTHING_SENT  # of a complete exchange, until a step returns it

    def _replace_gradient(self, unit: Unit) -> Unit:
        """Return the unit with its part of `_change` in place of its gradient."""
        flat = self.setup.flat
        if self._change is flat.gradients:
            return unit
        start = unit.gradient.storage_offset() - flat.gradients.storage_offset()
        change = self._change[start : start + unit.gradient.numel()].view_as(unit.gradient)
        return dataclasses.replace(unit, gradient=change)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._synchronous = step < self.config.from_step
        if self._synchronous:
            super().begin(step, epoch, lr, measure)
            return
        self._step, self._epoch, self._lr = step, epoch, lr
        self._wanted |= measure
        if not self._has_begun:
            self._anchor.copy_(self.setup.flat.values)
            self._has_begun = True

    def on_last_backward(self) -> None:
        if self._synchronous:
            super().on_last_backward()

    def finish(self) -> Traffic:
        if self._synchronous:
            return super().finish()
        setup, config = self.setup, self.config
        with setup.watch("update"):
            setup.clipping.clip_final()
            setup.optimizer.step(self._lr)
        self._local = (self._local + 1) % config.steps
        if self._averaging is not None:
            self._averaging.age += 1
        with torch.no_grad():
            if self._local % config.period == 0:
                self._average(self._fragments[self._local // config.period])
            if self._averaging is not None and self._averaging.age == config.delay:
                self._use_result()
        traffic, self._traffic = self._traffic, _NOTHING_SENT
        return traffic

    def _average(self, fragment: Fragment) -> None:
        """Begin to average the changes of a fragment, and complete it unless messages travel in the background."""
        setup, config, place = self.setup, self.config, fragment.place
        x, values, change = self._anchor[place], setup.flat.values[place], self._change[place]
        with setup.watch("encode"):
            if config.delays_rounds:
                moved = x - values
                if self._averaging is None:
                    self._mix(fragment)
                else:
                    self._use_result()
                change.copy_(moved)
            else:
                torch.sub(x, values, out=change)
            if not config.streams:
                values.copy_(x)  # compressors that need movement see that from average to average
            lengths = None if self._radial is None else self._radial.take_lengths(fragment.units)
        self._averaging = _Averaging(self._local // config.period, lengths)
        setup.exchange.begin(self._step, epoch=self._epoch, lr=config.outer_lr, measure=self._wanted)
        self._wanted = False
        for unit in reversed(fragment.units):
            setup.exchange.submit(unit)
        if setup.exchange.collectives.in_background and config.delay:
            setup.exchange.post()
        else:
            self._complete(self._averaging)

    def _complete(self, averaging: _Averaging) -> None:
        """Complete the exchange of an averaging, so that `_change` has the mean."""
        if not averaging.is_open:
            return
        averaging.is_open, self._traffic = False, self.setup.exchange.finish()
        if self._radial is not None and averaging.lengths is not None:
            units = self._fragments[averaging.fragment].units
            self._radial.give_lengths(units, averaging.lengths)
            payload, sent = self._radial.count_bytes(units)
            self._traffic = dataclasses.replace(
                self._traffic,
                payload_bytes=self._traffic.payload_bytes + payload,
                sent_bytes=self._traffic.sent_bytes + sent,
            )

    def _use_result(self) -> None:
        """Take the outer step of the averaging that has begun, and give the worker its result."""
        averaging = self._averaging
        assert averaging is not None
        self._complete(averaging)
        with self.setup.watch("update"):
            self.outer[averaging.fragment].step(self.config.outer_lr)
            self._mix(self._fragments[averaging.fragment])
        self._averaging = None

    def _mix(self, fragment: Fragment) -> None:
        """Replace the worker's parameters by x, or by a mixture of both."""
        x, values = self._anchor[fragment.place], self.setup.flat.values[fragment.place]
        if self.config.mixing:
            values.lerp_(x, 1 - self.config.mixing)
        else:
            values.copy_(x)

    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        if not self._has_begun or (self._local == 0 and not self.config.streams):  # workers have the same parameters
            return contextlib.nullcontext()
        return replace_by_mean(self.setup.flat.values, self.setup.comm)

    def state_dict(self) -> dict[str, Any]:
        averaging = self._averaging
        if averaging is not None:
            self._complete(averaging)
        kept = [outer.state_dict() for outer in self.outer]
        return {
            **super().state_dict(),
            "outer": {name: torch.cat([state[name] for state in kept]) for name in kept[0]},
            "anchor": self._anchor.clone() if self._has_begun else None,
            "local": self._local,
            "wanted": self._wanted,
            "averaging": None if averaging is None else {**vars(averaging), "change": self._change.clone()},
            "traffic": dataclasses.astuple(self._traffic),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if isinstance(state, Mapping):  # an earlier version may have saved it
            state = {"averaging": None, "traffic": dataclasses.astuple(_NOTHING_SENT), **state}
        keys = ("exchange", "optimizer", "outer", "anchor", "local", "wanted", "averaging", "traffic")
        unit_state.require_keys("local_sgd", state, keys)
        anchor, local, averaging = state["anchor"], state["local"], state["averaging"]
        if anchor is not None and getattr(anchor, "shape", None) != self._anchor.shape:
            raise ValueError("anchor in the state of local_sgd is not as long as the parameters")
        if type(local) is not int or not 0 <= local < self.config.steps:
            raise ValueError(
                f"local in the state of local_sgd is {local!r}, but algorithm.steps is {self.config.steps}"
            )
        if averaging is not None:
            self._check_averaging(averaging)
        for outer, part in zip(self.outer, self._fragments, strict=True):
            outer.load_state_dict({name: tensor[part.place] for name, tensor in state["outer"].items()})
        super().load_state_dict(state)
        self._has_begun = anchor is not None
        if anchor is not None:
            self._anchor.copy_(anchor)
        self._local, self._wanted, self._traffic = local, bool(state["wanted"]), Traffic(*state["traffic"])
        self._averaging = None
        if averaging is not None:
            self._averaging = _Averaging(averaging["fragment"], averaging["lengths"], averaging["age"], is_open=False)
            self._change.copy_(averaging["change"])

    def _check_averaging(self, averaging: Any) -> None:
        """Refuse the state of an averaging that this algorithm does not have.

        Raises:
            ValueError: says so.
        """
        unit_state.require_keys("an averaging", averaging, ("fragment", "lengths", "age", "is_open", "change"))
        fragment, age, change = averaging["fragment"], averaging["age"], averaging["change"]
        if fragment not in range(len(self._fragments)) or age not in range(self.config.delay):
            raise ValueError(f"the state of local_sgd has an averaging of fragment {fragment!r}, {age!r} steps old")
        if getattr(change, "shape", None) != self._change.shape:
            raise ValueError("change in the state of local_sgd is not as long as the parameters")
