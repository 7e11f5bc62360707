"""What runs work with, loaded before the ranks that train them are forked (trainers/packed/fork_server.py)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path

from compressors.kernels import backend, warm_up
from trainers.config import run_config as configs
from trainers.models import FAMILIES


def preload(directories: Sequence[str]) -> None:
    """Import the kernels and models of the runs in these directories. What cannot be is left to the runs to tell.

    Nothing is computed, and no thread started.
    """
    for directory in directories:
        with contextlib.suppress(Exception):
            config = configs.load(Path(directory, "config.yaml"))
            importlib.import_module(f"trainers.models.{FAMILIES[type(config.model)]}")
            with backend.use(config.kernels):
                for compressor in config.policy.possible(config.compressor):
                    warm_up.load_kernels(compressor)
    backend.used.clear()  # else a rank's first run would seem to have used them
