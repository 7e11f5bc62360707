"""What spares Hydra work changes nothing of what it does."""

from __future__ import annotations

import sys

import pytest
from hydra._internal.hydra import Hydra
from hydra.types import RunMode

from sweep.config import hydra_patches


@pytest.mark.parametrize(
    ("words", "mode"),
    [(["-m"], None), (["seed=1,2", "--multirun"], None), (["seed=1"], RunMode.RUN), ([], RunMode.RUN)],
)
def test_hydra_is_asked_for_its_mode_where_no_flag_tells(
    words: list[str], mode: RunMode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hydra, "get_mode", Hydra.get_mode)
    monkeypatch.setattr(hydra_patches, "_ask_mode", lambda hydra, config_name, overrides: RunMode.RUN)
    monkeypatch.setattr(sys, "argv", ["multirun.py", *words])
    hydra_patches.patch()
    assert Hydra.get_mode(object.__new__(Hydra), "config", []) == mode
