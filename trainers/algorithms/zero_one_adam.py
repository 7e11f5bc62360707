"""0/1 Adam: compressed rounds of gradients, with few dense ones between them, and then of several local steps."""

from __future__ import annotations

import contextlib
from typing import Any

import compressors
from compressors import unit_state
from compressors.memories.base import NoMemory
from compressors.policy.policy import Policy, Selector
from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.synchronous import Synchronous
from trainers.exchange.base import Exchange, Traffic
from trainers.mpi.averaging import replace_by_mean
from trainers.options.optimizers import DENSE, SKIPPED

_NOTHING_SENT = Traffic(0.0, 0.0, None)


class ZeroOneAdam(Synchronous):
    """0/1 Adam: algorithm=sgd with optimizer=zero_one_adam, whose options plan the rounds (`find_round`).

    Lu, Li, Zhang, De Sa and He, "Maximizing communication efficiency for large-scale training via 0/1 Adam", ICLR 2023,
    as in DeepSpeed: in the first `freeze_steps` steps, gradients are exchanged. In dense rounds the exact mean updates
    variance and momentum, and the memory keeps what it has; in the others, the mean of compressed gradients updates the
    momentum. Then the variance stays, the memory is emptied, and workers take local steps; a round exchanges what these
    have moved, in units of the momentum.

    Unlike DeepSpeed, weight decay is no part of the exchanged movement, because it would stay in the momentum and act
    again in later steps, and workers go on from the same bits after a round. Between rounds, evaluations use the exact
    mean of the workers' parameters, as with `LocalSGD`.
    """

    replicated = False

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self._plan: Any = setup.optimizer.config
        self._optimizer: Any = setup.optimizer
        shapes = [(unit.name, tuple(unit.gradient.shape)) for unit in setup.units]
        self._dense = Exchange(
            setup.comm,
            setup.units,
            Selector(Policy(), compressors.build("none"), shapes, setup.comm.size),
            NoMemory(),
            setup.exchange.seed,
            setup.watch,
            sums=True,
            gathers=False,
            transport=setup.exchange.transport,
            collectives=setup.exchange.collectives,
        )
        self._is_local = False
        self._wanted = False  # whether the next round is measured

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._round = self._plan.find_round(step)
        self._optimizer.learns = self._round == DENSE
        if step <= self._plan.freeze_steps:
            self._exchange = self._dense if self._round == DENSE else self.setup.exchange
            super().begin(step, epoch, lr, measure)
            return
        self._step, self._epoch, self._lr = step, epoch, lr
        self._wanted |= measure
        if not self._is_local:
            self._is_local, self._exchange = True, self.setup.exchange
            self._optimizer.begin_local_steps()
            self._exchange.empty_memories()

    def on_last_backward(self) -> None:
        if not self._is_local:
            super().on_last_backward()

    def finish(self) -> Traffic:
        if not self._is_local:
            return super().finish()
        setup, optimizer = self.setup, self._optimizer
        with setup.watch("update"):
            setup.clipping.clip_local()
            optimizer.take_local_step(self._lr)
        if self._round == SKIPPED or not optimizer.has_moved:
            return _NOTHING_SENT
        with setup.watch("encode"):
            optimizer.begin_round()
        traffic = self._exchange.mean(self._step, epoch=self._epoch, lr=self._lr, measure=self._wanted)
        self._wanted = False
        with setup.watch("update"):
            optimizer.end_round()
        return traffic

    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        if not self._optimizer.has_moved:
            return contextlib.nullcontext()
        return replace_by_mean(self.setup.flat.values, self.setup.comm)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "is_local": self._is_local, "wanted": self._wanted}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unit_state.require_keys("0/1 Adam", state, ("exchange", "optimizer", "is_local", "wanted"))
        super().load_state_dict(state)
        self._is_local, self._wanted = bool(state["is_local"]), bool(state["wanted"])
        self._exchange = self.setup.exchange
