"""Imports point one way, and what must start fast loads nothing heavy (docs/architecture.md)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

ROOMS = ("compressors", "trainers", "sweep", "reports", "hydra_plugins", "multirun")
GROUND_NAMES = ("disk", "file_lock", "files", "record", "run", "sheets", "signature", "timed", "units", "yaml_files")
GROUND = tuple(f"sweep.{name}" for name in GROUND_NAMES)
"""What all rooms but compressors/ share: files, locks, the run directory and what stands in it, units."""
TYPED = ("gradsweep.hints", "gradsweep.parameters", "gradsweep.version", "gradsweep.cli.arguments")
"""What all commands say of what was typed."""
MAY_IMPORT = {
    "compressors": (),
    "trainers": ("compressors", *GROUND),
    "sweep": TYPED,
    "reports": (*GROUND, *TYPED),
    "hydra_plugins": ("sweep", "trainers.config", "trainers.rules"),
}
LOOKS = (
    *GROUND,
    *TYPED,
    "gradsweep.sweep_lock",
    "sweep.status.overview",
    "gradsweep.sweep_locations",
    "gradsweep.text",
)
LOOKS += tuple(f"sweep.status.{name}" for name in ("find", "logs", "run_lines", "watch"))
"""What `python -m reports COMMAND` shares with `python -m sweep COMMAND`: it looks at sweeps, and steers none."""
BENCH = ("gradsweep.spreadsheets",)
"""What `python -m compressors bench` takes to write its CSV."""
NEVER = {
    "reports": ("torch", "hydra", "omegaconf", "mpi4py"),
    "trainers": ("hydra", "omegaconf"),
    "compressors": ("mpi4py",),
}


def imports_of(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever it stands; `from a import b` counts as a.b too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def allowed_in(path: Path) -> tuple[str, ...]:
    if path == ROOT / "compressors/commands/bench.py":
        return BENCH
    is_command = path.is_relative_to(ROOT / "reports/commands") or path == ROOT / "reports/__main__.py"
    return LOOKS if is_command else MAY_IMPORT[path.relative_to(ROOT).parts[0]]


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_point_one_way(room: str) -> None:
    wrong = []
    for path in (ROOT / room).rglob("*.py"):
        for module in imports_of(path):
            others = [other for other in ROOMS if other != room and within(module, other)]
            if others and not any(within(module, allowed) for allowed in allowed_in(path)):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
            if any(within(module, package) for package in NEVER.get(room, ())):
                wrong.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not wrong


def test_csvs_that_people_open_are_written_in_one_place() -> None:
    """Where texts that look like formulas are quoted; what `gradsweep.files` writes has numbers only."""
    writes = re.compile(r"\bcsv\.(writer|DictWriter)\(|(?<!sheets)\.to_csv\(")
    rooms = [path for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in rooms if writes.search(path.read_text(encoding="utf-8"))}
    assert found == {"gradsweep/files.py", "gradsweep/spreadsheets.py"}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import reports", {"torch", "mpi4py", "hydra", "matplotlib"}),
        ("import reports.__main__, reports.commands.build", {"pandas", "numpy", "yaml", "rich", "jinja2"}),
        ("import reports.commands.list, reports.commands.logs, reports.commands.prune", {"pandas", "numpy", "yaml"}),
        ("import reports.commands.show, reports.commands.diff", {"pandas", "numpy", "matplotlib", "jinja2"}),
        ("import compressors; compressors.registry()", {"torch", "numba"}),
        ("import trainers.config.run_config", {"torch", "numba", "hydra", "omegaconf", "pandas"}),
        ("import gradsweep.run_directory, gradsweep.file_lock, gradsweep.disk_errors", {"numpy", "yaml", "rich"}),
        ("import sweep.__main__, sweep.commands.status", {"numpy", "yaml", "rich", "hydra", "submitit"}),
        (
            "import sweep.launch, sweep.launch.detached, sweep.commands.resume",
            {"hydra", "omegaconf", "torch", "pandas"},
        ),
        ("import multirun", {"torch", "numba", "pandas", "matplotlib", "submitit", "mpi4py"}),
        (
            "import trainers.training.loop",
            {"torch._dynamo", "hydra", "pandas", "matplotlib", "sklearn", "torchvision", "numba"},
        ),
    ],
)
def test_a_quick_start_loads_nothing_heavy(statement: str, not_loaded: set[str]) -> None:
    assert not loaded_by(statement) & not_loaded
