"""The interface of decentralised algorithms: own parameters on each worker, messages to neighbours, mixing."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from typing import Any, cast

import torch

from compressors import unit_state
from trainers.algorithms.base import Algorithm, AlgorithmSetup
from trainers.exchange.base import Traffic
from trainers.exchange.gossip import Gossip, Shadow
from trainers.gradients.flat import Unit
from trainers.mpi.averaging import replace_by_mean
from trainers.options import algorithms as options
from trainers.topology import collect_facts


class Gossiping(Algorithm):
    """The base of decentralised algorithms: worker i updates its parameters x_i by its gradient and the messages of
    its neighbours j.

    W is the mixing matrix of the topology (trainers/topology), Q the compressor, gamma the consensus stepsize. The
    parameters are read and updated unit by unit, while a unit is still in the processor's caches. Outside of backward
    the flat gradients are scratch memory.
    """

    replicated = False

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self.gossip = cast(Gossip, setup.exchange)
        self.values = setup.flat.values
        self.mine = Shadow(setup.units, self.values)
        self.kept: dict[str, torch.Tensor] = {}
        """State that lasts from step to step beside the parameters, by name."""

    def keep(self, name: str, values: torch.Tensor) -> Shadow:
        """Register the buffer `values`, laid out as the parameters, as state called `name`; return it as a Shadow."""
        self.kept[name] = values
        return Shadow(self.setup.units, values)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._step, self._epoch, self._lr, self._measure = step, epoch, lr, measure

    def update(self) -> None:
        """Take the optimizer's step along this worker's own gradient."""
        setup = self.setup
        with setup.watch("update"):
            setup.clipping.clip_final()
            setup.optimizer.step(self._lr)

    @abstractmethod
    def prepare_outgoing(self, unit: Unit) -> Unit:
        """Return the unit with the tensor to compress in place of its gradient."""

    def on_encoded(self, unit: Unit) -> None:
        """Update the worker's state after the compression of a unit."""
        return None

    @torch.no_grad()
    def send(self, turn: int | None = None) -> None:
        """Compress all units and send the message to the neighbours, which are those of `turn`; None: of the step."""
        self.gossip.begin(self._step, epoch=self._epoch, lr=self._lr, measure=self._measure, turn=turn)
        for unit in reversed(self.setup.units):
            with self.setup.watch("encode"):
                leaving = self.prepare_outgoing(unit)
            self.gossip.submit(leaving)
            with self.setup.watch("encode"):
                self.on_encoded(unit)
        self.gossip.send()

    @abstractmethod
    def mix(self, unit: Unit) -> None:
        """Update the unit's parameters by the messages, which have all arrived."""

    def receive(self) -> None:
        """Wait for the messages of the neighbours, and mix them in."""
        self.gossip.receive()
        with torch.no_grad(), self.setup.watch("decode"):
            for unit in reversed(self.setup.units):
                self.mix(unit)

    def add_differences(self, shadow: Shadow, unit: Unit, scale: float = 1.0) -> torch.Tensor:
        """Add scale sum_j w_ij (Q_j - Q_i) to `shadow`, where Q_j is the unit's payload from worker j.

        Sums are of differences, which are small, so that rounding errors stay small over many steps. In a sum of
        parameters, rounding errors would be larger than some gradients.

        Returns:
            The unit's part of `shadow`.
        """
        self.gossip.add_own(shadow, unit, scale * (self.gossip.own - 1.0))
        self.gossip.add_others(shadow, unit, scale)
        return shadow.view(unit)

    def use_evaluation_parameters(self) -> contextlib.AbstractContextManager[None]:
        return replace_by_mean(self.values, self.setup.comm)

    def figures(self) -> dict[str, Any]:
        return collect_facts(self.gossip.mixing)

    def state_dict(self) -> dict[str, Any]:
        kept = {name: values.clone() for name, values in self.kept.items()}
        return {**super().state_dict(), "kept": kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        unit_state.require_keys("a decentralised algorithm", state, ("exchange", "optimizer", "kept"))
        unit_state.require_alike("a decentralised algorithm", state["kept"], self.kept)
        super().load_state_dict(state)
        for name, values in self.kept.items():
            values.copy_(state["kept"][name])


class Ordered(Gossiping):
    """An algorithm that mixes after the step along the gradient, or during backward.

    With order=adapt_then_combine a worker takes the step, sends the result and mixes. With combine_then_adapt it sends
    the parameters at which the gradient is computed, so that messages can travel during forward and backward
    (exchange.overlap); the first step sends nothing, because all workers begin with the same parameters. The terms are
    those of Cattivelli and Sayed (IEEE Transactions on Signal Processing, 2010).

    Args:
        scheme: of averaging consensus, for which stepsize=tune is searched (trainers/consensus/stepsize_tuning.py).
    """

    def __init__(self, config: options.Ordered, setup: AlgorithmSetup, scheme: str) -> None:
        super().__init__(config, setup)
        self.early = config.order == "combine_then_adapt"
        self.stepsize = torch.ones(1, dtype=torch.float64)
        if config.consensus_stepsize != "tune":
            self.stepsize.fill_(config.consensus_stepsize)
        else:
            from trainers.consensus.stepsize_tuning import tune_stepsize

            gossip, shapes = self.gossip, [unit.gradient.shape for unit in setup.units]
            compressor = gossip.selector.compressor
            self.stepsize.fill_(tune_stepsize(gossip.comm, gossip.mixing, compressor, shapes, gossip.seed, scheme))
            self.kept["stepsize"] = self.stepsize  # the search may find another one on another machine

    @property
    def gamma(self) -> float:
        """The consensus stepsize."""
        return float(self.stepsize)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        super().begin(step, epoch, lr, measure)
        if self.early and step > 1:
            self.send()

    @torch.no_grad()
    def finish(self) -> Traffic:
        self.update()
        if not self.early:
            self.send()
        elif self._step == 1:
            return Traffic(0.0, 0.0, None)
        self.receive()
        return self.gossip.traffic()

    def figures(self) -> dict[str, Any]:
        return {**super().figures(), "consensus_stepsize": self.gamma}
