"""The end of what a run has written, of its latest attempt; with -f also what it writes from now on.

The same as python -m sweep logs."""

from __future__ import annotations

from sweep.status.logs import add_arguments, run

__all__ = ["add_arguments", "run"]
