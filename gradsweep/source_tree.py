"""The folder of Gradsweep's packages, multirun.py and conf/."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
