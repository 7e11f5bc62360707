"""Build Gradsweep as pyproject.toml says, with conf/ in the wheel, where gradsweep/source_tree.py finds it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CONF = Path("conf")
PACKAGED = Path("hydra_plugins", "gradsweep", "conf")


def list_configs() -> list[Path]:
    return sorted(CONF.rglob("*.yaml"))


class BuildWithConfigs(build_py):
    """Copies conf/ beside the Hydra plugin; an editable install has it in the checkout."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, PACKAGED)
        shutil.rmtree(target, ignore_errors=True)  # an earlier build may have had others
        for path in list_configs():
            copy = target / path.relative_to(CONF)
            self.mkpath(os.fspath(copy.parent))
            self.copy_file(os.fspath(path), os.fspath(copy), preserve_mode=False)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        copies = [] if self.editable_mode else [PACKAGED / path.relative_to(CONF) for path in list_configs()]
        return [*super().get_outputs(include_bytecode), *(os.path.join(self.build_lib, copy) for copy in copies)]

    def get_source_files(self) -> list[str]:
        """List what an sdist needs."""
        return [*super().get_source_files(), *map(str, list_configs())]


setup(cmdclass={"build_py": BuildWithConfigs})
