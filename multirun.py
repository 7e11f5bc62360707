"""The command that a user types: one run, or with -m a sweep; `gradsweep` runs it, too.

python multirun.py compressor=svd workers=2
python multirun.py -m compressor=qsgd,svd,none workers=2,4,8
"""

from __future__ import annotations

import os
import signal

_word = b"interrupted; nothing was started\n"
for number in (signal.SIGINT, signal.SIGTERM):  # until `main` takes over, they just end this
    signal.signal(number, lambda number, frame: (os.write(2, _word), os._exit(128 + number)))

import contextlib  # noqa: E402
import gc  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import hydra  # noqa: E402
from hydra.core.hydra_config import HydraConfig  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from gradsweep import plugins  # noqa: E402
from gradsweep.cli.command_names import adapt_commands  # noqa: E402
from gradsweep.cli.version import version  # noqa: E402
from gradsweep.errors import UsageError  # noqa: E402
from gradsweep.source_tree import CONF  # noqa: E402
from hydra_plugins.gradsweep import run_points  # noqa: E402
from sweep.config import arguments, hydra_patches, idle_options, schema  # noqa: E402
from sweep.config.arguments import refuse_misread  # noqa: E402
from sweep.config.error_messages import explain  # noqa: E402
from sweep.config.grid import refuse_duplicates  # noqa: E402
from sweep.console.flags import VERSION, take_flags  # noqa: E402
from sweep.launch.session import Session  # noqa: E402
from sweep.settings.sweep import parse_settings  # noqa: E402
from sweep.system.signals import Interrupted, raise_on_signals  # noqa: E402
from trainers.config.groups import GROUPS  # noqa: E402
from trainers.config.run_config import OURS, RunConfig  # noqa: E402

TRACEBACK = "GRADSWEEP_TRACEBACK"
"""Environment variable: 1 prints the traceback of an error in the input, as HYDRA_FULL_ERROR=1 asks for."""


class Command:
    """The words of a command with its session."""

    def __init__(self, session: Session) -> None:
        self.session, self.words = session, sys.argv[1:]

    def compose_and_run(self, config: DictConfig) -> None:
        """Run a single run: Hydra calls this function without -m, and with -m the launcher of
        hydra_plugins/gradsweep."""
        from sweep.config.composer import build_plain_config  # not for --help and the like

        settings = HydraConfig.get()

        def compose() -> list[dict[str, Any]]:
            schema.refuse_foreign_launcher(settings)
            point = build_plain_config(config, settings.launcher)
            parse_settings(point)  # an error in a value is reported first
            idle_options.refuse_unread(settings.overrides.hydra, grid=False)
            idle_options.refuse_without_grid([*settings.overrides.task, *settings.overrides.hydra])
            return [point]

        try:
            run_points(self.session, compose, [settings.overrides.task], Path(settings.runtime.output_dir))
        except Exception as error:
            raise SystemExit(self.fail(error)) from None  # an Exception would be announced by Hydra as well

    def fail(self, error: Exception) -> int:
        """Print why the command stopped, and return the exit status."""
        if (interrupted := find_interruption(error)) is not None:
            raise interrupted
        has_run = bool(self.session.runs)  # the sweeper may have failed over the results
        line = explain(error, self.words)
        if line is None or os.environ.get(TRACEBACK) == "1":
            traceback.print_exception(error)
        else:
            print(adapt_commands(line), file=sys.stderr)
        with contextlib.suppress(OSError):  # which has been printed
            self.conclude()
        return 1 if line is None or has_run else 2

    def conclude(self) -> int:
        """Report on the runs, and return the exit status."""
        if not self.session.runs:  # --help and the like load nothing for it
            return 0
        from sweep.launch.conclude import conclude

        return conclude(self.session)

    def run(self) -> int:
        """Execute the command line, and return the exit status."""
        _replace_answers(sys.argv[1:])
        os.environ[TRACEBACK] = os.environ.get("HYDRA_FULL_ERROR", "0")
        os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us, instead of being printed in several lines
        main = hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")(self.compose_and_run)
        try:
            words = arguments.open_script_groups(arguments.quote_for_hydra(sys.argv[1:]), OURS)
            self.words = arguments.put_overrides_first(words)
            refuse_duplicates(self.words)
            refuse_misread(self.words)
            sys.argv[1:] = arguments.leave_to_points(self.words, GROUPS)
            main()
            return self.conclude()
        except Exception as error:
            return self.fail(error)


def find_interruption(error: BaseException | None) -> Interrupted | None:
    """Return the signal behind an error: an interrupted library may fail while it cleans up."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error


def _replace_answers(words: Sequence[str]) -> None:
    """Replace Hydra's own answers, help and completions, if the command line asks for one of them."""
    if not {"--help", "-h"}.isdisjoint(words):
        from sweep.config.help import help_page

        hydra_patches.replace_help(help_page.print_help)
    if not {"--shell-completion", "-sc"}.isdisjoint(words):
        from sweep.config.help import shell_completion

        hydra_patches.replace_completion(shell_completion.complete)


def main() -> int:
    """Return the exit status 0: all runs done; 1: some failed; 2: invalid input, nothing was started; 128 + n:
    signal n."""
    global _word
    session = Session(take_flags(sys.argv))
    try:
        return run(session)
    except Interrupted as interrupted:
        if session.directory is not None:
            from sweep.launch.conclude import report_interrupted

            report_interrupted(interrupted, session)
        raise
    finally:
        _word = b""  # there is nothing more to say


def run(session: Session) -> int:
    """Execute the command line, and return the exit status."""
    gc.set_threshold(50_000, 20, 50)  # configs are many small objects that stay: a tenth of the time of a large sweep
    if VERSION in sys.argv[1:]:
        print(version())
        return 0
    command = Command(session)
    try:
        register_types(sys.argv[1:])
    except UsageError as error:
        return command.fail(error)
    schema.register_resolvers(session.choose_directory)
    return command.run()


def register_types(words: Sequence[str]) -> None:
    """Load the plug-ins that a command line names, and register the types of the config with Hydra.

    Raises:
        UsageError: a plug-in cannot be loaded.
    """
    completed = os.environ.get("COMP_LINE", "").split() if {"--shell-completion", "-sc"} & set(words) else []
    plugins.load(arguments.find_plugins([*words, *completed]))
    schema.register(RunConfig, GROUPS, arguments.find_config_folders(words))
    if not completed:
        for line in plugins.list_broken():
            print(f"left out: {line}", file=sys.stderr)


def run_command_line() -> int:
    """Execute the command line of this process, and return its exit status.

    Raises:
        Interrupted: a signal has ended the command.
    """
    with raise_on_signals():
        return main()


if __name__ == "__main__":
    sys.exit(run_command_line())
