"""What a table says is the same in every format, and text stays text in all of them."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import reports
from reports.analysis.grid import lay_out_runs
from reports.analysis.table import ReportTable, TableCell, TableColumn
from reports.tables import formats
from reports.tables.sweep_tables import build_tables
from tests.reports import fabricate

NASTY = '50% of $x_1 & {a}\\b ~^ #1 <b> "q" | -- [c] ± * † naïve'


def table(text: str = NASTY, value: float | None = 0.1) -> ReportTable:
    return ReportTable(
        "a.table name",
        f"Title {text}",
        (TableColumn("name"), TableColumn("speed", "it/s", "it/s")),
        1,
        (
            (TableCell(text, text), TableCell(0.1, "0.100†", said=("†",))),
            (TableCell("x", "x"), TableCell("failed", "failed", True)),
        ),
        caption=f"caption {text}",
        records=(
            {"name": text, "mean": value, "n": 3, "good": True, "other": None},
            {"name": "x", "mean": None, "n": 0, "good": False, "other": None},
        ),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[ReportTable]:
    grid = [fabricate.config(c, w, seed=s, epochs=3) for c in ("none", "qsgd") for w in (2, 4) for s in (0, 1)]
    report = reports.load(fabricate.sweep(tmp_path_factory.mktemp("formats") / "s", grid))
    return build_tables(lay_out_runs(report.runs), report.epochs)


def test_numbers_survive_csv_and_parquet(made: list[ReportTable]) -> None:
    assert len(made) > 10
    for one in made:
        rows = list(csv.DictReader(io.StringIO(formats.to_csv(one).decode())))
        frame = pd.read_parquet(io.BytesIO(formats.to_parquet(one)))
        assert len(rows) == len(frame) == len(one.records)
        assert list(frame) == list(rows[0]) == list(one.records[0])
        for row, read, record in zip(rows, frame.to_dict("records"), one.records, strict=True):
            for name, value in record.items():
                if isinstance(value, float):
                    assert float(row[name]) == read[name] == value, "to the last bit"
                elif value is None:
                    assert row[name] == "" and pd.isna(read[name])
    kinds = {one.name: pd.read_parquet(io.BytesIO(formats.to_parquet(one))).dtypes for one in made}
    assert kinds["accuracy"]["n"] == "int64" and kinds["accuracy"]["mean"] == "float64"
    assert kinds["runs"]["oversubscribed"] == "bool"


def test_a_table_of_nothing_is_written_all_the_same(tmp_path: Path) -> None:
    empty = ReportTable("empty", "Empty", (TableColumn("name"), TableColumn("speed", "it/s")), 1, ())
    paths = formats.save_table(empty, tmp_path, list(formats.FORMATS))
    assert [path.name for path in paths] == [f"empty.{suffix}" for suffix in formats.FORMATS]
    assert sorted(tmp_path.iterdir()) == sorted(paths) and (tmp_path / "empty.csv").read_text() == "name,speed\n"
    assert len(pd.read_parquet(tmp_path / "empty.parquet")) == 0


def unescaped(text: str) -> str:
    """What LaTeX would print of the markup that formats.to_latex writes."""
    words = {
        "textbackslash": "\\",
        "textasciitilde": "~",
        "textasciicircum": "^",
        "textless": "<",
        "textgreater": ">",
        "textbar": "|",
        "dots": "…",
    }
    text = re.sub(r"\\([a-z]+)\{\}", lambda match: words[match[1]], text)
    text = text.replace("-{}-", "--").replace(r"{\char34}", '"').replace("{[}", "[").replace("{]}", "]")
    text = text.replace(r"\textsuperscript{*}", "*").replace(r"\textsuperscript{$\dagger$}", "†").replace(r"$\pm$", "±")
    return re.sub(r"\\([&%$#_{}])", r"\1", text)


def test_latex_has_the_structure_of_booktabs_and_escapes_text() -> None:
    lines = formats.to_latex(table()).decode().splitlines()
    assert lines[0].startswith("% \\usepackage{booktabs,graphicx}")
    source = "\n".join(lines[1:])
    opened = re.findall(r"\\begin\{(\w+)\}", source)
    assert opened == ["table", "tabular"] and re.findall(r"\\end\{(\w+)\}", source) == opened[::-1]
    assert [line.strip() for line in lines if "rule" in line] == ["\\toprule", "\\midrule", "\\bottomrule"]
    assert "\\begin{tabular}{lr}" in source and "\\label{tab:a-table-name}" in source
    rows = [line.strip() for line in lines if line.endswith("\\\\")]
    assert len(rows) == 3 and all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)
    name, value = re.split(r"(?<!\\) & ", rows[1].removesuffix(r" \\"))
    assert unescaped(name) == NASTY and unescaped(value) == "0.100†"
    assert not re.search(r"(?<!\\)[%#_~^]", source), "nothing is a command that was a text"
    assert source.count("{") - source.count(r"\{") == source.count("}") - source.count(r"\}")
    assert "\\footnotesize\n  \\textsuperscript{$\\dagger$}: more workers" in source


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("warmup_steps", "warmup_steps"),
        ("__init__", "\\_\\_init\\_\\_"),
        ("_a_ b", "\\_a\\_ b"),
        ("~~a~~ $x$", "\\~\\~a\\~\\~ \\$x\\$"),
        ("a|b`c`*d*[e](f) <i> \\", "a\\|b\\`c\\`\\*d\\*\\[e](f) &lt;i&gt; \\\\"),
    ],
)
def test_text_stays_text_in_markdown(name: str, written: str) -> None:
    assert f"| {written} " in formats.to_markdown(table(name)).decode()


class Words(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert not self.opened

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_html_is_one_table_in_which_text_is_text() -> None:
    page = Words(formats.to_html(table("<script>alert('&')</script>")).decode())
    assert set(page.tags) == {"table", "caption", "thead", "tbody", "tfoot", "tr", "th", "td", "br"}
    assert page.words.count("<script>alert('&')</script>") == 1 and "0.100†" in page.words
    assert page.tags.count("tr") == 4 and page.tags.count("th") == 4 and page.tags.count("td") == 3


def test_names_that_no_file_can_hold_are_replaced() -> None:
    for write in formats.FORMATS.values():
        assert write(table("a\udcffb"))
    assert "a?b" in formats.to_csv(table("a\udcffb")).decode()
    assert pd.read_parquet(io.BytesIO(formats.to_parquet(table("a\udcffb"))))["name"][0] == "a?b"


def test_a_reader_sees_the_old_table_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = formats.save_table(table(), tmp_path, ["csv"])
    before = path.read_bytes()

    def broken(_: ReportTable) -> bytes:
        raise OSError("no space left")

    monkeypatch.setitem(formats.FORMATS, "csv", broken)
    with pytest.raises(OSError):
        formats.save_table(table("other"), tmp_path, ["csv"])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
