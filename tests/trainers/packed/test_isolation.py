"""A process that trains many runs is to each as if it were new."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from compressors.kernels import backend
from trainers.devices import choose
from trainers.mpi import staging, stopping
from trainers.packed.isolation import forward_logs, redirect_logs, set_environment, tidy


def test_what_is_printed_goes_to_the_runs_logs(tmp_path: Path) -> None:
    """Also by children and by what is not Python, and only within the block; what was handed over is closed."""
    logs = [os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT) for name in ("out", "err", "lock")]
    before = [os.fstat(descriptor) for descriptor in (1, 2)]
    with redirect_logs(logs):
        os.write(1, b"ours\n")
        subprocess.run([sys.executable, "-c", "import sys; print('child', file=sys.stderr)"], check=True)
    assert (tmp_path / "out").read_text() == "ours\n" and (tmp_path / "err").read_text() == "child\n"
    for descriptor, was in zip((1, 2), before, strict=True):
        assert os.path.samestat(os.fstat(descriptor), was)
    for descriptor in logs:
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_what_is_printed_on_another_node_is_said() -> None:
    """All of it has been said when the block is left, and nothing of what is printed behind it."""
    said: list[tuple[int, bytes]] = []
    before = [os.fstat(descriptor) for descriptor in (1, 2)]
    with forward_logs(lambda stream, data: said.append((stream, data))):
        os.write(1, b"ours\n")
        subprocess.run([sys.executable, "-c", "import sys; print('x' * 200_000, file=sys.stderr)"], check=True)
    os.write(2, b"behind\n")
    words = {stream: b"".join(data for each, data in said if each == stream) for stream in (0, 1)}
    assert words == {0: b"ours\n", 1: b"x" * 200_000 + b"\n"} and max(len(data) for _, data in said) <= 1 << 16
    for descriptor, was in zip((1, 2), before, strict=True):
        assert os.path.samestat(os.fstat(descriptor), was)


def test_variables_and_warnings_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("CHANGED", "1")
    monkeypatch.delenv("GIVEN", raising=False)
    before = dict(os.environ)
    with pytest.raises(ValueError), set_environment({"GIVEN": "2"}):
        assert os.environ["GIVEN"] == "2" and os.environ["KEPT"] == "1"
        os.environ["CHANGED"], os.environ["LEFT"] = "3", "4"
        del os.environ["KEPT"]
        warnings.simplefilter("ignore")
        raise ValueError
    assert dict(os.environ) == before
    with pytest.warns(UserWarning):
        warnings.warn("shown", stacklevel=1)


def test_choices_of_a_run_are_forgotten() -> None:
    backend.choose("torch")
    backend.load("qsgd", "cpu")
    staging.use(torch.device("cuda"), direct=True)
    tidy()
    assert backend.used == {} and backend.select("qsgd", "cpu") == "numba"
    assert not staging.is_direct() and not staging.allocate_message(4).is_pinned()


def test_the_gpus_of_a_run_are_those_that_it_was_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRADSWEEP_GPUS", raising=False)
    assert choose.list_own_gpus(3) == [0, 1, 2]
    monkeypatch.setenv("GRADSWEEP_GPUS", "2,0")
    assert choose.list_own_gpus(3) == [2, 0]


def test_a_request_is_forgotten_with_its_run() -> None:
    stopping.request()
    stopping.forget()
    assert not stopping.is_requested() and not stopping.has_begun()
