"""`python fork_server.py CONTROL`: as trainers/packed/fork_server.py, but forks a module of the tests on real
ranks.

Started by itself each rank would load torch and numba's kernels, most of the time of these tests.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

WORDS = "words.json"  # in the world's directory: a module and its arguments


def be_a_rank(arguments: list[str]) -> NoReturn:
    """In place of `trainers.packed.worker.main`: the module, up to the end of MPI."""
    (world,) = arguments
    status = 1
    try:
        module, *sys.argv[1:] = json.loads(Path(world, WORDS).read_text())
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        from mpi4py import MPI

        MPI.Finalize()
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main(control: socket.socket) -> None:
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    from trainers.packed import fork_server

    load = fork_server.load_ours

    def load_all(code: str, runs: list[str]) -> None:
        import pytest  # noqa: F401 - loaded by tests/trainers/ranks/exchange.py

        import compressors
        from compressors.kernels.warm_up import load_kernels

        load(code, runs)
        sys.modules["trainers.packed.worker"].main = be_a_rank  # type: ignore[attr-defined]
        for name in compressors.registry():
            load_kernels(compressors.build(name))
        compressors.kernels.backend.used.clear()

    fork_server.load_ours = load_all
    fork_server.main(control)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
