"""The page docs/reference/gpu.md: tables and a picture of the results."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_parts.results import ROOT, Record
from gradsweep.cli import markdown_sections

PAGE = ROOT / "docs" / "reference" / "gpu.md"
TEXT, PICTURE = "gpu.md", "gpu.png"
PART = "measured"


def write(folder: Path, summary: dict[str, Any], page: Path | None) -> None:
    """Write text and picture into a folder, and put them into the page, if there is one."""
    records = summary["results"]
    has_picture = draw(folder / PICTURE, records)
    text = format_text(summary, has_picture)
    (folder / TEXT).write_text(text + "\n")
    if page is not None:
        markdown_sections.fill(page, PART, text)
        if has_picture and folder.resolve() != page.parent.resolve():
            shutil.copy(folder / PICTURE, page.parent / PICTURE)


def format_text(summary: dict[str, Any], has_picture: bool) -> str:
    """Return the part of the page that is measured."""
    by_part: dict[str, list[Record]] = {}
    for record in summary["results"]:
        by_part.setdefault(record["part"], []).append(record)
    sections = [f"Measured on {summary['date']} by `{summary['command']}`."]
    sections += [_format_machine(by_part.get("machine", []))]
    if has_picture:
        sections.append(f"![Encode and decode in device copies]({PICTURE})")
    titles = {
        "methods": "Encode and decode at 25.6 M float32",
        "large": "Encode and decode at 124 M float32",
    }
    for part, title in titles.items():
        if rows := [one for one in by_part.get(part, []) if "encode" in one]:
            sections += [f"### {title}", _format_methods(rows)]
    titles = {
        "layers": "Exchange of ResNet-50's 161 layers, in a group of one",
        "hooks": "torch's own hooks on ResNet-50's gradient, in a group of one",
    }
    for part, title in titles.items():
        if rows := [one for one in by_part.get(part, []) if "copies" in one]:
            sections += [f"### {title}", _format_exchanges(rows)]
    for part, title in {
        "resnet9": "ResNet-9, 512 images",
        "resnet50": "ResNet-50, 256 images",
        "gpt2": "GPT-2, 16 x 1024 tokens",
    }.items():
        if rows := [one for one in by_part.get(part, []) if "step_ms" in one]:
            sections += [f"### A step of {title}", _format_steps(rows)]
    checks = [*by_part.get("bits", []), *by_part.get("tests", []), *by_part.get("shared", [])]
    if checks:
        sections += ["### Bits, tests and a shared GPU", _format_checks(checks)]
    failed = [one for one in summary["results"] if "error" in one or "missing" in one or one["case"] == "incomplete"]
    if failed:
        lines = [f"- {one['part']}: {one['case']}: {_explain(one)}" for one in failed]
        sections += ["### Left out", "\n".join(lines)]
    return "\n\n".join(sections)


def _explain(record: Record) -> str:
    if "error" in record:
        return str(record["error"]).split("\\n")[0][:200]
    return "not installed" if "missing" in record else str(record["said"])


def _format_machine(records: Iterable[Record]) -> str:
    lines = []
    for one in records:
        if one["case"] == "versions":
            shown = {key: value for key, value in one.items() if key not in ("part", "case", "at_s")}
            lines.append("- " + ", ".join(f"{key} {value}" for key, value in shown.items()))
        elif "gb_per_s" in one:
            lines.append(f"- {one['case']}: {one['us']:.1f} us, {one['gb_per_s']:.0f} GB/s read and written")
        elif "tflops" in one:
            lines.append(f"- {one['case']}: {one['tflops']:.0f} TFLOP/s")
    return "\n".join(lines)


def _format_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_methods(records: Iterable[Record]) -> str:
    heads = ["method", "units", "bits", "encode, copies", "decode, copies", "both", "asked", "launches", "waits"]
    heads += ["host, ms", "peak", "reference in torch", "kernels"]
    rows = []
    for one in records:
        parts = one["encode"], one["decode"]
        pair = ["+".join(str(each.get(key, "-")) for each in parts) for key in ("launches", "waits")]
        peak = max((each["peak"] for each in parts if each.get("peak") is not None), default=None)
        asked = "" if not one.get("asked") else f"{one['asked']}{' missed' if one['copies'] > one['asked'] else ''}"
        row = [one["case"], str(one["units"]), f"{one['bits']:.3g}", *(f"{each['copies']:.2f}" for each in parts)]
        row += [f"{one['copies']:.2f}", asked, *pair, f"{sum(each['host_ms'] for each in parts):.2f}"]
        row += ["-" if peak is None else f"{peak:.2f}", f"{one['torch']:.1f}" if "torch" in one else "-"]
        rows.append([*row, one["kernels"]])
    return _format_table(heads, rows)


def _format_exchanges(records: Iterable[Record]) -> str:
    heads = ["method", "copies", "ms", "host, ms", "launches", "waits"]
    rows = [
        [one["case"], f"{one['copies']:.2f}", f"{one['ms']:.3f}", f"{one['host_ms']:.3f}"]
        + [str(one.get(key, "-")) for key in ("launches", "waits")]
        for one in records
    ]
    return _format_table(heads, rows)


def _format_steps(records: Iterable[Record]) -> str:
    heads = ["method", "ms a step", "samples/s", "GPU busy, ms", "launches", "waits", "peak, MB", "24 epochs, s"]
    rows = []
    for one in records:
        row = [one["case"], f"{one['step_ms']:.2f}", f"{one['samples_per_s']:.0f}"]
        row += [f"{one['busy_ms']:.2f}" if "busy_ms" in one else "-"]
        row += [str(one.get(key, "-")) for key in ("launches", "waits")]
        row += [f"{one['peak_mb']:.0f}" if "peak_mb" in one else "-"]
        rows.append([*row, f"{one['all_epochs_s']:.1f}" if "all_epochs_s" in one else "-"])
    return _format_table(heads, rows)


def _format_checks(records: Iterable[Record]) -> str:
    equal = [one for one in records if one["part"] == "bits" and "equal" in one]
    lines = []
    if equal:
        good = sum(one["equal"] for one in equal)
        lines.append(f"- bits: {good} of {len(equal)} comparisons of kernels with the reference are equal to the bit")
        lines += [f"- bits: {one['case']}: {one['said']}" for one in equal if not one["equal"]]
    for one in records:
        if one["part"] != "bits" and "said" in one:
            lines.append(f"- {one['part']}: {one['case']}: {one['said']}")
    return "\n".join(lines)


def draw(path: Path, records: Iterable[Record]) -> bool:
    """Draw the copies of every method at 25.6 M elements; tell whether there is a picture."""
    rows = [one for one in records if one["part"] == "methods" and "encode" in one]
    if not rows or importlib.util.find_spec("matplotlib") is None:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows.sort(key=lambda one: -one["copies"])
    names = [one["case"] for one in rows]
    figure, axes = pyplot.subplots(figsize=(8, 0.22 * len(rows) + 1.2))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.plot([one["encode"]["copies"] for one in rows], names, "o", color="#4c72b0", fillstyle="none", label="encode")
    axes.plot([one["decode"]["copies"] for one in rows], names, "x", color="#dd8452", label="decode")
    axes.plot([one["copies"] for one in rows], names, "o", color="#222222", markersize=5, label="both")
    reference = [(one["torch"], name) for one, name in zip(rows, names, strict=True) if "torch" in one]
    if reference:
        axes.plot(*zip(*reference, strict=True), "|", color="#888888", markersize=9, label="both, reference in torch")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("device copies of the gradient (25.6 M float32)")
    axes.tick_params(axis="y", labelsize=7)
    axes.legend(fontsize=7)
    axes.margins(y=0.01)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True
