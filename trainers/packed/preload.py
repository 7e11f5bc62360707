"""Loads kernels and models of runs before their ranks are forked (trainers/packed/fork_server.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from compressors.kernels import backend
from gradsweep import yaml_files
from gradsweep.plugins import list_user_code
from trainers.config import run_config as configs
from trainers.training.code_loading import load_code


def preload(directories: Sequence[str]) -> None:
    """Import the kernels and models of the runs in these directories; errors are left to the runs.

    Runs with code of the user are left out: the ranks of other worlds may have other code by the same name.
    Computes nothing and starts no thread.
    """
    for directory in directories:
        with contextlib.suppress(Exception):
            config = yaml_files.read_mapping(Path(directory, "config.yaml"))
            if not list_user_code(config):
                load_code(configs.parse(config))
    backend.used.clear()  # also after an error
