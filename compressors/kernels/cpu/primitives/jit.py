"""Compile kernels with numba: once per machine, then loaded from disk.

`kernel` is numba.njit with an explicit signature, so that nothing is compiled in the middle of a
training step. numba keeps compiled code beside the source, or in the user's cache directory where
the source cannot be written, or in NUMBA_CACHE_DIR; where none can be written the kernel is compiled
again in every process. Kernels release the GIL and run on the calling thread alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import sigutils

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@functools.cache
def fingerprint() -> str:
    """Return a hash of the sources of all kernels and of the tables that are compiled into them.

    numba takes a cached kernel as valid if the kernel's own file is unchanged, and would miss a change of a helper in
    another file. With this hash, a change of any file recompiles all kernels.
    """
    here = Path(__file__).parent
    sources = [source for folder in (here, here.parent, here.parent.parent) for source in sorted(folder.glob("*.py"))]
    return hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()


def kernel(*signatures: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that compiles a function for exactly these numba signatures, with a disk cache if possible."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            cached = numba.njit(cache=True, **_OPTIONS)(function)
            # The stamp has no public setter. A numba that moved it raises AttributeError:
            # rather compile in every process than run a stale kernel.
            stamped = cached._cache._cache_file
            stamped._source_stamp = (stamped._source_stamp, fingerprint())
            for signature in signatures:
                _compile_once(cached, signature)
        except (RuntimeError, OSError, AttributeError):
            cached = numba.njit(**_OPTIONS)(function)
            for signature in signatures:
                cached.compile(signature)
        cached.disable_compile()
        return cached

    return decorate


def _compile_once(cached: Any, signature: str) -> None:
    """Load the kernel from the cache, or compile it under a lock, so that only one process compiles.

    All ranks of a run need it at the same moment, and with a cold cache each of them would compile.
    """
    cache = cached._cache
    arguments, _ = sigutils.normalize_signature(signature)
    if cache._index_key(arguments, cached.targetctx.codegen()) in cache._cache_file._load_index():
        cached.compile(signature)
        return
    cache._impl.locator.ensure_cache_path()
    with Path(cache.cache_path, ".compiling").open("w") as lock:
        with contextlib.suppress(OSError):  # a file system without locks: all compile, and numba replaces whole files
            fcntl.flock(lock, fcntl.LOCK_EX)
        cached.compile(signature)  # which looks into the cache once more


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` in a form that kernels can call and that is compiled into them."""
    return numba.njit(**_OPTIONS)(function)
