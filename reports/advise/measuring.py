"""Start the measuring program, `python -m trainers.advise`, for a model that command-line words choose."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import yaml_files
from gradsweep.errors import UsageError
from gradsweep.files import write_json
from gradsweep.source_tree import ROOT

REQUEST, MEASURED = "request.json", "measured.json"
_PROGRAM = "python -m trainers.advise"


def compose(words: Sequence[str]) -> dict[str, Any]:
    """Return the config that these words give to a run.

    Raises:
        UsageError: the words are no config, in the line of multirun.py.
    """
    command = [sys.executable, str(ROOT / "multirun.py"), *words, "--cfg", "job", "--resolve"]
    done = subprocess.run(command, capture_output=True, check=False, env=_make_environment())
    if done.returncode:
        raise UsageError(_get_last_line(done.stderr) or f"{shlex.join(words)}: no config")
    try:
        return yaml_files.parse_mapping(done.stdout)
    except ValueError as error:
        raise UsageError(f"{shlex.join(words)}: no config: {error}") from error


def measure(request: Mapping[str, Any], directory: Path, *, quiet: bool = False) -> Path:
    """Measure in a program of its own; return the file with the measurements in `directory`, which exists.

    Raises:
        UsageError: the request cannot be measured.
    """
    path = directory / MEASURED
    write_json(directory / REQUEST, {**request, "output": str(path)})
    command = [sys.executable, "-m", "trainers.advise", str(directory / REQUEST)]
    out = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, env=_make_environment()) as program:
        assert program.stderr is not None
        try:
            said = program.stderr.read()
        except KeyboardInterrupt:
            program.send_signal(signal.SIGINT)
            raise
    if program.returncode == -signal.SIGKILL:
        raise UsageError("the measurement was killed, probably for lack of memory; valid is a smaller --batch or model")
    if program.returncode:
        line = _get_last_line(said)
        raise UsageError(line or f"the measurement has ended with status {program.returncode}")
    return path


def _make_environment() -> dict[str, str]:
    """Return the environment in which our packages are found first, from any directory."""
    packages = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": packages, "PYTHONSAFEPATH": "1"}


def _get_last_line(said: bytes) -> str:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix(f"{_PROGRAM}: ").removeprefix("multirun.py: ") if lines else ""
