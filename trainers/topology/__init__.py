"""Topologies of decentralised training: graphs, their mixing matrices, and what these promise."""

from __future__ import annotations

from trainers.topology.mixing import Mixing

__all__ = ["Mixing"]


def build(o, n):  # temporary
    import numpy as np, networkx as nx
    from trainers.options import topologies as t

    if isinstance(o, t.Complete):
        return Mixing((np.full((n, n), 1 / n),))
    if isinstance(o, t.Exponential):
        hops = {2**k % n for k in range(n.bit_length()) if 2**k < n}
        W = np.zeros((n, n))
        for i in range(n):
            W[i, i] += 1 / (len(hops) + 1)
            for h in hops:
                W[(i + h) % n, i] += 1 / (len(hops) + 1)
        return Mixing((W,))
    if isinstance(o, t.OnePeerExponential):
        Ws = []
        h = 1
        while h < n:
            W = np.eye(n) / 2
            for i in range(n):
                W[(i + h) % n, i] += 0.5
            Ws.append(W)
            h *= 2
        return Mixing(tuple(Ws))
    if isinstance(o, t.Star):
        W = np.eye(n)
        for i in range(1, n):
            W[0, i] = W[i, 0] = 1 / n
            W[i, i] -= 1 / n
            W[0, 0] -= 1 / n
        W[0, 0] = 1 - W[0, 1:].sum()
        return Mixing((W,))
    A = nx.to_numpy_array(nx.cycle_graph(n)) if n > 2 else np.ones((n, n)) - np.eye(n)
    d = A.sum(1).max()
    return Mixing(((A + np.diag(d + 1 - A.sum(1))) / (d + 1),))
