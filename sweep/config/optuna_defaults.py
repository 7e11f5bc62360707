"""Our defaults for searches by Optuna (hydra/sweeper=optuna), and a check of the search space.

Optuna's plugin registers its config under a name that no file in conf/ may then have. So that config is changed.
"""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from gradsweep.errors import bad_value
from sweep.settings.metrics import find_metric

GROUP, SAMPLERS = "hydra/sweeper", "hydra/sweeper/sampler"
PROVIDER = "gradsweep"
HINT = "; optuna needs `pip install 'gradsweep[optuna]'`"


def choose_direction(metric: str, goal: str | None = None) -> str:
    """Return whether sweep.metric is maximised or minimised, for the resolver of hydra.sweeper.direction."""
    return find_metric(metric, goal).goal  # what is invalid is refused with the settings


def register_defaults() -> None:
    """Register our defaults for searches with Hydra, if Optuna's sweeper is installed.

    - direction follows from sweep.metric and sweep.goal.
    - Samplers have a seed: a search that is resumed suggests the same points again, so that it reuses finished runs
      and continues.
    - Failed trials do not end a search.
    """
    OmegaConf.register_new_resolver("sweep_direction", choose_direction, replace=True)
    Plugins.instance()  # loads all plugins; none registers its defaults again later
    store = ConfigStore.instance()
    if "optuna.yaml" not in store.list(GROUP):
        return
    node = store.load(f"{GROUP}/optuna.yaml").node
    node.params = {}
    OmegaConf.set_struct(node.params, False)  # new keys need no + on the command line
    node.direction, node.max_failure_rate = "${sweep_direction:${sweep.metric},${sweep.goal}}", 1.0
    store.store(group=GROUP, name="optuna", node=node, provider=PROVIDER)
    for file in store.list(SAMPLERS):
        node = store.load(f"{SAMPLERS}/{file}").node
        if "seed" in node:
            node.seed = 0
            store.store(group=SAMPLERS, name=file.removesuffix(".yaml"), node=node, provider=PROVIDER)


def refuse_search_of_nothing(settings: Any) -> None:
    """Refuse a search by Optuna without values to choose from; `settings` is Hydra's section of a config.

    Raises:
        UsageError: neither an override nor an option of the sweeper has a range or several values.
    """
    sweeper = settings.sweeper
    if not str(sweeper._target_).endswith("OptunaSweeper"):
        return
    given = {key: str(value) for key, value in (sweeper.params or {}).items() if value is not None}
    words = [f"{key}={value}" for key, value in given.items()] + list(settings.overrides.task)
    spaces = (sweeper.get("search_space"), sweeper.get("custom_search_space"))
    if not any(spaces) and not any(
        each.is_sweep_override() for each in OverridesParser.create().parse_overrides(words)
    ):
        space = "values to choose from, such as 'optimizer.lr=interval(0.01,0.5)' or compressor=qsgd,svd"
        raise bad_value(GROUP, settings.runtime.choices.get(GROUP), f"together with {space}: all trials would be equal")
