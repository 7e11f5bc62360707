"""Follow a sweep until it ends. Ctrl-C ends watching, and nothing else."""

from __future__ import annotations

from sweep.status.watch import add_arguments, run

__all__ = ["add_arguments", "run"]
