"""report.html is one file that needs nothing else, and shows text as text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from gradsweep import run_directory
from reports.analysis.grid import lay_out_runs
from reports.building.sweep_report import BuiltReport, build_report, read_report, render_report
from reports.page import assets, cells
from reports.plots.picture import Picture
from reports.reading.report import Report
from tests.reports import fabricate
from tests.reports.conftest import HOSTILE, illustrate

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Elements with their attributes, the text, and whether every element was closed where it should be."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def good_directory(nine: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(nine, tmp_path_factory.mktemp("page") / "2026-11-20/14-03-22")


@pytest.fixture(scope="module")
def good(good_directory: Path) -> Page:
    return Page(illustrate(build_report(good_directory, pictures=())))


@pytest.fixture(scope="module")
def bad(troubled: BuiltReport) -> Page:
    return Page(illustrate(troubled, f"A picture of {HOSTILE}"))


def test_it_needs_no_network_and_no_other_file(good: Page, bad: Page) -> None:
    for page in (good, bad):
        assert not page.all("link") and not page.all("iframe") and not [s for s in page.all("script") if "src" in s]
        assert len(page.all("img")) >= 5
        for image in page.all("img"):
            kind, _, data = image["src"].partition(",")
            assert kind == "data:image/png;base64" and base64.b64decode(data).startswith(b"\x89PNG")
        assert not [key for _, attributes in page.elements for key in attributes if key.startswith("on")]
        assert all(not link["href"].startswith(("http", "//", "data", "javascript")) for link in page.all("a"))


def test_pictures_that_are_too_large_together_lie_beside_it(
    good: Page, good_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [len(image["src"].partition(",")[2]) for image in good.all("img")]
    built = read_report([good_directory], good_directory)
    pictures = {path: Picture(path.stem, f"Title {path.stem}", HOSTILE) for path in good_directory.glob("plots/*.png")}
    sentence = "The pictures are too large to be in this page: its links lead to them, beside it in plots/"
    for most, count in ((sum(held), len(held)), (sum(held) - 4 * len(held) - 1, 0)):
        monkeypatch.setattr("reports.page.render._PICTURES", most)
        (good_directory / "other.html").write_text(render_report(built, pictures), encoding="utf-8")
        shown = Page(good_directory / "other.html")
        assert len(shown.all("img")) == count and (sentence in shown.words) == (not count)
        assert {f"plots/{path.name}" for path in pictures} <= {link["href"] for link in shown.all("a")}
        assert all(f"Title {path.stem}" in shown.words for path in pictures)
        assert shown.words.count(HOSTILE) == (0 if count else len(pictures)), "what they show, in words"


def test_its_policy_lets_only_its_own_scripts_run(good_directory: Path, good: Page) -> None:
    source = (good_directory / "report.html").read_text(encoding="utf-8")
    (policy,) = [m["content"] for m in good.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'" and "unsafe" not in directives["script-src"]
    scripts = re.findall("<script>(.*?)</script>", source, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert directives["script-src"].split() == [f"'sha256-{digest}'" for digest in hashes] and len(hashes) == 3


def test_it_is_accessible(good: Page, bad: Page) -> None:
    for page in (good, bad):
        assert page.all("html") == [{"lang": "en"}] and len(page.all("h1")) == len(page.all("main")) == 1
        assert all(len(image["alt"]) > 20 for image in page.all("img"))
        assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
        assert len(page.all("caption")) == len(page.all("table")) >= 9
        boxes = [box for box in page.all("div") if "scroll" in box.get("class", "")]
        assert boxes and all({"role", "tabindex", "aria-label"} <= set(box) for box in boxes)


def test_it_says_what_was_run_where(good: Page) -> None:
    for text in (
        "2026-11-20/14-03-22",
        "python multirun.py -m compressor=qsgd,svd,none workers=2,4,8",
        "9 runs of 3 compressors with 2, 4 and 8 workers: 9 done.",
        "dataset=digits",
        "commit 3f9a2c1e0b7d, branch main, dirty conf/config.yaml",
        "torch 2.13.0",
        "AMD EPYC 7B13",
        "Open MPI v5.0.11",
        "node7",
    ):
        assert text in good.words
    assert "left out" not in good.words and len(good.all("details")) == 2


def test_options_of_compressors_are_shown_on_demand(good: Page, good_directory: Path) -> None:
    source = (good_directory / "report.html").read_text(encoding="utf-8")
    (always,) = re.findall(r"<p class=.note.>In all runs: .*</p>", source)
    assert "model=wideresnet" in always and "optimizer" not in always and "levels" not in always
    shared, on_demand, *_ = re.findall(r"<details>.*?</details>", source, re.DOTALL)
    assert "optimizer=sgd" in shared and "levels" not in shared
    assert "<dt>qsgd</dt><dd>exchange=allgather, levels=7, bucket_size=512, norm=max</dd>" in on_demand
    tables = {path.stem: path.read_text(encoding="utf-8") for path in (good_directory / "tables").glob("*.md")}
    assert [name for name, text in tables.items() if "levels=7" in text] == ["runs"]


def test_links_lead_to_the_runs_and_the_plots(
    good: Page, bad: Page, good_directory: Path, troubled: BuiltReport
) -> None:
    for page, directory in ((good, good_directory), (bad, troubled.directory)):
        targets = {link["href"] for link in page.all("a")}
        ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
        assert {target[1:] for target in targets if target.startswith("#")} <= ids
        files = [unquote(target) for target in targets if not target.startswith("#")]
        assert len(files) >= 14 and all((directory / file).exists() for file in files)


def test_it_shows_why_runs_failed(bad: Page) -> None:
    assert f"rank 1 died: {HOSTILE} second line" in bad.words and "loss is nan at step 61" in bad.words
    assert f"Last lines of attempt-1/stderr.log Traceback caf\ufffd \ufffd {HOSTILE} RuntimeError: boom" in bad.words
    assert "What was left out" in bad.words and "no config.yaml" in bad.words
    assert "result.json : missing, though the run is done" in bad.words
    assert "no run: not a point of the sweep" in bad.words


def test_what_others_wrote_is_text(bad: Page, troubled: BuiltReport) -> None:
    source = troubled.page.read_text(encoding="utf-8")
    assert source.lower().count("<script") == source.lower().count("</script") == 4, (
        "data, plotly and the page's own two"
    )
    assert "<script>alert" not in source and "\x1b" not in source
    assert bad.words.count(HOSTILE) >= 8, "command, log, reason and the compressor's name in every table"
    assert [image["alt"] for image in bad.all("img") if HOSTILE in image["alt"]]


def test_data_for_scripts_is_no_markup() -> None:
    value = {"</script><!--<script>": "\u2028\u2029&amp;\ud800", "é": [1, None]}
    text = assets.embed_json(value)
    assert text.isascii() and not set("<>&") & set(text) and json.loads(text) == value


def test_numbers_have_four_digits_as_they_are_written() -> None:
    values = [0.1234567, 123456.0, -9.99999, 1e-12, 0.0, 100.0, math.nan, math.inf]
    shown = assets.convert_numbers(assets.round_digits(np.array(values)))
    assert shown == [0.1235, 123500, -10, 1e-12, 0, 100, None, None]
    assert json.dumps(shown[:3]) == "[0.1235, 123500, -10]"


def test_long_curves_keep_their_ends() -> None:
    places = list(assets.thin_places(1000, 60))
    assert len(places) == 60 and places[0] == 0 and places[-1] == 999 and places == sorted(set(places))
    assert list(assets.thin_places(60, 60)) == list(range(60))


def test_curves_are_means_of_the_runs_that_are_done(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config("qsgd", seed=seed) for seed in (0, 1)])
    fabricate.run(sweep, fabricate.config("qsgd", seed=2), run_directory.FAILED, "it broke")
    fabricate.run(sweep, fabricate.config("none", seed=0), run_directory.FAILED, "it broke")
    report = Report([sweep])
    grid = lay_out_runs(report.runs)
    none, qsgd = cells.collect_cells(grid, report.epochs, report.profile)
    assert (qsgd["label"], qsgd["done"], qsgd["counts"]) == ("qsgd", 2, {"done": 2, "failed": 1})
    ends = report.epochs[report.epochs["epoch"] == 15]["test_accuracy"]
    assert len(ends) == 2 and qsgd["curve"]["n"] == 2
    mean, low, high = (side[-1] for side in qsgd["curve"]["test_accuracy"])
    assert mean == pytest.approx(ends.mean(), rel=1e-3) and low < ends.min() < ends.max() < high
    assert qsgd["values"]["accuracy"][0] == pytest.approx(ends.mean(), rel=1e-3)
    assert none["done"] == 0 and none["values"] == {} and none["curve"]["epoch"] == [1, 2, 3, 4, 5]
    assert len(none["curve"]["test_accuracy"]) == 1, "one run has no band"


def test_what_is_measured_now_and_then_is_drawn_where_it_is(tmp_path: Path) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config("qsgd")])
    report = Report([sweep])
    (qsgd,) = cells.collect_cells(lay_out_runs(report.runs), report.epochs, report.profile)
    measured = report.profile["compression_error"].notna().sum()
    assert measured < len(report.profile) < 2 * cells._POINTS
    assert len(qsgd["profile"]["step"]) == measured and None not in qsgd["profile"]["compression_error"][0]


def test_scaling_efficiency_is_that_of_the_tables(tmp_path: Path) -> None:
    """The mean of the ratios of the seeds, which is not the ratio of the means."""
    grid = [fabricate.config("qsgd", workers, seed=seed, epochs=3) for workers in (2, 4) for seed in range(3)]
    built = read_report([fabricate.sweep(tmp_path / "s", grid)], tmp_path)
    first, second = cells.collect_cells(built.grid, built.report.epochs, built.report.profile)
    table = next(table for table in built.tables if table.name == "efficiency")
    assert first["values"]["efficiency"] == [1, 1, 1]
    expected = [table.records[1][name] for name in ("mean", "low", "high")]
    assert second["values"]["efficiency"] == pytest.approx(expected, rel=1e-3)


def test_only_as_many_curves_as_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = fabricate.sweep(tmp_path / "s", [fabricate.config("qsgd", seed=seed) for seed in (0, 1, 2)])
    fabricate.run(sweep, fabricate.config("svd"), run_directory.FAILED, "it broke")
    report = Report([sweep])
    grid = lay_out_runs(report.runs)
    monkeypatch.setattr(cells, "_ROOM", 2 * 7 * cells._FEWEST)
    found = cells.collect_run_curves(grid, report.epochs)
    assert found["left_out"] == 2 and list(found["curves"]) == ["3", "0"], "that of the failed run first"


def test_a_page_without_plots_and_one_without_sweep_yaml(nine: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(nine, tmp_path / "copy")
    (copy / "sweep.yaml").unlink()
    page = Page(build_report(copy, pictures=()).page)
    assert not page.all("img") and not (copy / "plots").exists() and "Provenance" not in page.words
    (copy / "sweep.yaml").write_text(
        "git: {commit: 3f9a, dirty: [], diff: '" + "x" * 500 + "'}\nhost: [a, {b: 1}]\nswept: 3\n"
    )
    (copy / "report.html").write_text(render_report(read_report([copy], copy)))
    page = Page(copy / "report.html")
    assert "git diff 500 characters" in page.words and "host a, b 1" in page.words and page.all("details")
    assert "commit 3f9a" in page.words and "dirty" not in page.words, "what is empty is not shown"
