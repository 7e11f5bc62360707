"""sweep.on_end: the program, with its arguments, that is started without a shell when a sweep has ended."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from gradsweep.errors import bad_value
from sweep.system.signals import is_hurried

LIMIT_S = 60.0
"""Seconds after which a program that still runs is killed, so that the sweep can end."""
POLL_S = 0.02

PLACEHOLDERS = ("directory", "status", "done", "failed", "exit_status")
"""Names that are replaced, in braces, in an argument; also variables GRADSWEEP_... of the environment."""


def check_words(key: str, words: Sequence[object]) -> None:
    """Raise UsageError if an element is not a text, such as a list: Hydra does not check the elements' types."""
    for word in words:
        if not isinstance(word, str) or "\0" in word:
            raise bad_value(key, repr(list(words)), "a list of words without NUL")


def check_command(command: Sequence[str]) -> None:
    """Raise UsageError if the program does not exist."""
    if not command:
        return
    check_words("sweep.on_end", command)
    shown = f"[{','.join(command)}]"
    if shutil.which(command[0]) is None and command[0] in ("True", "False"):  # in a list Hydra takes it for no text
        word = command[0].lower()
        raise bad_value("sweep.on_end", shown, f"a program; one that is called {word} stands in quotes: ['{word}']")
    if shutil.which(command[0]) is None:
        raise bad_value("sweep.on_end", shown, "a program that exists, by its path or on PATH, and its arguments")


def run_on_end(command: Sequence[str], facts: Mapping[str, object]) -> str | None:
    """Start the program with `facts` in place of the placeholders, and wait for it; return an error line or None."""
    texts = {name: str(facts[name]) for name in PLACEHOLDERS}
    pattern = "|".join(PLACEHOLDERS)
    words = [re.sub(rf"\{{({pattern})\}}", lambda match: texts[match[1]], word) for word in command]
    variables = {f"GRADSWEEP_{name.upper()}": text for name, text in texts.items() if name != "directory"}
    environment = {**os.environ, **variables, "GRADSWEEP_SWEEP": texts["directory"]}
    about = f"sweep.on_end: {command[0]}"
    try:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=2, env=environment, start_new_session=True, close_fds=True
        )
    except (OSError, ValueError) as error:
        return f"{about}: could not be started: {error}"
    deadline = time.monotonic() + LIMIT_S
    try:
        while (code := process.poll()) is None:
            if time.monotonic() >= deadline or is_hurried():
                return f"{about}: was ended, it took longer than {LIMIT_S:g} s or somebody was in a hurry"
            time.sleep(POLL_S)
    finally:
        if process.returncode is None:  # the time is over, or we have been interrupted
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"{about}: exited with {code}" if code else None
