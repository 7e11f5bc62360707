"""Gradsweep for Python programs.

    import gradsweep

    report = gradsweep.load("output")                  # runs as DataFrames, see docs/guide/python.md
    compressor = gradsweep.build("qsgd", levels=7)     # a compressor, see docs/guide/add-a-compressor.md
    methods = gradsweep.registry()                     # all compressors by name
    model.register_comm_hook(*gradsweep.ddp_hook("topk", ratio=0.01))  # in torch scripts, see docs/guide/torch-ddp.md

Each name is handed on by the package that defines it, which is loaded when the name is first used. The modules of this
package are what all packages of Gradsweep share; they load the standard library and PyYAML.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Key", "build", "ddp_hook", "fsdp_hook", "hsdp_hook", "load", "registry"]

_PROVIDERS = {
    "load": "reports",
    "registry": "compressors",
    "build": "compressors",
    "Key": "compressors",
    "ddp_hook": "trainers.hooks",
    "fsdp_hook": "trainers.hooks",
    "hsdp_hook": "trainers.hooks",
}

if TYPE_CHECKING:
    load: Callable[..., Any]
    registry: Callable[[], Any]
    build: Callable[..., Any]
    Key: Any
    ddp_hook: Callable[..., Any]
    fsdp_hook: Callable[..., Any]
    hsdp_hook: Callable[..., Any]
else:

    def __getattr__(name: str) -> object:
        """Import the package that provides `name`, and return the object of that name."""
        if name not in _PROVIDERS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(_PROVIDERS[name]), name)
        globals()[name] = value
        return value
