"""Local SGD: local steps on every worker, and after every few of them an outer step along the mean of their changes."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from compressors import unit_state
from trainers import optimizers
from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.synchronous import Synchronous
from trainers.exchange.base import Traffic
from trainers.mpi.averaging import replace_by_mean
from trainers.optimizers.base import Optimizer
from trainers.options import algorithms as options
from trainers.options.optimizers import SGD


class LocalSGD(Synchronous):
    """Local SGD: worker i takes `steps` steps from the last average x to x_i along its own gradients.

    Then the exchange computes the mean of all x - x_i, with compressor and memory. It is the gradient of an outer step
    of SGD from x, with `outer_lr` and `outer_momentum`; by default this step leads to the mean of the x_i. After it all
    workers have the same x to the bit. Stich, "Local SGD converges fast and communicates little", ICLR 2019; with
    Nesterov's momentum outside DiLoCo (Douillard et al., 2023). The optimizer's own state, such as momentum, stays
    with the worker.

    Steps before `from_step` are synchronous, with gradients exchanged: post-local SGD (Lin, Stich, Patel and Jaggi,
    "Don't use large mini-batches, use local SGD", ICLR 2020). The first averaging is `steps` steps after them.

    Between two averagings, evaluations use the exact mean of the workers' parameters, which counts as no traffic.
    Neither an evaluation nor the end of the run is an averaging.
    """

    replicated = False

    def __init__(self, config: options.LocalSGD, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self._anchor: torch.Tensor | None = None  # x, from the first local step on
        self._local = 0  # steps since x
        self._wanted = False  # whether the next averaging is measured
        outer = SGD(config.outer_lr, config.outer_momentum, config.outer_nesterov, weight_decay=0.0)
        self.outer: Optimizer = optimizers.build(outer, setup.flat)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._synchronous = step < self.config.from_step
        if self._synchronous:
            super().begin(step, epoch, lr, measure)
            return
        self._step, self._epoch, self._lr = step, epoch, lr
        self._wanted |= measure
        if self._anchor is None:
            self._anchor = self.setup.flat.values.clone()

    def finish(self) -> Traffic:
        if self._synchronous:
            return super().finish()
        setup = self.setup
        with setup.watch("update"):
            setup.clipping.clip_final()
            setup.optimizer.step(self._lr)
        self._local += 1
        return self._average() if self._local == self.config.steps else Traffic(0.0, 0.0, None)

    @torch.no_grad()
    def _average(self) -> Traffic:
        setup, x = self.setup, self._anchor
        assert x is not None
        with setup.watch("encode"):
            torch.sub(x, setup.flat.values, out=setup.flat.gradients)
            setup.flat.values.copy_(x)  # all workers step from x, and compressors see the same movement
        setup.exchange.begin(self._step, epoch=self._epoch, lr=self.config.outer_lr, measure=self._wanted)
        for unit in reversed(setup.units):
            setup.exchange.submit(unit)
        traffic = setup.exchange.finish()
        with setup.watch("update"):
            self.outer.step(self.config.outer_lr)
            x.copy_(setup.flat.values)
        self._local, self._wanted = 0, False
        return traffic

    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        if not self._local:  # all workers have the same parameters
            return contextlib.nullcontext()
        return replace_by_mean(self.setup.flat.values, self.setup.comm)

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "outer": self.outer.state_dict(),
            "anchor": None if self._anchor is None else self._anchor.clone(),
            "local": self._local,
            "wanted": self._wanted,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unit_state.require_keys("local_sgd", state, ("exchange", "optimizer", "outer", "anchor", "local", "wanted"))
        anchor, local = state["anchor"], state["local"]
        if anchor is not None and getattr(anchor, "shape", None) != self.setup.flat.values.shape:
            raise ValueError("anchor in the state of local_sgd is not as long as the parameters")
        if type(local) is not int or not 0 <= local < self.config.steps:
            raise ValueError(
                f"local in the state of local_sgd is {local!r}, but algorithm.steps is {self.config.steps}"
            )
        self.outer.load_state_dict(state["outer"])
        super().load_state_dict(state)
        self._anchor = None if anchor is None else anchor.clone().to(self.setup.flat.values.device)
        self._local, self._wanted = local, bool(state["wanted"])
