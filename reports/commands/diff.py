"""Two runs side by side: the keys in which their configs differ, and their results."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradsweep.run_directory import Run
from gradsweep.text import align, one_line
from reports.commands import run_text
from sweep.status import find

NOTHING = "-"  # for a key that one of them lacks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="RUN", help="a run's directory, its name in the last sweep, or SWEEP/NAME")
    parser.add_argument("second", metavar="RUN", help="likewise")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    pair = [find.choose_run([word])[1] for word in (options.first, options.second)]
    configs = [run_text.read_config(one) for one in pair]
    results = [_read_result(one) for one in pair]
    differing = {key: values for key, values in _pair_values(configs).items() if values[0] != values[1]}
    if options.json:
        runs = [str(one.directory) for one in pair]
        found = {"runs": runs, "config": differing, "result": _pair_values(results)}
        print(json.dumps(found, indent=1, default=str))
        return 0
    for name, one in zip("AB", pair, strict=True):
        print(f"{name}: {one_line(str(one.directory))}")
    if differing:
        rows = [(one_line(key), *map(run_text.format_value, values)) for key, values in differing.items()]
        print("\n".join(["", *align([("config", "A", "B"), *rows])]))
    else:
        print("\nTheir configs are equal.")
    rows = []
    for key, values in _pair_values(results).items():
        few = [run_text.explain_figure(one, config, key) for one, config in zip(pair, configs, strict=True)]
        cells = [f"{run_text.format_value(value)} {remark}".rstrip() for value, remark in zip(values, few, strict=True)]
        rows.append((one_line(key), *cells, "" if any(few) else _format_ratio(*values)))
    print("\n".join(["", *align([("result", "A", "B", "B/A"), *rows], (1, 2, 3))]))
    return 0


def _read_result(one: Run) -> dict[str, Any]:
    found = run_text.flatten(one.result() or {})
    return {"status": one.status()} | {
        key: value for key, value in found.items() if key not in ("format", "status") and value is not None
    }


def _pair_values(found: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {key: [each.get(key, NOTHING) for each in found] for key in dict.fromkeys([*found[0], *found[1]])}


def _format_ratio(first: Any, second: Any) -> str:
    numbers = [value for value in (first, second) if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return f"{second / first:.3f}" if len(numbers) == 2 and first else ""
