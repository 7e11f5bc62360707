"""Find the GPUs for a sweep's runs, and count those that a run needs; without torch, to start quickly."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from typing import Any

from gradsweep.hardware import torch_has_gpus
from sweep.system.processes import read_text

_NAME = re.compile(r"[0-9]+|(GPU|MIG)-[0-9A-Za-z/-]+")
_LINE = re.compile(r"GPU (\d+): .*|\s+MIG .*\(UUID: (MIG-[0-9A-Za-z/-]+)\)")
PATIENCE_S = 30


def is_name(text: str) -> bool:
    """Tell whether a text can name a GPU in CUDA_VISIBLE_DEVICES, by number or UUID."""
    return _NAME.fullmatch(text) is not None


def list_inherited() -> list[str] | None:
    """Return the GPUs in CUDA_VISIBLE_DEVICES up to the first invalid one, as CUDA does; None if it is not set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    gpus: list[str] = []
    for name in (part.strip() for part in value.split(",")):
        if not is_name(name) or name in gpus:
            break
        gpus.append(name)
    return gpus


def parse_listing(text: str) -> list[str]:
    """Return the GPUs in the output of `nvidia-smi -L`: numbers, but for a partitioned GPU its parts' UUIDs."""
    gpus: list[str] = []
    whole = None
    for match in filter(None, map(_LINE.fullmatch, text.splitlines())):
        number, part = match.groups()
        if number is not None:
            whole = number
            gpus.append(number)
        elif part is not None:
            if whole in gpus:
                gpus.remove(whole)
            gpus.append(part)
    return gpus


@functools.cache
def list_installed() -> tuple[str, ...]:
    """Return the GPUs that nvidia-smi lists; none without nvidia-smi."""
    return tuple(parse_listing(read_text("nvidia-smi", "-L", timeout=PATIENCE_S)))


def build_environment(gpus: tuple[str, ...]) -> dict[str, str]:
    """Return the CUDA variables that give a run its leased GPUs; GPUs are numbered as by nvidia-smi.

    If the user has set CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER, these decide the numbering.
    """
    own = "CUDA_VISIBLE_DEVICES" in os.environ or "CUDA_DEVICE_ORDER" in os.environ
    order = {} if own else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpus), **order} if gpus else {}


def count_wanted(config: Mapping[str, Any], per_worker: int | None, there: int) -> int:
    """Return how many GPUs a run needs for itself.

    Args:
        config: the run's config.
        per_worker: the requested number of GPUs for each worker. None: one, but ranks share GPUs if `gpus` or
            `gpus_per_node` say so, and, unless device=cuda, if there are too few GPUs.
        there: the number of GPUs for all runs.
    """
    device = config.get("device", "cpu")
    workers = int(config["workers"])
    if device == "cpu":
        return 0
    if per_worker is not None:
        return per_worker * workers
    if device == "auto" and (there == 0 or not torch_has_gpus()):
        return 0
    if config.get("gpus"):
        number = max(config["gpus"][:workers]) + 1
    else:
        number = min(workers, config.get("gpus_per_node") or workers)
    return min(number, there) if device == "auto" else number
