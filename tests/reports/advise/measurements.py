"""Measurements of known laws: without noise, or with noise that all parts of a round share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

BYTES = 40_000_000  # of the gradient
COMPUTE, BACKWARD = 0.2, 0.12
ENCODE = {"none": 0.004, "qsgd": 0.03, "powersgd": 0.01, "topk": 0.5}
EACH = {"none": 0.0, "qsgd": 0.01, "powersgd": 0.0, "topk": 0.001}
"""Seconds to decode a further payload."""
DECODE = 0.005
SHARE = {"none": 1.0, "qsgd": 0.125, "powersgd": 0.01, "topk": 0.01}
"""Of the gradient's bytes that are sent."""


def write(path: Path, rounds: int = 9, noise: float = 0.0, **changed: Any) -> Path:
    """Write what `python -m trainers.advise` would have measured."""
    random = np.random.default_rng(0)

    def spread(value: float) -> list[float]:
        return [value * factor for factor in factors * np.exp(random.normal(0, noise / 4, rounds))]

    factors = np.exp(random.normal(0, noise, rounds))
    content = {
        "format": 1,
        "parameters": BYTES // 4,
        "batch": 32,
        "threads": 1,
        "device": "cpu",
        "rounds": rounds,
        "compute": {"total": spread(COMPUTE), "backward": spread(BACKWARD)},
        "yardstick": [{"seconds": 1e-3, "others_s": 0.0, "cores_s": 1.0}] * (rounds + 1),
        "refused": {"svd": "not enough memory"},
        "methods": {name: _make_method(name, spread) for name in ENCODE},
        **changed,
    }
    path.write_text(json.dumps(content))
    return path


def _make_method(name: str, spread: Any) -> dict[str, Any]:
    is_summed = name in ("none", "powersgd")
    payload = BYTES * SHARE[name]
    worlds = {}
    for workers in [8] if is_summed else [2, 8]:
        sent = 2 * (workers - 1) / workers * payload if is_summed else (workers - 1) * payload
        calls = {"rounds": 2.0} if name == "powersgd" else {"allreduce": 20.0} if is_summed else {"allgather": 4.0}
        worlds[str(workers)] = {
            "payload_bytes": payload,
            "sent_bytes": sent,
            "collectives_per_step": calls,
            "early_collectives_per_step": {"allreduce": 18.0} if name == "none" else {},
            "kept_bytes": 0 if name in ("none", "qsgd") else BYTES,
            "message_bytes": payload * (1 if is_summed else 1 + workers),
            "encode": spread(ENCODE[name]),
            "decode": spread(DECODE + EACH[name] * workers),
        }
    return {
        "memory": "none" if name in ("none", "qsgd") else "residual",
        "state": "none" if name in ("none", "qsgd") else "error feedback",
        "reported": "ImageNet: 90 % (91 %)" if name == "powersgd" else "",
        "needs": "exact" if name == "none" else "biased",
        "paper": f"paper of {name} <b>",
        "exchange": "allreduce" if is_summed else "allgather",
        "workers": worlds,
    }
