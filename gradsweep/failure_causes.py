"""The causes of failed attempts, named as in state.json and failure-*.json."""

from __future__ import annotations

INPUT = "input"  # what the user asked for cannot work
ERROR = "error"  # an exception in a rank
MEMORY = "memory"  # no memory was left
DISK = "disk"  # it is full, or the quota is; it fails, or can only be read
KILLED = "killed"  # a signal ended a rank or the MPI launcher
START = "start"  # the attempt could not be started
LOST = "lost"  # its driver has gone: the launcher was killed, the node failed
HANG = "hang"  # it made no progress
TIME = "time"  # its time limit passed
UNKNOWN = "unknown"  # an exit status that says nothing

LOST_CONNECTION = 14
"""Exit status of Open MPI's mpirun (MPI_ERR_UNKNOWN) where ranks on other hosts were the first to see one end."""
