"""The states of torch's global random generators: on the CPU, and on the GPU where a worker trains on one."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def get_generators(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the generators' states by kind of device; `cuda` only if `device` is a GPU."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_generators(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    """Restore what `get_generators` returned on a device of the same kind."""
    torch.set_rng_state(states["cpu"].cpu())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].cpu(), device)
