"""Check and complete the config of a run with trainer=script, which a program of the user trains.

Such a config keeps the options that hold for any program, and has groups of the program's own. Options of our training
have no effect: they are left out of the run's config, and a user who types one is refused.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep.errors import UsageError, bad_value
from gradsweep.options.config_keys import look_up
from gradsweep.options.hints import did_you_mean
from trainers.config.run_config import OTHER_SECTIONS, OURS, parse
from trainers.options.networks import Emulated, NoNetwork
from trainers.options.trainers import COMMAND
from trainers.rules import machine

KEPT = (
    *("workers", "threads_per_worker", "epochs", "max_steps", "seed", "warmup_steps", "device"),
    *("gpus", "gpus_per_node", "network", "trainer"),
)
"""Options of a run that hold for any program."""

_NO_RACE = "left out with trainer=script, whose runs do not race"
_IDLE = {"sweep.remeasure": _NO_RACE, "race.seconds": _NO_RACE, "race.precision": _NO_RACE, "race.tune": _NO_RACE}


def resolve_script(config: Mapping[str, Any]) -> dict[str, Any]:
    """Check the composed config of a run with trainer=script, and return the content of its config.yaml.

    Raises:
        UsageError: a value out of range, a command that cannot be started, or options that do not go with a script.
    """
    own = {key: value for key, value in config.items() if key not in OURS}
    for key, value in own.items():
        if meant := did_you_mean(key, OURS):
            raise UsageError(f"{key}={value}: unknown key; {meant}valid is another name for a group of the script")
        if not isinstance(value, Mapping):
            raise UsageError(f"{key}={value}: unknown key; valid is a key in a group of the script, as script.{key}")
    run = parse({key: value for key, value in config.items() if key in OURS})
    if not isinstance(run.network, (NoNetwork, Emulated)):
        raise bad_value("network", config["network"]["name"], "none or an emulated one with trainer=script")
    if look_up(config, "sweep.pack"):
        raise UsageError("sweep.pack: valid is false with trainer=script, whose ranks start a program of their own")
    if look_up(config, "race.mode") == "only":
        raise bad_value("race", "only", "auto or off with trainer=script, whose runs do not race")
    machine.check_device(run)
    directory = os.path.abspath(run.trainer.directory or os.curdir)
    check_command(run.trainer.command, directory)
    kept = {key: value for key, value in config.items() if key in KEPT or key in own or key in OTHER_SECTIONS}
    trainer = {"name": "script", "command": list(run.trainer.command), "directory": directory}
    return {**kept, "compressor": {"name": "none"}, "trainer": trainer}  # reports sort runs by it


def check_command(command: Sequence[str], directory: str) -> None:
    """Check that the directory, the program and its script exist.

    Raises:
        UsageError: one of them does not, or the command is empty.
    """
    shown = f"[{','.join(command)}]"
    if not os.path.isdir(directory):
        raise bad_value("trainer.directory", directory, "a directory that exists")
    if not command:
        raise bad_value("trainer.command", shown, COMMAND)
    if find_program(command[0], directory) is None:
        where = f"in {directory}" if "/" in command[0] else f"beside {sys.executable} nor on PATH"
        raise bad_value("trainer.command", shown, f"{COMMAND}; {command[0]} is not found {where}")
    script = next((word for word in command[1:] if word.endswith(".py")), None)
    if script is not None and not os.path.isfile(os.path.join(directory, script)):
        there = sorted(path.name for path in Path(directory).glob("*.py"))
        raise bad_value("trainer.command", shown, f"a script that exists in {directory}", did_you_mean(script, there))


def find_program(word: str, directory: str) -> str | None:
    """Return the path of a program, looked for beside this Python and then on PATH; None without one.

    Args:
        directory: in which a word with a slash is a path.
    """
    if "/" in word:
        return shutil.which(os.path.join(directory, word))
    return shutil.which(word, path=str(Path(sys.executable).parent)) or shutil.which(word)


def explain_idle(key: str) -> str | None:
    """Return what is valid in place of a typed key that has no effect on a script; None if it has one."""
    section, _, option = key.partition(".")
    if key in _IDLE:
        return _IDLE[key]
    if section in KEPT or section not in OURS or section in OTHER_SECTIONS:
        return None
    return f"left out with trainer=script, or a key of the script's own, such as script.{option or section}"
