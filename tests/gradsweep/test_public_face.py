"""`import gradsweep`: what Python programs use, handed on by the packages that define it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import compressors
import gradsweep
import reports
from tests.conftest import ROOT


def test_names_are_those_of_the_packages_that_define_them() -> None:
    assert gradsweep.load is reports.load
    assert gradsweep.registry is compressors.registry and gradsweep.build is compressors.build
    assert gradsweep.Key is compressors.Key
    assert gradsweep.build("qsgd", levels=3) == compressors.build("qsgd", levels=3)


def test_every_exported_name_is_there_and_no_other() -> None:
    assert all(hasattr(gradsweep, name) for name in gradsweep.__all__)
    with pytest.raises(AttributeError, match="module 'gradsweep' has no attribute 'train'"):
        _ = gradsweep.train


def test_importing_it_loads_no_other_module() -> None:
    code = "import sys; before = set(sys.modules); import gradsweep; print(*sorted(set(sys.modules) - before))"
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"gradsweep", "__future__"}


def test_its_modules_load_the_standard_library_and_pyyaml_only() -> None:
    code = (
        "import importlib, pathlib, sys\n"
        "for path in pathlib.Path('gradsweep').rglob('*.py'):\n"
        "    importlib.import_module('.'.join(path.with_suffix('').parts).removesuffix('.__init__'))\n"
        "top = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted(name for name in top if not name.startswith('_') and name not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"numpy", "torch", "pandas", "matplotlib", "hydra", "omegaconf", "rich"}
    assert not set(done.stdout.split()) & {"compressors", "trainers", "sweep", "reports"}
