"""The state of one command: it is made if the command begins and handed down from there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gradsweep.sweep_locations import last_sweep, root_of
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
    """The words of a command, and the command's progress with its sweep.

    Attributes:
        directory: of the sweep, once the command has opened it.
        new_directory: the name that was made up for a new sweep, so that another would do as well.
        is_growing: the points come batch after batch from a sweeper: only this command knows those to come.
        typed: overrides of all points so far.
        left_out: points that were taken out of the batches so far.
        runs: all that the command was asked for and that it has begun to compute.
        is_racing: a race is under way.
        failed_races: the number of races without a result.
        events: what it reports of the sweep, once it computes something.
        fork_servers: that load torch before the runs of a packed sweep are submitted.
    """

    def __init__(self, flags: Flags | None = None) -> None:
        self.flags = flags or Flags()
        self.directory: Path | None = None
        self.new_directory: str | None = None
        self.is_growing = False
        self.typed: list[Mapping[str, str]] = []
        self.left_out: list[TakenOut] = []
        self.runs: list[Run] = []
        self.is_racing = False
        self.failed_races = 0
        self.events: SweepEvents | None = None
        self.fork_servers: ForkServers | None = None
        if self.flags.trust:
            file_owners.trust_everybody()

    def choose_directory(self, resume: str | None, fresh: str, name: str | None) -> str:
        """Return the directory to resume, or a new one named by the time; it resolves hydra.sweep.dir.

        `resume=last` is the sweep that was started or resumed last below the same root as `fresh`.
        """
        root = root_of(Path(fresh))
        if resume == "last":
            return str(last_sweep(root) or root / "last")
        if resume is not None:
            return resume
        self.new_directory = "-".join([fresh, *filter(None, [name, "probe" if self.flags.probe_s is not None else ""])])
        return self.new_directory

    def choose_verbosity(self, settings: SweepSettings | None = None) -> Verbosity:
        """Return the verbosity by --quiet and --json, or by the settings sweep.quiet and sweep.json."""
        from sweep.console.console import Verbosity  # with rich, which --help does without

        quiet, json = self.flags.quiet, self.flags.json
        if settings is None:
            return Verbosity(quiet, json)
        return Verbosity(quiet or settings.quiet, json or settings.json)

    def open_events(self, directory: Path, settings: SweepSettings) -> SweepEvents:
        """Return the events of the sweep; the first call writes that the command has begun."""
        from sweep.launch.sweep_events import SweepEvents

        if self.events is None:
            self.events = SweepEvents(directory, settings, self.choose_verbosity(settings))
        return self.events

    def build_resume_command(self, directory: Path) -> str:
        """Return the command that computes the missing runs: this command if only it knows all points."""
        from sweep.console.messages import build_command, build_rerun_command

        return build_rerun_command(directory) if self.is_growing else build_command("resume", directory)
