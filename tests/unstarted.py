"""`python unstarted.py`: what the commands on standard input would be told, without anything being started.

Each line is the JSON list of a command's words behind `python`, or `gradsweep` and the words behind it; the answer is a
line with its exit status and what it says on standard error. The programs themselves take them, one after the other in
this process: multirun.py checks the points, and their data where that comes along; the others read their arguments;
what only shows something is run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
SHOWING = (["compressors", "list"], ["compressors", "show"], ["trainers.topology"], ["trainers.rules"])
BUNDLED = ("digits", "synthetic")


def main() -> None:
    """Answer line by line."""
    sys.path[0] = str(ROOT)
    from hydra._internal.hydra import Hydra

    import sweep.launch.execute  # noqa: F401

    # hydra.mode, which is in no config here, is not asked for: Hydra composes a whole config to find out
    Hydra.get_mode = lambda self, config_name, overrides: None  # type: ignore[method-assign]
    gc.freeze()
    answers = sys.stdout
    for line in sys.stdin:
        print(json.dumps(told(json.loads(line))), file=answers, flush=True)


def told(words: Sequence[str]) -> tuple[int, str]:
    """The exit status of a command, and what it says on standard error."""
    said = io.StringIO()
    status: Any = 0
    with (
        mock.patch.dict(os.environ),
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        contextlib.redirect_stderr(said),
    ):
        try:
            if words[0] == "gradsweep":
                words = translate(words[1:])
            module(*words[1:]) if words[0] == "-m" else run(words, multirun)
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            status = 1
            traceback.print_exc(file=said)
    return status, said.getvalue()


def translate(words: Sequence[str]) -> list[str]:
    """The words behind `python` of a subcommand of `gradsweep`; a run keeps its name."""
    from gradsweep.cli import command_names

    found = command_names.find_program(words[0])
    return ["gradsweep", *words] if found is None else ["-m", found[0], *found[1], *words[1:]]


def run(words: Sequence[str], how: Callable[[str], object]) -> None:
    """Run a program with these words as its command line."""
    with mock.patch.object(sys, "argv", list(words)), mock.patch.object(sys, "orig_argv", [sys.executable, *words]):
        how(words[0])


def multirun(_: str) -> None:
    """Run multirun.py until all points have been checked."""
    from sweep.launch import execute as launch
    from sweep.launch import probe
    from sweep.planning import points
    from trainers.rules import machine

    def check(
        session: object,
        configs: Sequence[Mapping[str, Any]],
        overrides: Sequence[Mapping[str, str]],
        directory: Path,
        resolve: Callable[[Mapping[str, Any]], dict[str, Any]],
        *,
        fresh: bool,
        **options: Any,
    ) -> None:
        options.pop("find_lost_errors", None)  # which only prints
        found = points.check_points(configs, overrides, resolve, **options)
        if not probes:
            prepare([each.config for each in found.points if each.config.get("dataset", {}).get("name") in BUNDLED])
        raise SystemExit(0)

    probes = any(word.startswith("--probe=") for word in sys.argv)
    with (
        mock.patch.object(launch, "execute", check),
        mock.patch.object(probe, "probe_points", check),
        mock.patch.object(machine, "has_gpu_driver", lambda: "device=cuda" in sys.argv),
        mock.patch.object(machine, "torch_has_gpus", lambda: True),
    ):
        runpy.run_path(str(ROOT / "multirun.py"), run_name="__main__")


def prepare(configs: Sequence[Mapping[str, Any]]) -> None:
    """Prepare the data of runs, and hold it against their options, as the launcher has a process do."""
    from trainers.data.__main__ import prepare_runs

    prepare_runs(configs)


def module(name: str, *words: str) -> None:
    """Run what `python -m` names until its arguments are read; to its end where it only shows something."""
    shows = any([name, *words][: len(each)] == each for each in SHOWING) and "--into" not in words
    probes = (name, *words[:1]) == ("sweep", "probe")
    with contextlib.nullcontext() if shows else executed_here() if probes else ended_when_read():
        run([name, *words], lambda name: runpy.run_module(name, run_name="__main__"))


@contextlib.contextmanager
def executed_here() -> Iterator[None]:
    """A program that becomes multirun.py does so in this process."""

    def execute(_: str, command: Sequence[str]) -> None:
        run(command[1:], multirun)

    with mock.patch.object(os, "execv", execute):
        yield


@contextlib.contextmanager
def ended_when_read() -> Iterator[None]:
    """Programs end when they have read their arguments."""

    def ending(parse: Callable[..., object]) -> Callable[..., None]:
        def parse_and_end(*arguments: Any) -> None:
            parse(*arguments)
            raise SystemExit(0)

        return parse_and_end

    with contextlib.ExitStack() as stack:
        for name in ("parse_args", "parse_intermixed_args"):
            parse = getattr(argparse.ArgumentParser, name)
            stack.enter_context(mock.patch.object(argparse.ArgumentParser, name, ending(parse)))
        yield


if __name__ == "__main__":
    main()
