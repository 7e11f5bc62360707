"""Decentralised parallel SGD, with plain quantised gossip if there is a compressor."""

from __future__ import annotations

from trainers.algorithms.base import AlgorithmSetup
from trainers.algorithms.gossiping import Ordered
from trainers.gradients.flat import Unit
from trainers.options import algorithms as options


class DPSGD(Ordered):
    """D-PSGD: x_i += gamma sum_j w_ij (Q(x_j) - Q(x_i)); without compression and with gamma = 1, sum_j w_ij x_j.

    Lian et al., "Can decentralized algorithms outperform centralized algorithms?" (NeurIPS 2017), algorithm 1, is
    order=combine_then_adapt. Compression errors are not corrected (Carli, Frasca, Fagnani, Zampieri, "Gossip
    consensus algorithms via quantized communication", Automatica 2010; Q2-G in Koloskova, Stich and Jaggi, ICML 2019):
    the mean over all workers is conserved, but their distance stays as large as the compression error of x.
    """

    def __init__(self, config: options.DPSGD, setup: AlgorithmSetup) -> None:
        super().__init__(config, setup, scheme="q2")

    def prepare_outgoing(self, unit: Unit) -> Unit:
        return self.mine.units[unit.index]

    def mix(self, unit: Unit) -> None:
        self.add_differences(self.mine, unit, self.gamma)
