"""Prepare the data sets of runs before any rank needs them, by a process of `python -m trainers.data`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.run_directory import is_script
from gradsweep.targets import USER_CODE, list_directories
from sweep.settings.metrics import DEFAULT, find_metric
from sweep.system.job_environment import build_python_environment


def prepare_data(configs: Sequence[Mapping[str, Any]]) -> None:
    """Prepare each data set of the runs in another process, and check that the runs' options fit the data.

    Runs with trainer=script have no data set of ours.

    Raises:
        UsageError: files are missing, or a run's options do not fit its data; the message says which.
    """
    configs = [config for config in configs if not is_script(config)]
    if not configs:
        return
    with tempfile.TemporaryFile("w+", encoding="utf-8") as asked:  # ten thousand configs are not to be held once more
        with disk_errors.add_file_name(tempfile.gettempdir()):
            for number, config in enumerate(configs):
                asked.write(("," if number else "[") + json.dumps(config))
            asked.write("]")
            asked.seek(0)
        done = subprocess.run(
            [sys.executable, "-m", "trainers.data", "--runs", *_ask_for_metric(configs)],
            stdin=asked,
            stdout=subprocess.DEVNULL,  # of the user's own code
            stderr=subprocess.PIPE,
            env={**os.environ, **build_python_environment(), USER_CODE: os.pathsep.join(map(str, list_directories()))},
            text=True,
            errors="replace",
        )
    lines = done.stderr.strip().splitlines()
    if done.returncode == 2 and lines:
        raise UsageError(lines[-1])
    if lines:
        print("\n".join(lines), file=sys.stderr)
    if done.returncode:
        wanted = sorted({config["dataset"]["name"] for config in configs})
        reason = lines[-1].strip() if lines else f"the process that reads it ended with status {done.returncode}"
        raise UsageError(f"dataset={','.join(wanted)}: could not be prepared: {reason}; valid is data that can be read")


def _ask_for_metric(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the arguments that ask for sweep.metric, if it depends on the runs' tasks and decides anything."""
    sweep = configs[0].get("sweep", {}) if configs else {}
    metric = sweep.get("metric", DEFAULT)
    decides = metric != DEFAULT or sweep.get("prune") is not None
    return ["--metric", metric] if decides and find_metric(metric).of_task else []
