"""The command line and the environment of a user's program: the config of its run, and its ranks."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradsweep import files
from gradsweep.options import config_keys
from gradsweep.run_directory import ATTEMPT_VARIABLE, RUN_VARIABLE, SCRIPT_CONFIG
from gradsweep.script.ranks import find_master
from gradsweep.targets import USER_CODE
from trainers.config.run_config import OTHER_SECTIONS
from trainers.rules.scripts import check_command, find_program

PREFIX = "GRADSWEEP_"
_TAKEN = ("gpus", "trainer.command", "trainer.directory", "compressor.name", "trainer.name")


def build_command(command: Sequence[str], place: str) -> list[str]:
    """Return the command with the program's path, and with the copies of the user's files in the snapshot.

    Args:
        place: the directory in which the command is started.

    Raises:
        UsageError: the program or the directory does not exist.
    """
    copies = [Path(part) for part in os.environ.get(USER_CODE, "").split(os.pathsep) if part]
    program = _find_copy(command[0], copies) if "/" in command[0] else command[0]
    check_command([program], place)
    return [find_program(program, place) or program, *(_find_copy(word, copies) for word in command[1:])]


def _find_copy(word: str, copies: Sequence[Path]) -> str:
    if os.path.isabs(word) or word.startswith("-"):
        return word
    return next((str(copy / word) for copy in copies if (copy / word).is_file()), word)


def build_environment(
    config: Mapping[str, Any], directory: Path, attempt: Path, variables: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the user's program; on rank 0 also write its config, as JSON, into `attempt`.

    Raises:
        TimeoutError: rank 0 has not told its address.
        OSError: a file cannot be written.
    """
    options = {key: value for key, value in config.items() if key not in OTHER_SECTIONS}
    if variables["RANK"] == "0":
        files.write_json(attempt / SCRIPT_CONFIG, options, durable=False)
    environment = {**os.environ, **name_options(options), **variables}
    environment |= find_master(attempt, variables)  # after the config: the other ranks wait for it
    environment |= {
        RUN_VARIABLE: str(directory.absolute()),
        ATTEMPT_VARIABLE: str(attempt),
        "GRADSWEEP_CONFIG": str(attempt / SCRIPT_CONFIG),
    }
    environment.pop("PYTHONSAFEPATH", None)  # a script may import what lies beside it
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment


def name_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options of a config as environment variables: `ddp.hook` is GRADSWEEP_DDP_HOOK.

    Numbers and texts stand as they are, true and false in small letters, null as an empty text, others as JSON.
    """
    found = {}
    for key, value in config_keys.flatten(options).items():
        if key not in _TAKEN:
            found[PREFIX + re.sub(r"\W", "_", key).upper()] = _format(value)
    return found


def _format(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)
