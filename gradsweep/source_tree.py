"""Where the packages of Gradsweep lie, with multirun.py and conf/ beside them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
