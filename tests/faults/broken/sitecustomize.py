"""Has calls of the system fail in every Python that is started with this directory on PYTHONPATH.

BROKEN_FLOCK and BROKEN_FSYNC are names of errors, such as ENOLCK.
"""

import errno
import fcntl
import os


def _fails(name: str):
    number = getattr(errno, name)

    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


if "BROKEN_FLOCK" in os.environ:
    fcntl.flock = _fails(os.environ["BROKEN_FLOCK"])
if "BROKEN_FSYNC" in os.environ:
    os.fsync = _fails(os.environ["BROKEN_FSYNC"])
