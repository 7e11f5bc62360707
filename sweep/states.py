"""state.json: how runs stand. Written by whoever drives a run: the launcher, or the run's job in an allocation."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from sweep import jobs
from sweep import run as names
from sweep.failures import LOST
from sweep.processes import kill_processes_of
from sweep.run import Run


def write_state(run: Run, **changes: Any) -> None:
    """Change fields of state.json. Only the launcher that holds the sweep's lock may do so."""
    state = {"format": names.FORMAT, **run.state(), **changes, "updated": names.now()}
    names.write_json(run.path(names.STATE), state)


def finish_attempt(run: Run, status: str, reason: str | None, exit_code: int | None, cause: str | None = None) -> None:
    """Write how the latest attempt of a run has ended, of which nothing runs any more."""
    names.remove_partial(run.directory)  # of a rank that was killed
    attempts = run.state()["attempts"] or [{"number": max([1, *run.attempt_numbers()])}]
    for path in run.attempt(attempts[-1].get("number", 1)).glob("stacks-*.txt"):
        with suppress(OSError):
            if path.stat().st_size == 0:  # of a rank that was killed: nobody has asked it where it was
                path.unlink()
    ended = {"status": status, "reason": reason, "cause": cause, "exit_code": exit_code, "ended": names.now()}
    attempts[-1] |= ended
    write_state(run, status=status, reason=reason, attempts=attempts)


def finish_by_result(run: Run) -> bool:
    """Write how a run has ended that has left a result, of which nothing runs any more; returns whether it has one."""
    from sweep.wholeness import judge  # which reads what plan.py lays out, as this module writes it

    ended = judge(run)
    if ended is not None:
        status, reason, cause = ended
        finish_attempt(run, status, reason, None, cause)
    return ended is not None


def settle_abandoned(run: Run) -> None:
    """Bring the state of a run that no launcher watches in line with what it has left: its result counts.

    What is left running of its attempts is ended, also of one whose launcher died before it wrote of it.
    """
    state = run.state()
    status = state["status"]
    if status not in names.COMPLETE:
        ended = {each.get("number") for each in state["attempts"] if each.get("ended")}  # written when all was gone
        for number in run.attempt_numbers():
            if number not in ended:
                kill_processes_of(run.attempt(number).absolute())
                names.remove_partial(run.attempt(number))
        names.remove_partial(run.directory)
    if status not in names.COMPLETE and finish_by_result(run):
        return
    if status == names.RUNNING:
        numbers = run.attempt_numbers()
        stopped = names.read_json(run.attempt(numbers[-1]) / names.STOPPED) if numbers else None
        if stopped is not None:
            finish_attempt(run, names.PREEMPTED, stopped.get("reason"), None)
        else:
            finish_attempt(run, names.FAILED, "the launcher was killed", None, LOST)


def cancel_unwatched(runs: Iterable[Run], reason: str) -> None:
    """End runs that no launcher works on, though they wait for their turn or say that they are running.

    Raises:
        UsageError: a scheduler that has some of them does not answer; nothing has been changed.
    """
    ended = (names.PREEMPTED, names.CANCELLED)
    wanted = (names.PENDING, names.RUNNING, *ended)
    left = {run: status for run in runs if (status := run.status()) in wanted}
    given = jobs.found(left)
    # a run whose job the scheduler has ended may wait for its turn again
    queued = jobs.known(given[run] for run in given if left[run] in ended)
    left = {run: status for run, status in left.items() if status not in ended or given.get(run) in queued}
    jobs.cancel({run: job for run, job in given.items() if run in left}, reason)
    for run, before in left.items():
        settle_abandoned(run)
        if run.status() in (names.FAILED, names.CANCELLED) and run.state()["attempts"]:
            finish_attempt(run, names.CANCELLED, reason, None)
        elif run.status() == names.PENDING or before in ended:
            write_state(run, status=names.CANCELLED, reason=reason)


def leave_out(run: Run) -> None:
    """Note that a cancelled run is not wanted: `python -m sweep resume` leaves it alone unless it is named."""
    if run.status() == names.CANCELLED:
        write_state(run, left_out=True)


def take_in(run: Run, **changes: Any) -> None:
    """Change fields of state.json; the run is wanted (again)."""
    if changes or run.state().get("left_out"):
        write_state(run, **changes, left_out=False)
