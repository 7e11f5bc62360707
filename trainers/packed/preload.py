"""Loads kernels and models of runs before their ranks are forked (trainers/packed/fork_server.py)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path

from compressors.kernels import backend, warm_up
from trainers.config import run_config as configs
from trainers.models import FAMILIES


def preload(directories: Sequence[str]) -> None:
    """Import the kernels and models of the runs in these directories; errors are left to the runs.

    Computes nothing and starts no thread.
    """
    for directory in directories:
        with contextlib.suppress(Exception):
            config = configs.load(Path(directory, "config.yaml"))
            importlib.import_module(f"trainers.models.{FAMILIES[type(config.model)]}")
            with backend.use(config.kernels):
                for compressor in config.policy.list_possible(config.compressor):
                    warm_up.load_kernels(compressor)
    backend.used.clear()  # the kernels that a rank's first run uses are recorded from here
