"""The command that a user types: one run, or with -m a sweep.

    python multirun.py compressor=svd workers=2
    python multirun.py -m compressor=qsgd,svd,none workers=2,4,8
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.gradsweep import run_points
from sweep import compose
from sweep.run import UsageError
from trainers.config import GROUPS, RunConfig


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def compose_and_run(config: DictConfig) -> None:
    """One run: what Hydra calls without -m. With -m it calls the launcher of hydra_plugins/gradsweep."""
    settings = HydraConfig.get()
    values = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    overrides = dict(override.split("=", 1) for override in settings.overrides.task)
    try:
        run_points([values], [overrides], Path(settings.runtime.output_dir), settings.launcher.cluster)
    except UsageError as error:
        raise SystemExit(bad_usage(str(error))) from None  # an Exception would be announced by Hydra as well


def bad_usage(line: str) -> int:
    print(line, file=sys.stderr)
    return 2


def main() -> int:
    """Exit status 0: all runs done; 1: some failed; 2: bad input, nothing was started; 128 + n: signal n."""
    compose.register(RunConfig, GROUPS)
    compose.register_resolvers()
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of being printed in several lines
    try:
        compose_and_run()
    except Exception as error:
        line = compose.explain(error)
        if line is None or wants_traceback:
            traceback.print_exc()
        return bad_usage(line) if line is not None else 1
    launch = sys.modules.get("sweep.launch")
    return 0 if launch is None else launch.conclude()


if __name__ == "__main__":
    sys.exit(main())
