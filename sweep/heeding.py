"""What a launcher does when another shell asks it to: cancel runs, or take them up again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweep import plan, tasks
from sweep import run as names
from sweep.ending import say
from sweep.requests import CANCEL, Inbox, Request
from sweep.run import Run, UsageError, runs_of
from sweep.states import cancel_unwatched, leave_out, take_in

if TYPE_CHECKING:
    from sweep.drive import Drive


class Heeding:
    """Looks for requests and has a Drive heed them; may be called at any rate."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self.inbox = Inbox(drive.directory)

    def __call__(self) -> None:
        for request in self.inbox.new():
            if isinstance(request, str):
                say(self.drive.console, request, "yellow")
            elif request.kind == CANCEL:
                self._cancel(request)
            else:
                self._take_up(request)

    def _asked(self, request: Request) -> list[Run]:
        """The runs of this sweep that a request is about; what it names besides is nobody's."""
        wanted = None if request.runs is None else set(request.runs)
        return [run for run in runs_of(self.drive.directory) if wanted is None or run.name in wanted]

    def _cancel(self, request: Request) -> None:
        asked = self._asked(request)
        reason = f"cancelled by {request.by}"
        watched = self.drive.active()
        theirs = {run: watched[run] for run in asked if run in watched}
        say(self.drive.console, f"asked by {request.by} to cancel {len(theirs)} runs")
        self.drive.cancel(theirs, reason)
        try:
            cancel_unwatched((run for run in asked if run not in watched), reason)
        except UsageError as error:
            say(self.drive.console, str(error), "yellow")
        if request.runs is not None:
            for run in asked:
                leave_out(run)

    def _take_up(self, request: Request) -> None:
        watched = self.drive.active()
        configs = {}
        for run in self._asked(request):
            if run in watched:
                continue
            self.drive.executor.settle(run)
            if plan.is_complete(run):
                continue
            try:
                config = plan.load_config(run)
                tasks.check(run, config)
                configs[run] = config
            except UsageError as error:
                say(self.drive.console, str(error), "yellow")
        say(self.drive.console, f"asked by {request.by} to take up {len(configs)} runs again")
        for run in configs:
            take_in(run, status=names.PENDING, reason=None)
        self.drive.add(configs)
