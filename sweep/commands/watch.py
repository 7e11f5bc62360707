"""Follow a sweep until it ends. Ctrl-C ends watching, and nothing else."""

from __future__ import annotations

from sweep.status.watch import arguments, run

__all__ = ["arguments", "run"]
