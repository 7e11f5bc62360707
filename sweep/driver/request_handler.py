"""Carries out requests of other shells to the launcher of a sweep: to cancel runs, or to resume them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from gradsweep.disk import disk_errors
from gradsweep.errors import UsageError
from gradsweep.run_directory import Run, runs_of
from sweep.console.messages import print_line
from sweep.directory import completion, restore_runs
from sweep.directory.requests import CANCEL, Inbox, Request, remove_request
from sweep.directory.run_state import exclude, include
from sweep.driver.cancel_unwatched import cancel_unwatched
from sweep.driver.drive import Drive
from sweep.executors.base import Job
from sweep.planning.load_point import load_point
from sweep.provenance.file_owners import refuse_strangers


class RequestHandler:
    """Reads requests and carries them out; an instance may be called often."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.inbox = Inbox(drive.directory)
        self._ending: list[tuple[Path, Request, dict[Run, Job]]] = []  # what was asked for and is not through

    def __call__(self) -> None:
        for request in self.inbox.read_new():
            if isinstance(request, str):
                print_line(self.drive.console, request, "yellow")
            elif request.kind == CANCEL:
                self._cancel(request)
            else:
                with self._report_errors():
                    self._resume(request)
        for each in list(self._ending):
            path, request, theirs = each
            if all(job.ended for job in theirs.values()):
                self._ending.remove(each)
                with self._report_errors():
                    self._conclude(request, theirs)
                remove_request(path)

    @contextlib.contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Print an error of the disk, or why a request is refused, instead of raising it: the sweep continues."""
        try:
            yield
        except UsageError as error:
            print_line(self.drive.console, str(error), "yellow")
        except OSError as error:
            print_line(self.drive.console, disk_errors.describe(error) or str(error), "yellow")

    def _select_runs(self, request: Request) -> list[Run]:
        """Return those runs of this sweep that a request names; other names are ignored."""
        wanted = None if request.runs is None else set(request.runs)
        return [run for run in runs_of(self.drive.directory) if wanted is None or run.name in wanted]

    def _cancel(self, request: Request) -> None:
        """Ask the runs' jobs to end while others continue; `_conclude` follows when they have ended."""
        watched = self.drive.list_active()
        theirs = {run: watched[run] for run in self._select_runs(request) if run in watched}
        print_line(self.drive.console, f"asked by {request.by} to cancel {len(theirs)} runs")
        self.drive.stopped |= request.runs is None
        self.drive.ask_to_end(theirs, f"cancelled by {request.by}")
        self._ending.append((self.inbox.hold(), request, theirs))

    def _conclude(self, request: Request, theirs: Mapping[Run, Job]) -> None:
        """Finish a request to cancel once its jobs have ended: cancel runs without a job, exclude named runs."""
        asked = self._select_runs(request)
        watched = {**theirs, **self.drive.list_active()}
        with self._report_errors():
            cancel_unwatched((run for run in asked if run not in watched), f"cancelled by {request.by}")
        if request.runs is not None:
            for run in asked:
                exclude(run)

    def _resume(self, request: Request) -> None:
        watched = self.drive.list_active()
        mine = {run.name for run in watched}
        asked = request.runs
        restore_runs.lay_out_missing(
            self.drive.directory, lambda name: name not in mine and (asked is None or name in asked)
        )
        points = {}
        for run in self._select_runs(request):
            if run in watched:
                continue
            with self._report_errors():
                refuse_strangers(self.drive.directory, [run])
                self.drive.executor.reconcile(run)
                if not completion.is_complete(run):
                    points[run] = load_point(run)
        print_line(self.drive.console, f"asked by {request.by} to take up {len(points)} runs again")
        for run in points:
            include(run)
        self.drive.add(points)
