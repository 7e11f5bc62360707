"""Isolation of the runs that one process trains one after the other (trainers/packed/worker.py)."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

BLOCK = 1 << 16
LAST_WORDS_S = 1.0


@contextlib.contextmanager
def redirect_logs(descriptors: Sequence[int]) -> Iterator[None]:
    """Within the block, redirect stdout and stderr of this process and its children to the first two `descriptors`.

    All descriptors are closed at the end of the block; those after the first two only hold locks.
    """
    _flush()
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    try:
        for descriptor, log in zip((1, 2), descriptors[:2], strict=True):
            os.dup2(log, descriptor)
        yield
    finally:
        _flush()
        for descriptor, before in zip((1, 2), kept, strict=True):
            os.dup2(before, descriptor)
        for descriptor in (*kept, *descriptors):
            os.close(descriptor)


@contextlib.contextmanager
def forward_logs(send: Callable[[int, bytes], None]) -> Iterator[None]:
    """Within the block, pass the output of this process and its children to `send`.

    It gets the stream, 0 for stdout or 1 for stderr, and bytes.
    """
    pipes = [os.pipe() for _ in range(2)]
    readers = [
        threading.Thread(target=_forward, args=(pipe, stream, send), name="output", daemon=True)
        for stream, (pipe, _) in enumerate(pipes)
    ]
    for reader in readers:
        reader.start()
    try:
        with redirect_logs([into for _, into in pipes]):
            yield
    finally:
        for reader in readers:
            reader.join(LAST_WORDS_S)  # a child process may keep the pipes open


def _forward(pipe: int, stream: int, send: Callable[[int, bytes], None]) -> None:
    while data := os.read(pipe, BLOCK):
        send(stream, data)
    os.close(pipe)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk must not lose the result
            stream.flush()
    ctypes.CDLL(None).fflush(None)


@contextlib.contextmanager
def set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block, and restore all variables and the filters of warnings afterwards."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        with warnings.catch_warnings():  # the next run shows warnings again that were shown once
            yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


def tidy() -> None:
    """Reset the settings and caches that a run has changed in the process, and free its memory.

    Loaded kernels stay: a packed world saves the time to load them. Random numbers need no reset: every run seeds
    torch's generator and has generators of its own for the rest.
    """
    torch = sys.modules.get("torch")
    if torch is None:  # the run failed before
        return
    from compressors.kernels import backend
    from trainers.mpi import staging

    backend.choose("auto")
    backend.used.clear()
    staging.use(torch.device("cpu"), direct=False)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()  # a failed run leaves it
    compiler = sys.modules.get("torch._dynamo")
    if compiler is not None:
        compiler.reset()
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc returns freed memory, so that a large run does not burden small ones
        trim(0)
