"""One run: its status and attempts, its config, its result, its files, and where it failed the end of its logs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence

from gradsweep import files, run_directory
from gradsweep.run_directory import Run
from gradsweep.text import align, harmless, one_line
from reports.commands import run_text
from sweep.status import find
from sweep.status.overview import Overview

LOG_LINES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    find.add_words(parser, "the run")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    directory, one = find.choose_run(options.words)
    overview = Overview(directory)
    overview.refresh()
    view = overview.views[one.name]
    disturbance = run_text.explain_disturbance(one)
    if options.json:
        found: dict[str, object] = {
            "directory": str(one.directory),
            "status": view.status,
            "disturbance": disturbance.times,
            "training_disturbance": disturbance.training,
            "config": run_text.read_config(one),
        }
        found |= {"state": one.state(), "result": one.result(), "files": dict(run_text.list_files(one.directory))}
        print(json.dumps(found, indent=1, default=str))
        return 0
    print(f"{one_line(one.name)}: {view.status}")
    if view.reason:
        print(f"  {one_line(view.reason)}")
    for line in disturbance.lines:
        print(f"  {one_line(line)}")
    for damaged in view.damaged:
        print(f"  {one_line(damaged)}")
    config, result = run_text.read_config(one), run_text.flatten(one.result() or {})
    result = {key: value for key, value in result.items() if key not in ("format", "status", "reason")}
    for title, lines in (
        ("directory", [one_line(os.path.relpath(one.directory))]),
        ("attempts", list(_format_attempts(one))),
        ("config", _format_pairs(config, [""] * len(config))),
        ("result", _format_pairs(result, [run_text.explain_figure(one, config, key) for key in result])),
        (
            "files",
            align(
                [(run_text.format_size(count), one_line(name)) for name, count in run_text.list_files(one.directory)],
                (0,),
            ),
        ),
    ):
        if lines:
            print("\n".join([f"\n{title}", *(f"  {line}" for line in lines)]))
    if view.status not in run_directory.FINE:
        _print_log(one)
    return 0


def _format_pairs(found: dict[str, object], remarks: Sequence[str]) -> list[str]:
    pairs = zip(found.items(), remarks, strict=True)
    texts = [
        (one_line(str(key)), f"{run_text.format_value(value)} {remark}".rstrip()) for (key, value), remark in pairs
    ]
    return align(texts) if texts else []


def _format_attempts(one: Run) -> Iterator[str]:
    for attempt in one.state()["attempts"]:
        words = [attempt.get("number"), attempt.get("status"), attempt.get("started"), "to", attempt.get("ended")]
        words += ["on", attempt.get("host")] if attempt.get("host") else []
        words += [f"({attempt['reason']})"] if attempt.get("reason") else []
        yield " ".join(one_line("?" if word is None else str(word)) for word in words)


def _print_log(one: Run) -> None:
    """Print the end of the latest attempt's standard error, or of its standard output if that is empty."""
    for number in one.attempt_numbers()[-1:]:
        for name in (run_directory.STDERR, run_directory.STDOUT):
            path = one.attempt(number) / name
            if lines := files.tail(path, LOG_LINES):
                print(f"\nend of {path.parent.name}/{path.name}")
                print("\n".join(f"  {harmless(line)}" for line in lines))
                return
