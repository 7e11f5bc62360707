"""Topologies of decentralised training: graphs, their mixing matrices, and what these promise."""

from __future__ import annotations

from trainers.topology.mixing import Mixing

__all__ = ["Mixing"]
