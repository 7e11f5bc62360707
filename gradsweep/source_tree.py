"""The folder of Gradsweep's packages and multirun.py, and that of the configs."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PACKAGED = ROOT / "hydra_plugins" / "gradsweep" / "conf"  # setup.py puts conf/ there in a wheel
IS_INSTALLED = _PACKAGED.is_dir()
"""Whether this is an installed wheel; else it is a checkout, or a snapshot of one of both."""
CONF = _PACKAGED if IS_INSTALLED else ROOT / "conf"
