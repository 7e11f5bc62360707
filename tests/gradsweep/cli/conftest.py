"""The command `gradsweep` as pip installs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Command = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPT = """\
#!{python}
import sys
from gradsweep.cli.__main__ import main
if __name__ == "__main__":
    sys.exit(main())
"""


def write_script(folder: Path) -> Path:
    """Write the script that pip makes of the entry point; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "gradsweep"
    script.write_text(SCRIPT.format(python=sys.executable))
    script.chmod(0o755)
    return script


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Run `gradsweep` with these words in an empty directory."""
    script = write_script(tmp_path / "bin")
    (tmp_path / "empty").mkdir()

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(script), *words],
            cwd=tmp_path / "empty",
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run
