"""state.json, the status of a run. The sweep's launcher writes it, or the run's SLURM job."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gradsweep import files, run_directory
from gradsweep.failure_causes import LOST
from gradsweep.run_directory import Run
from sweep.directory.result_check import judge_result
from sweep.system.processes import kill_processes


def write_state(run: Run, **changes: Any) -> None:
    """Change fields of state.json. Only the launcher that holds the sweep's lock may call this."""
    state = {"format": run_directory.FORMAT, **run.state(), **changes, "updated": files.now()}
    files.write_json(run.path(run_directory.STATE), state)


def finish_attempt(run: Run, status: str, reason: str | None, exit_code: int | None, cause: str | None = None) -> None:
    """Write the end of a run's latest attempt into state.json; all its processes must have ended."""
    files.remove_partial(run.directory)  # of a rank that was killed
    attempts = run.state()["attempts"] or [{"number": max([1, *run.attempt_numbers()])}]
    for path in run.attempt(attempts[-1].get("number", 1)).glob("stacks-*.txt"):
        with suppress(OSError):
            if path.stat().st_size == 0:  # of a rank that was killed before it could write
                path.unlink()
    ended = {"status": status, "reason": reason, "cause": cause, "exit_code": exit_code, "ended": files.now()}
    attempts[-1] |= ended
    write_state(run, status=status, reason=reason, attempts=attempts)


def finish_by_files(run: Run, *, is_running: bool) -> bool:
    """Write the final status of a run without processes, by its result.json, or by the state that its ranks saved.

    Return whether there is a result or a saved state. A saved state counts only if `is_running`: state.json has no end
    of the latest attempt yet.
    """
    ended = judge_result(run)
    if ended is not None:
        status, reason, cause = ended
        finish_attempt(run, status, reason, None, cause)
        return True
    stopped = read_stopped(run) if is_running else None
    if stopped is not None:
        finish_attempt(run, run_directory.PREEMPTED, stopped.get("reason"), None)
    return stopped is not None


def read_stopped(run: Run) -> dict[str, Any] | None:
    """Return the record that the ranks of the latest attempt wrote when they saved and stopped; None without."""
    attempts = run.state()["attempts"]
    number = attempts[-1].get("number") if attempts else max(run.attempt_numbers(), default=None)
    return None if number is None else files.read_json(run.attempt(number) / run_directory.STOPPED)


def reconcile_abandoned(run: Run) -> None:
    """Correct the state of a run that no launcher watches: it is done if it has a result, else preempted or failed.

    Remaining processes of its attempts are killed, even if the launcher died before it recorded the attempt.
    """
    state = run.state()
    if state["status"] in run_directory.COMPLETE:
        return
    is_running = state["status"] == run_directory.RUNNING
    ended = {each.get("number") for each in state["attempts"] if each.get("ended")}  # written when all was gone
    for number in run.attempt_numbers():
        if number not in ended:
            kill_processes(run.attempt(number).absolute())
            files.remove_partial(run.attempt(number))
    files.remove_partial(run.directory)
    if not finish_by_files(run, is_running=is_running) and is_running:
        finish_attempt(run, run_directory.FAILED, "the launcher was killed", None, LOST)


def exclude(run: Run) -> None:
    """Record that a cancelled run is unwanted: `python -m sweep resume` skips it unless it is named."""
    if run.status() == run_directory.CANCELLED:
        write_state(run, left_out=True)


def include(run: Run, **changes: Any) -> None:
    """Change fields of state.json, and record that the run is to be trained: undo `exclude`."""
    state = run.state()
    if state.get("reason") == run_directory.ONLY_RACED:
        changes = {"reason": None, **changes}
    if changes or state.get("left_out"):
        write_state(run, **changes, left_out=False)
