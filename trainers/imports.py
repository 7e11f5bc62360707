"""What a rank loads later or never, so that it is ready sooner. Loads no torch itself."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

META = "torch._meta_registrations"
"""What torch knows of tensors without data, for torch.compile: a quarter of what importing torch costs."""


def load_torch(*, compiles: bool) -> None:
    """Import torch; without META in a process that never `compiles`.

    META is loaded when something asks for what is in it, and before any other module of torch that is imported later:
    these may count on it.
    """
    if compiles or "torch" in sys.modules:
        import torch
    else:
        finder = _PuttingOff(META)
        sys.meta_path.insert(0, finder)
        import torch  # noqa: F401

        finder.waits = True


@contextlib.contextmanager
def hidden(package: str) -> Iterator[None]:
    """Make imports of an optional package fail within the block, unless it is loaded already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


class _PuttingOff(MetaPathFinder):
    """Has a module of torch executed when something is looked up in it, and not before.

    importlib.util.LazyLoader does not do here: whoever looks through all modules for their files, as inspect does,
    would have it executed.
    """

    def __init__(self, name: str) -> None:
        self.name, self.waits = name, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.name:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _Later(spec.loader)
            return spec
        if self.waits and fullname.startswith("torch."):
            sys.meta_path.remove(self)
            module = sys.modules.get(self.name)
            if isinstance(module, _Empty):
                module.fill()
        return None


class _Later(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Empty(spec.name, self.loader)

    def exec_module(self, module: ModuleType) -> None:
        return None


class _Empty(ModuleType):
    """A module that is filled when a name is missing in it."""

    def __init__(self, name: str, loader: Loader) -> None:
        super().__init__(name)
        self._loader = loader

    def fill(self) -> None:
        self.__class__ = ModuleType  # type: ignore[assignment]
        self._loader.exec_module(self)

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        self.fill()
        return getattr(self, name)
