"""Loads kernels and models of runs before their ranks are forked (trainers/packed/fork_server.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from compressors.kernels import backend
from trainers.config import run_config as configs
from trainers.training.code_loading import load_code


def preload(directories: Sequence[str]) -> None:
    """Import the kernels and models of the runs in these directories; errors are left to the runs.

    Computes nothing and starts no thread.
    """
    for directory in directories:
        with contextlib.suppress(Exception):
            load_code(configs.load(Path(directory, "config.yaml")))
    backend.used.clear()  # also after an error
