"""The state of one command, created when the command begins, and passed to all its steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gradsweep.sweeps.sweep_locations import last_sweep, root_of
from sweep.console.flags import Flags
from sweep.provenance import file_owners

if TYPE_CHECKING:
    from gradsweep.run_directory import Run
    from sweep.console.console import Verbosity
    from sweep.executors.packed.fork_server import ForkServers
    from sweep.launch.sweep_events import SweepEvents
    from sweep.planning.invalid_points import TakenOut
    from sweep.settings.sweep import SweepSettings


class Session:
    """The state of one command: its flags, its sweep, and what it has done so far.

    Attributes:
        directory: the sweep's directory, once the command has opened it.
        new_directory: the generated name of a new sweep's directory; None if the user has given the name.
        is_growing: a search's sweeper delivers the points in batches, so only this command can complete the sweep.
        typed: the overrides of all points so far.
        left_out: the points of the batches so far that were left out.
        lost_errors: the compressors so far that lose their errors.
        runs: the requested runs, once the command has begun to compute them.
        is_racing: a race is running.
        is_stopped: the whole sweep was asked to end, or too many of its runs have failed: nothing more begins.
        failed_races: the number of races without a result.
        events: writes the sweep's first and last event, once the command computes something.
        fork_servers: the fork servers of a packed sweep, which load torch before its runs are submitted.
    """

    def __init__(self, flags: Flags | None = None) -> None:
        self.flags = flags or Flags()
        self.directory: Path | None = None
        self.new_directory: str | None = None
        self.is_growing = False
        self.typed: list[Mapping[str, str]] = []
        self.left_out: list[TakenOut] = []
        self.lost_errors: list[str] = []
        self.runs: list[Run] = []
        self.is_racing = False
        self.is_stopped = False
        self.failed_races = 0
        self.events: SweepEvents | None = None
        self.fork_servers: ForkServers | None = None
        if self.flags.trust:
            file_owners.trust_everybody()

    def choose_directory(self, resume: str | None, fresh: str, name: str | None) -> str:
        """Return the directory of the sweep to resume, or a new one; this is the resolver of hydra.sweep.dir.

        `fresh` is named by the time. `resume=last` is the sweep last started or resumed below the same root as `fresh`.
        """
        root = root_of(Path(fresh))
        if resume == "last":
            return str(last_sweep(root) or root / "last")
        if resume is not None:
            return resume
        self.new_directory = "-".join([fresh, *filter(None, [name, "probe" if self.flags.probe_s is not None else ""])])
        return self.new_directory

    def choose_verbosity(self, settings: SweepSettings | None = None) -> Verbosity:
        """Return the verbosity that --quiet and --json demand, or the settings sweep.quiet and sweep.json."""
        from sweep.console.console import Verbosity  # with rich, which --help does without

        quiet, json = self.flags.quiet, self.flags.json
        if settings is None:
            return Verbosity(quiet, json)
        return Verbosity(quiet or settings.quiet, json or settings.json)

    def open_events(self, directory: Path, settings: SweepSettings) -> SweepEvents:
        """Return the writer of the sweep's events; the first call creates it, which writes the first event."""
        from sweep.launch.sweep_events import SweepEvents

        if self.events is None:
            self.events = SweepEvents(directory, settings, self.choose_verbosity(settings))
        return self.events

    def build_resume_command(self, directory: Path) -> str:
        """Return the command line that computes the missing runs; for a search it is this command's own."""
        from sweep.console.messages import build_command, build_rerun_command

        return build_rerun_command(directory) if self.is_growing else build_command("resume", directory)
