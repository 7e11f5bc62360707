"""Copies finished runs of earlier sweeps instead of computing them again (sweep.reuse).

A run is copied if it has the same signature and was trained by the same code (the user's included) with the same
packages on the same kind of machine, because its throughput will be compared with that of the new sweep's other runs.
Its attempts have recorded all that.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsweep import run_directory
from gradsweep.disk.regular_files import is_regular
from gradsweep.files import write_json
from gradsweep.run_directory import SIGNATURE_DIGITS, Run
from gradsweep.sweeps import sweep_locations
from sweep.directory import completion, result_check, run_identity
from sweep.directory.description import read_description
from sweep.provenance import user_code
from sweep.settings.resolved_point import ResolvedPoint

PROGRAMS = ("packages", "python", "mpi")
MACHINE = ("cpu", "gpus")
FILES = (
    run_directory.STEPS,
    run_directory.EPOCHS,
    run_directory.LOCAL_MODELS,
    run_directory.YARDSTICK,
    run_directory.TUNED,
    run_directory.RESULT,
)

Expected = Mapping[str, Any]
"""What the record of an attempt must say, by its keys."""


def build_expected(point: ResolvedPoint, about: Mapping[str, Any]) -> Expected:
    """Return the provenance that an attempt at this point's run would record now, as far as it is known beforehand.

    `about` is sweep.yaml's entry with packages, machine and MPI. The node of a cluster is not known beforehand:
    instead, the requests for nodes must be equal.
    """
    options = point.options
    alike = {key: about.get(key) for key in (*PROGRAMS, *(MACHINE if options.IS_LOCAL else ()))}
    own = user_code.find(point.config)
    alike[user_code.FACT] = None if own is None else own.describe()
    return alike if options.IS_LOCAL else {**alike, "launcher": options.describe_location()}


def take_finished(directory: Path, points: Mapping[Run, ResolvedPoint], version: str) -> list[Run]:
    """Copy results of equal runs from other sweeps into the sweep in `directory`; return the runs that got a result."""
    signatures = {run: run_identity.read_signature(run) for run in points if not completion.is_complete(run)}
    wanted = {str(signature): run for run, signature in signatures.items() if signature is not None}
    about = read_description(directory)
    asked = {signature: build_expected(points[run], about) for signature, run in wanted.items()}
    finished = find_finished(directory, asked, version)
    for signature, earlier in finished.items():
        _copy_result(earlier, wanted[signature])
    return [wanted[signature] for signature in finished]


def find_finished(directory: Path, wanted: Mapping[str, Expected], version: str) -> dict[str, Run]:
    """Return the finished runs that a sweep in `directory` can copy, by signature.

    They are searched in the sweeps beside it and below output/ (sweep_locations.py), the latest sweep first. `wanted`
    maps a signature to the provenance that the run's attempts must have recorded.
    """
    left = dict(wanted)
    beginnings = {signature[:SIGNATURE_DIGITS] for signature in wanted}
    found: dict[str, Run] = {}
    for sweep in sweep_locations.latest_first(sweep_locations.sweeps_below(*sweep_locations.roots_of(directory))):
        if not left:
            break
        if os.path.abspath(sweep) == os.path.abspath(directory):
            continue
        for earlier in run_directory.runs_of(sweep):
            if earlier.signature[:SIGNATURE_DIGITS] not in beginnings:  # by its name: most are none of ours
                continue
            state = earlier.state()
            signature = str(state.get("signature"))
            made_by = state["attempts"][-1].get("code_version") if state["attempts"] else None
            if signature not in left or made_by != version or not completion.is_complete(earlier):
                continue
            if _was_made_as(earlier, left[signature]) and _is_copyable(earlier) and result_check.is_whole(earlier):
                del left[signature]
                found[signature] = earlier
    return found


def _was_made_as(run: Run, expected: Expected) -> bool:
    """Tell whether all attempts that contributed to the run have the expected provenance, on all their nodes."""
    records = [node for record in run.records() for node in run_directory.nodes_of(record)]
    return bool(records) and all(record.get(key) == value for record in records for key, value in expected.items())


def _is_copyable(run: Run) -> bool:
    """Tell whether all files to copy are regular files; in a shared directory they could be links or devices."""
    paths = [path for name in FILES if os.path.lexists(path := run.path(name))]
    return all(
        map(is_regular, [*paths, *(run.attempt(number) / run_directory.PROVENANCE for number in run.contributors())])
    )


def _copy_result(earlier: Run, run: Run) -> None:
    """Copy a run's result and the provenance of its attempts, then its state.

    The state comes last, because it makes the run complete.
    """
    for name in FILES:
        if earlier.path(name).exists():
            with tempfile.NamedTemporaryFile(dir=run.directory, prefix=f".{name}.", delete=False) as temporary:
                pass
            shutil.copy2(earlier.path(name), temporary.name)
            Path(temporary.name).replace(run.path(name))
    for number in earlier.contributors():  # what it was made on is the run's own, wherever it lies
        run.attempt(number).mkdir(exist_ok=True)
        shutil.copy2(earlier.attempt(number) / run_directory.PROVENANCE, run.attempt(number) / run_directory.PROVENANCE)
    write_json(run.path(run_directory.STATE), {**earlier.state(), "reused_from": str(earlier.directory)})
