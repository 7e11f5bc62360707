"""What decentralised algorithms have in common: parameters of their own, messages to the neighbours, mixing."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Mapping
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
    """Worker i has parameters x_i, which it changes by its own gradient, and by what its neighbours j send.

    W is the mixing matrix of the topology (trainers/topology), Q the compressor, gamma the consensus stepsize. All that
    is done to parameters around a message is done unit by unit, as what has just been touched is still in the caches.
    The flat gradients are scratch memory outside of backward.
    """

    replicated = False

    def __init__(self, setup: AlgorithmSetup) -> None:
        super().__init__(setup)
        self.gossip = cast(Gossip, setup.exchange)
        self.values = setup.flat.values
        self.mine = Shadow(setup.units, self.values)
        self.kept: dict[str, torch.Tensor] = {}
        """What is remembered from step to step beside the parameters, by name."""

    def keep(self, name: str, values: torch.Tensor) -> Shadow:
        """Remember a buffer like the parameters."""
        self.kept[name] = values
        return Shadow(self.setup.units, values)

    def begin(self, step: int, epoch: int, lr: float, measure: bool) -> None:
        self._step, self._epoch, self._lr, self._measure = step, epoch, lr, measure

    def update(self) -> None:
        """The optimizer's step along this worker's own gradient."""
        setup = self.setup
        with setup.watch("update"):
            setup.clipping.clip_final()
            setup.optimizer.step(self._lr)

    @abstractmethod
    def prepare_outgoing(self, unit: Unit) -> Unit:
        """What is to be compressed of a unit: itself, with that in place of its gradient."""

    def on_encoded(self, unit: Unit) -> None:
        """The unit has been compressed: what the worker itself makes of that."""
        return None

    @torch.no_grad()
    def send(self) -> None:
        """Compress all units; the message leaves for the neighbours."""
        self.gossip.begin(self._step, epoch=self._epoch, lr=self._lr, measure=self._measure)
        for unit in reversed(self.setup.units):
            with self.setup.watch("encode"):
                leaving = self.prepare_outgoing(unit)
            self.gossip.submit(leaving)
            with self.setup.watch("encode"):
                self.on_encoded(unit)
        self.gossip.send()

    @abstractmethod
    def mix(self, unit: Unit) -> None:
        """All messages are here: what becomes of the unit by them."""

    def receive(self) -> None:
        """Wait for the messages of the neighbours, and take them in."""
        self.gossip.receive()
        with torch.no_grad(), self.setup.watch("decode"):
            for unit in reversed(self.setup.units):
                self.mix(unit)

    def add_differences(self, shadow: Shadow, unit: Unit, scale: float = 1.0) -> torch.Tensor:
        """shadow += scale sum_j w_ij (Q_j - Q_i), of what has been sent and has come.

        Where such sums are kept, they are kept as differences: these are small, and so is what rounding adds to them in
        many steps. To a sum of parameters it would add more than some gradients do. Returns that part of `shadow`.
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
        """Take back what `state_dict` gave.

        Raises:
            ValueError: it is the state of something else.
        """
        keys = ("exchange", "optimizer", "kept")
        if not isinstance(state, Mapping) or set(state) != set(keys):
            given = ", ".join(map(str, state)) if isinstance(state, Mapping) else f"a {type(state).__name__}"
            raise ValueError(f"the state of a decentralised algorithm has the keys {', '.join(keys)}, not {given}")
        unit_state.require_alike("a decentralised algorithm", state["kept"], self.kept)
        super().load_state_dict(dict(state))
        for name, values in self.kept.items():
            values.copy_(state["kept"][name])


class Ordered(Gossiping):
    """An algorithm whose mixing comes after the step along the gradient, or goes on beside it.

    With order=adapt_then_combine the step is taken, the result is sent, and mixed. With combine_then_adapt what is sent
    are the parameters that the gradient is taken of: messages can travel during forward and backward
    (exchange.overlap), and the first step has none, as all workers begin with the same parameters. The terms are those
    of Cattivelli and Sayed (IEEE Transactions on Signal Processing, 2010).

    Args:
        scheme: of averaging consensus that tells which stepsize is best (trainers/gossip/tuning), where it is `tune`.
    """

    def __init__(self, config: options.Ordered, setup: AlgorithmSetup, scheme: str) -> None:
        super().__init__(setup)
        self.early = config.order == "combine_then_adapt"
        self.stepsize = torch.ones(1, dtype=torch.float64)
        if config.consensus_stepsize != "tune":
            self.stepsize.fill_(config.consensus_stepsize)
        else:
            from trainers.consensus.stepsize_tuning import tune_stepsize

            gossip, shapes = self.gossip, [unit.gradient.shape for unit in setup.units]
            compressor = gossip.selector.compressor
            self.stepsize.fill_(tune_stepsize(gossip.comm, gossip.mixing, compressor, shapes, gossip.seed, scheme))
            self.kept["stepsize"] = self.stepsize  # on another machine the search may come to another end

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
