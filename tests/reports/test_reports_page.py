"""report.html is one file that needs nothing else, and shows text as text."""

from __future__ import annotations

import base64
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from reports.build import Built, build
from tests.reports.conftest import HOSTILE

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
    return Page(build(good_directory).page)


@pytest.fixture(scope="module")
def bad(troubled: Built) -> Page:
    return Page(troubled.page)


def test_it_needs_no_network_no_script_and_no_other_file(good: Page, bad: Page) -> None:
    for page in (good, bad):
        assert not page.all("script") and not page.all("link") and not page.all("iframe")
        assert len(page.all("img")) == 5
        for image in page.all("img"):
            kind, _, data = image["src"].partition(",")
            assert kind == "data:image/png;base64" and base64.b64decode(data).startswith(b"\x89PNG")
        assert "default-src 'none'" in [meta.get("content", "") for meta in page.all("meta")][2]
        assert not [key for _, attributes in page.elements for key in attributes if key.startswith("on")]
        assert all(not link["href"].startswith(("http", "//", "data", "javascript")) for link in page.all("a"))


def test_it_is_accessible(good: Page, bad: Page) -> None:
    for page in (good, bad):
        assert page.all("html") == [{"lang": "en"}] and len(page.all("h1")) == len(page.all("main")) == 1
        assert all(len(image["alt"]) > 20 for image in page.all("img"))
        assert all(cell.get("scope") in ("col", "row") for cell in page.all("th"))
        assert len(page.all("caption")) == len(page.all("table")) >= 9
        assert all(
            {"role", "tabindex", "aria-label"} <= set(box) for box in page.all("div") if box["class"] == "scroll"
        )


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
    assert "left out" not in good.words and len(good.all("details")) == 1


def test_options_of_compressors_are_shown_on_demand(good: Page, good_directory: Path) -> None:
    source = (good_directory / "report.html").read_text(encoding="utf-8")
    (always,) = re.findall(r"<p class=.note.>In all runs: .*</p>", source)
    assert "optimizer=sgd" in always and "levels" not in always
    on_demand = source[source.index("<details>") : source.index("</details>")]
    assert "<dt>qsgd</dt><dd>exchange=allgather, levels=7, bucket_size=512, norm=max</dd>" in on_demand
    tables = {path.stem: path.read_text(encoding="utf-8") for path in (good_directory / "tables").glob("*.md")}
    assert [name for name, text in tables.items() if "levels=7" in text] == ["runs"]


def test_links_lead_to_the_runs_and_the_plots(good: Page, bad: Page, good_directory: Path, troubled: Built) -> None:
    for page, directory in ((good, good_directory), (bad, troubled.directory)):
        assert len(page.all("a")) == 14
        assert all((directory / unquote(link["href"])).exists() for link in page.all("a"))


def test_it_shows_why_runs_failed(bad: Page) -> None:
    assert f"rank 1 died: {HOSTILE} second line" in bad.words and "loss is nan at step 61" in bad.words
    assert f"Last lines of attempt-1/stderr.log Traceback caf\ufffd \ufffd {HOSTILE} RuntimeError: boom" in bad.words
    assert "What was left out" in bad.words and "no config.yaml" in bad.words
    assert "result.json : missing, though the run is done" in bad.words
    assert "missing: no such run in the sweep's directory" in bad.words


def test_what_others_wrote_is_text(bad: Page, troubled: Built) -> None:
    source = troubled.page.read_text(encoding="utf-8")
    assert "<script" not in source.lower() and "\x1b" not in source
    assert bad.words.count(HOSTILE) >= 8, "command, log, reason and the compressor's name in every table"
    assert [image["alt"] for image in bad.all("img") if HOSTILE in image["alt"]]


def test_a_page_without_plots_and_one_without_sweep_yaml(nine: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(nine, tmp_path / "copy")
    (copy / "sweep.yaml").unlink()
    page = Page(build(copy, with_plots=False).page)
    assert not page.all("img") and not (copy / "plots").exists() and "Provenance" not in page.words
    (copy / "sweep.yaml").write_text("git: {diff: '" + "x" * 500 + "'}\nhost: [a, {b: 1}]\nswept: 3\n")
    page = Page(build(copy, with_plots=False).page)
    assert "git diff 500 characters" in page.words and "host a, b 1" in page.words and page.all("details")
