"""The cores and GPUs that a run may use."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(eq=False)
class Lease:
    """The cores, GPUs and locks that a run has until `Slots.release`.

    `descriptors` are the locks; a child process that inherits them keeps them locked as long as it lives.
    """

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    descriptors: list[int] = dataclasses.field(default_factory=list)
    is_shared: bool = False
    """The cores are not this run's own: sweep.share_cores=true."""
