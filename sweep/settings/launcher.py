"""The options of conf/hydra/launcher: chooses their class by the launcher.

A run's config.yaml has them in its section `launcher`, which is not part of the signature.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gradsweep.errors import bad_value
from gradsweep.options.hints import did_you_mean
from sweep.settings.local_launcher import LocalOptions
from sweep.settings.slurm_launcher import SlurmOptions

Options = LocalOptions | SlurmOptions
"""The checked options of a launcher, for one point."""

OPTIONS: dict[str, type[LocalOptions] | type[SlurmOptions]] = {"local": LocalOptions, "slurm": SlurmOptions}
"""The classes of options by the values of `hydra.launcher.cluster`."""


def parse_options(launcher: Mapping[str, Any]) -> Options:
    """Return the checked options of a config's section `launcher`.

    Raises:
        UsageError: the cluster or a key is unknown, an option is another launcher's, or a value is out of range.
    """
    given = dict(launcher)
    cluster = given.pop("cluster", None)
    if not isinstance(cluster, str) or cluster not in OPTIONS:
        meant = did_you_mean(cluster, OPTIONS)
        raise bad_value("hydra.launcher.cluster", cluster, "one of " + ", ".join(OPTIONS), meant)
    whose = [name for name, cls in OPTIONS.items() if {key.name for key in dataclasses.fields(cls)} <= given.keys()]
    if whose and cluster not in whose:
        valid = f"{whose[0]} with hydra/launcher={whose[0]}; to choose the other one, hydra/launcher={cluster}"
        raise bad_value("hydra.launcher.cluster", cluster, valid)
    return OPTIONS[cluster].parse(given)
