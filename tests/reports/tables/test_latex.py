"""LaTeX takes every table; where no TeX is installed, a reader that knows the few commands of tables checks them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import reports
from reports.analysis.grid import lay_out_runs
from reports.tables import formats
from reports.tables.sweep_tables import build_tables
from tests.conftest import ROOT
from tests.reports import fabricate
from tests.reports.tables.test_formats import NASTY, table

COMMANDS = {
    *("begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule", "par", "footnotesize"),
    *("textsuperscript", "textbackslash", "textasciitilde", "textasciicircum", "textasciigrave", "textless"),
    *(
        "textgreater",
        "textbar",
        "char",
        "dots",
        "pm",
        "dagger",
        "ddagger",
        "diamond",
        "triangle",
        "approx",
        "mu",
        "geq",
    ),
    *("S", "P", "|", "smallskip", "raggedright", "resizebox", "ifdim", "width", "linewidth", "else", "fi"),
}
PAGE = "\\documentclass{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n%s\n\\end{document}\n"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tables of the gallery, of runs that did not all reach a target, and of a hostile text."""
    made = {path.stem: path.read_text() for path in (ROOT / "docs/gallery").rglob("*.tex")}
    grid = [fabricate.config(name, w, seed=s, epochs=3) for name in ("none", "qsgd") for w in (2, 4) for s in (0, 1)]
    report = reports.load(fabricate.sweep(tmp_path_factory.mktemp("latex") / "s", grid))
    tables = [
        *build_tables(lay_out_runs(report.runs), report.epochs, [0.6]),
        table(NASTY),
        table("≈ µ ≥ ² … – --- ‖ § ¶"),
    ]
    return made | {f"{place} {one.name}": formats.to_latex(one).decode() for place, one in enumerate(tables)}


def find_faults(source: str) -> list[str]:
    """Return what LaTeX would refuse."""
    body = re.sub(r"(?m)^%.*$", "", source)
    found = [f"\\{name} is unknown" for name in re.findall(r"\\([a-zA-Z]+|\|)", body) if name not in COMMANDS]
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if kind == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            found.append(f"\\end{{{name}}} ends nothing")
    found += [f"{name} does not end" for name in opened]
    plain = re.sub(r"\\[\\&%$#_{}]", "", body)
    depths = [plain[:place].count("{") - plain[:place].count("}") for place in range(0, len(plain) + 1, 50)]
    if min(depths) < 0 or plain.count("{") != plain.count("}") or plain.count("$") % 2:
        found.append("braces or dollars do not match")
    found += [f"{char!r} is special" for char in re.findall(r"[%#~^]|(?<!\\)_", plain)]
    found += [f"{char!r} is no letter of Latin" for char in sorted(set(plain)) if ord(char) > 0xFF]
    for columns, rows in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", plain, re.DOTALL):
        ended = [line for line in re.sub(r"\\\w+rule", "", rows).splitlines() if line.strip()]
        found += [f"{line.count('&') + 1} columns: {line}" for line in ended if line.count("&") != len(columns) - 1]
    return found


def test_a_strict_reader_takes_every_table(sources: dict[str, str]) -> None:
    assert len(sources) > 25
    assert not {name: faults[:3] for name, source in sources.items() if (faults := find_faults(source))}


@pytest.mark.parametrize(
    "fault", ["\\foo{}", "a_b", "50%", "{", "}", "\\begin{table}", "\\end{table}", "≈", "$", "#1", "x & y"]
)
def test_the_reader_is_strict(fault: str) -> None:
    source = formats.to_latex(table("text")).decode()
    assert not find_faults(source) and find_faults(source.replace("0.100", fault, 1))


def test_latex_compiles_every_table(sources: dict[str, str], tmp_path: Path) -> None:
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("no pdflatex; Debian has it and booktabs in texlive-latex-recommended")
    (tmp_path / "all.tex").write_text(PAGE % "\\clearpage\n".join(sources.values()))
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout, "no table is wider than the text"
