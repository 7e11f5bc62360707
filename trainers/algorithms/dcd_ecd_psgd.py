"""DCD-PSGD and ECD-PSGD: neighbours have copies of each other's parameters, kept up to date by compressed messages."""

from __future__ import annotations

from typing import Any

import torch

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.gossiping import Gossiping
from trainers.exchange.base import Traffic
from trainers.exchange.gossip import Shadow
from trainers.gradients.flat import Unit


class Copied(Gossiping):
    """The base of DCD and ECD: x_i becomes sum_j w_ij h_j + d_i, with the optimizer's step d_i and the copy h_j of
    worker j's parameters.

    A worker keeps h_i, at first the initial parameters of all workers, and its pull, sum_j w_ij (h_j - h_i). Messages
    are needed only in the next step: with exchange.overlap they travel until then.

    Tang, Gan, Zhang, Zhang and Liu, "Communication compression for decentralized training" (NeurIPS 2018).
    """

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self.copy = self.keep("copy", self.values.clone())
        self.pull = self.keep("pull", torch.zeros_like(self.values))
        self._is_pending = False  # a message is on its way

    @torch.no_grad()
    def finish(self) -> Traffic:
        self.receive_pending()
        self.prepare_step()
        self.update()
        self.send()
        self._is_pending = True
        if not self.gossip.overlaps:
            self.receive_pending()
        return self.gossip.traffic()

    def prepare_step(self) -> None:
        """Prepare the optimizer's step."""
        return None

    def receive_pending(self) -> None:
        """Receive and mix messages in transit. All workers call this."""
        if self._is_pending:
            self._is_pending = False
            self.receive()

    def state_dict(self) -> dict[str, Any]:
        self.receive_pending()
        return super().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.receive_pending()
        super().load_state_dict(state)


class DCD(Copied):
    """Difference compression (algorithm 1 of the paper): sends q_i = Q(x'_i - x_i) with x'_i = sum_j w_ij x_j + d_i.

    Then x_i += q_i, so that x_i equals its neighbours' copies. Needs a compressor that loses little."""

    def prepare_outgoing(self, unit: Unit) -> Unit:
        torch.sub(unit.values, self.copy.view(unit), out=unit.gradient).add_(self.pull.view(unit))
        return unit

    def on_encoded(self, unit: Unit) -> None:
        self.gossip.add_own(self.copy, unit)
        unit.values.copy_(self.copy.view(unit))

    def mix(self, unit: Unit) -> None:
        self.add_differences(self.pull, unit)


class ECD(Copied):
    """Extrapolation compression (algorithm 2 of the paper): in step t sends Q((1 - t/2) x_i + (t/2) x'_i) = Q(z_i).

    Then h_i becomes (1 - 2/t) h_i + (2/t) Q(z_i), so that compression errors are divided by t. Needs an unbiased
    compressor that loses little.
    """

    def __init__(self, config: Any, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup)
        self._before = Shadow(setup.units, torch.empty_like(self.values))

    def prepare_step(self) -> None:
        self._before.values.copy_(self.values)

    def prepare_outgoing(self, unit: Unit) -> Unit:
        before = self._before.view(unit)
        unit.values.sub_(before).add_(self.pull.view(unit)).add_(self.copy.view(unit))
        torch.sub(unit.values, before, out=unit.gradient).mul_(self._step / 2).add_(before)
        return unit

    def mix(self, unit: Unit) -> None:
        scale = 2.0 / self.gossip.step
        self.copy.view(unit).mul_(1.0 - scale)
        self.pull.view(unit).mul_(1.0 - scale)
        self.gossip.add_own(self.copy, unit, scale)
        self.add_differences(self.pull, unit, scale)
