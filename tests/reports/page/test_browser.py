"""report.html in a real browser: it can be used by mouse, keyboard and ear, and nothing in it does what a name says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gradsweep import run_directory
from reports.analysis.statistics import compute_band, compute_quantiles
from reports.building.sweep_report import BuiltReport, read_report, render_report
from reports.page import assets
from tests.reports import fabricate
from tests.reports.conftest import HOSTILE, illustrate

pytestmark = pytest.mark.thorough

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

LINK = '<a href="https://evil.example/">click</a><b>bold</b>'


class Opened:
    """A page, with all that it said to the console and asked for."""

    def __init__(self, context: BrowserContext, path: Path) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page = context.new_page()
        self.page.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.goto(path.resolve().as_uri())
        self.page.wait_for_selector("html[data-ready]")

    def draw_all(self) -> None:
        """Scroll to every plot, so that it is drawn."""
        for plot in self.page.locator("[data-plot]:not([hidden])").all():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for()


def column(page: Page, name: str) -> list[str]:
    """The texts of a column of the runs that are in view."""
    heads = page.locator("table.runs thead th").all_inner_texts()
    place = next(place for place, head in enumerate(heads) if head.split()[0] == name)
    return page.evaluate(
        """place => [...document.querySelectorAll("table.runs tbody tr[data-place]")]
        .map(row => row.cells[place]?.textContent ?? "")""",
        place,
    )


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> BuiltReport:
    """Three compressors with 2 and 4 workers and three seeds, of which one run failed."""
    grid = [
        fabricate.config(name, workers, seed=seed)
        for name in ("qsgd", "svd", "none")
        for workers in (2, 4)
        for seed in (0, 1, 2)
    ]
    sweep = fabricate.sweep(
        tmp_path_factory.mktemp("browser") / "a sweep #1?", grid[:-1], swept=["compressor", "workers", "seed"]
    )
    fabricate.run(sweep, grid[-1], run_directory.FAILED, "rank 3 died")
    built = read_report([sweep], sweep)
    illustrate(built)
    return built


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> BuiltReport:
    """160 runs of 40 settings of a compressor, which differ in nothing but numbers; without plots."""
    sweep = fabricate.sweep(tmp_path_factory.mktemp("browser") / "many", [fabricate.config("qsgd", epochs=2)])
    (one,) = (sweep / run_directory.RUNS).iterdir()
    texts = {path.name: path.read_text() for path in one.iterdir() if path.is_file()}
    for place in range(160):
        run = sweep / run_directory.RUNS / f"run-{place:04}"
        run.mkdir()
        config = (
            texts[run_directory.CONFIG].replace("levels: 7", f"levels: {place // 4}").replace("lr: 0.1", f"lr: {place}")
        )
        assert config != texts[run_directory.CONFIG]
        (run / run_directory.CONFIG).write_text(config)
        for name in (run_directory.STATE, run_directory.RESULT, run_directory.EPOCHS):
            (run / name).write_text(texts[name])
    built = read_report([sweep], sweep)
    built.page.write_text(render_report(built), encoding="utf-8")
    return built


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    yield context
    context.close()


@pytest.fixture(scope="module")
def pages(browser: Browser, seeds: BuiltReport) -> Iterator[Callable[[bool], Opened]]:
    """Gives the page that was opened last, or a new one."""
    found: list[tuple[BrowserContext, Opened]] = []

    def page(new: bool) -> Opened:
        if new or not found:
            context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
            context.set_default_timeout(60_000)
            found.append((context, Opened(context, seeds.page)))
        return found[-1][1]

    yield page
    for context, _ in found:
        context.close()


@pytest.fixture
def opened(pages: Callable[[bool], Opened], request: pytest.FixtureRequest) -> Opened:
    """The page of `seeds`, which several tests use one after the other; each leaves it as it was.

    One that has failed has not: its second try (conftest.py) begins with a new one.
    """
    return pages(getattr(request.node, "execution_count", 1) > 1)


def test_all_plots_are_drawn_without_errors_and_requests(opened: Opened) -> None:
    opened.draw_all()
    shown = opened.page.locator("[data-plot]:not([hidden])")
    names = shown.evaluate_all("hosts => hosts.map(host => host.dataset.plot)")
    assert names == ["scaling", "accuracy", "pareto", "error", "breakdown", "heatmap", "parallel"]
    assert not opened.page.locator("[data-plot] .annotation-text", has_text="No finished run").count()
    assert opened.errors == [] and len(opened.requests) == 1 and opened.requests[0].startswith("file://")
    buttons = set(shown.locator(".modebar-btn").evaluate_all("buttons => buttons.map(one => one.dataset.title)"))
    assert buttons == {"Download plot", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"}, "none sends it away"
    servers = shown.locator(".canvas").evaluate_all("hosts => hosts.map(host => host._context.plotlyServerURL)")
    assert set(servers) == {""}


def test_what_would_be_ideal_is_drawn(opened: Opened) -> None:
    page = opened.page
    opened.draw_all()
    scaling = page.locator("[data-plot=scaling]")
    drawn = "() => document.querySelector('[data-plot=scaling] .canvas').data.map(({line, x, y}) => [line.dash, x, y])"
    (dash, x, ideal), (_, _, measured), *_ = page.evaluate(drawn)
    assert dash == "dash" and x == [2, 4] and ideal == pytest.approx([measured[0], 2 * measured[0]], rel=1e-3)
    scaling.locator(".canvas").scroll_into_view_if_needed()
    scaling.get_by_label("Value", exact=True).select_option("scaling efficiency")
    scaling.locator(".ytitle", has_text="scaling efficiency").wait_for()
    (dash, x, ideal), *lines = page.evaluate(drawn)
    assert dash == "dash" and (x, ideal) == ([2, 4], [100, 100]) and len(lines) == 3
    said = scaling.locator(".canvas").get_attribute("aria-label") or ""
    table = (
        page.get_by_role("table", name="Scaling efficiency").get_by_role("row", name=re.compile("^qsgd")).inner_text()
    )
    mean = re.search(r"qsgd\s+100 ± 0\s+([\d.]+) ±", table)
    assert mean and f"qsgd, 4: {mean[1]};" in said, "as the table has it"
    scaling.get_by_label("Value", exact=True).select_option("throughput")


def test_runs_are_sorted(opened: Opened) -> None:
    page = opened.page
    head = page.locator("table.runs thead th", has_text="accuracy")
    before = column(page, "accuracy")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    down = column(page, "accuracy")
    numbers = [float(text) for text in down[:-1]]
    assert numbers == sorted(numbers, reverse=True) and "died" in down[-1], "what has no number is last"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(page, "accuracy")[:-1] == down[-2::-1] and "died" in column(page, "accuracy")[-1]
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "none" and column(page, "accuracy") == before


def test_runs_are_filtered(opened: Opened) -> None:
    page = opened.page
    page.get_by_label("Runs with these words").fill("SVD workers=4")
    assert column(page, "compressor") == ["svd"] * 3
    assert page.get_by_role("status").inner_text() == "3 of 18 runs."
    page.get_by_role("button", name="Clear").click()
    search = page.get_by_role("search")
    search.get_by_label("status").select_option("failed")
    assert column(page, "status") == ["failed"]
    search.get_by_label("compressor").select_option("svd")
    assert page.get_by_role("status").inner_text() == "0 of 18 runs."
    page.get_by_role("button", name="Clear").click()
    search.get_by_label("seed").select_option("2")
    assert column(page, "seed") == ["2"] * 6
    page.get_by_role("button", name="Clear").click()
    assert len(column(page, "seed")) == 18


def test_a_run_is_shown_beside_the_baseline(opened: Opened, seeds: BuiltReport) -> None:
    page = opened.page
    page.get_by_label("Runs with these words").fill("svd workers=4 seed=1")
    page.locator("table.runs tbody tr[data-place]").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_role("heading", level=2).inner_text() == "svd seed=1 workers=4"
    assert "none seed=1 workers=4" in dialog.locator("caption").inner_text()
    rows = dialog.locator("table.config tbody tr")
    shown = {tuple(row.split("\t")) for row in rows.all_inner_texts()}
    assert ("compressor", "svd", "none") in shown and ("compressor.rank", "3", "null") in shown
    assert not {key for key, *_ in shown} & {"seed", "workers", "optimizer.lr"}, "what is equal is left out"
    dialog.get_by_role("checkbox").check()
    assert rows.count() > 2 * len(shown) and dialog.locator("tr.differs").count() == len(shown)
    assert ("seed", "1", "1") in {tuple(row.split("\t")) for row in rows.all_inner_texts()}
    assert dialog.locator("#run-curve .scatterlayer .trace").count() == 3, "the run, and the mean and band of its cell"
    told = dialog.locator("#run-curve .legendtext").all_text_contents()
    assert told == ["mean of 3 runs that differ only in the seed", "this run"]
    for link in dialog.get_by_role("link").all():
        target = page.evaluate(
            "href => decodeURIComponent(new URL(href, location.href).pathname)", link.get_attribute("href")
        )
        assert target.startswith(str(seeds.directory)) and (Path(target).exists() or target.endswith(".log"))
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()
    page.get_by_role("button", name="Clear").click()


def test_a_legend_button_hides_a_compressor_everywhere(opened: Opened) -> None:
    page = opened.page
    opened.draw_all()
    accuracy, pareto = page.locator("[data-plot=accuracy]"), page.locator("[data-plot=pareto]")
    lines = accuracy.locator(".scatterlayer .trace")
    assert lines.count() == 6, "a mean and a band for each compressor"
    button = accuracy.locator(".legend button", has_text="qsgd")
    assert button.get_attribute("aria-pressed") == "true"
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "false" and lines.count() == 4
    assert pareto.locator(".legend button", has_text="qsgd").get_attribute("aria-pressed") == "false"
    assert page.evaluate("document.activeElement.dataset.label") == "qsgd", "the focus stays"
    button.press("Enter")
    accuracy.get_by_label("Value", exact=True).select_option("test loss")
    accuracy.get_by_label("Against", exact=True).select_option("training time")
    assert accuracy.locator(".ytitle").text_content() == "test loss"
    assert accuracy.locator(".xtitle").text_content() == "training time [s]"
    assert (accuracy.locator(".canvas").get_attribute("aria-label") or "").startswith("test loss against training time")
    assert lines.count() == 6


def test_the_plots_show_what_the_runs_are_filtered_to(opened: Opened, seeds: BuiltReport) -> None:
    page = opened.page
    page.get_by_label("Runs with these words").fill("compressor=svd")
    page.get_by_role("button", name="Plot only these").click()
    legend = page.locator("[data-plot=accuracy] .legend")
    assert legend.get_by_role("button").count() == 1 and "svd" in legend.inner_text()
    assert "qsgd" not in legend.inner_text() and "1 of 3 compressors" in legend.inner_text()
    page.get_by_role("button", name="Plot all").click()
    assert "qsgd" in legend.inner_text()
    page.get_by_label("Runs with these words").fill("compressor=svd workers=4")
    page.get_by_role("button", name="Plot only these").click()
    canvas = page.locator("[data-plot=scaling] .canvas")
    canvas.scroll_into_view_if_needed()
    canvas.locator(".main-svg").first.wait_for()
    said = canvas.get_attribute("aria-label") or ""
    assert "svd, 4: " in said and "svd, 2: " not in said and "none" not in said, "exactly these runs"
    page.get_by_label("Runs with these words").fill("compressor=svd seed=1")
    page.get_by_role("button", name="Plot only these").click()
    canvas.scroll_into_view_if_needed()
    page.locator("[data-plot=scaling] .canvas[aria-label*='svd, 2: ']").wait_for()
    line = canvas.evaluate("canvas => canvas.data.filter(trace => trace.name === 'svd').map(({ x, y }) => [x, y])")[0]
    runs = seeds.report.runs
    one = runs[(runs["compressor"] == "svd") & (runs["seed"] == 1)].set_index("workers")["iterations_per_second"]
    assert dict(zip(*line, strict=True)) == pytest.approx(one.to_dict(), rel=1e-3), "of one seed the runs themselves"
    page.get_by_role("button", name="Plot all").click()
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("button", name="Clear").click()


def test_means_of_chosen_runs_are_those_of_the_report(opened: Opened) -> None:
    """Of values, and of curves of which one is shorter."""
    code = Path(assets.__file__).with_name("means.js").read_text()
    data = {"quantiles": compute_quantiles(np.array([2, 3])).tolist()}
    runs = [{"epoch": [1, 2], "y": [1.0, 4.0]}, {"epoch": [1, 2], "y": [2.0, 8.0]}, {"epoch": [1], "y": [6.0]}]
    found = opened.page.evaluate(
        f"runs => {{ const DATA = {json.dumps(data)}; {code}\n return averageCurves(runs, [0, 1, 2], ['epoch']); }}",
        runs,
    )
    expected = np.stack(compute_band(np.array([[1, 4], [2, 8], [6, np.nan]])))
    assert found["epoch"] == [1, 2] and np.array(found["y"]) == pytest.approx(expected)


def test_lines_of_parallel_coordinates_are_kept_by_a_part_of_an_axis(opened: Opened) -> None:
    page = opened.page
    parallel = page.locator("[data-plot=parallel]")
    parallel.scroll_into_view_if_needed()
    parallel.locator(".main-svg").first.wait_for()
    canvas, button = parallel.locator(".canvas"), parallel.get_by_role("button", name="All lines")
    assert button.is_disabled()
    canvas.scroll_into_view_if_needed()
    box = parallel.locator(".nsewdrag").first.bounding_box()
    first = parallel.locator(".ytick, .xtick text").first.bounding_box()  # the name of the axis of compressors
    assert box and first
    x = first["x"] + first["width"] / 2
    page.mouse.move(x - 20, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(x + 20, box["y"] + box["height"] * 0.3, steps=5)
    page.mouse.up()
    page.locator("[data-plot=parallel] .canvas[aria-label*='2 of 6 lines stay']").wait_for()
    traces = canvas.evaluate("canvas => canvas.data.map(trace => [trace.name, trace.opacity])")
    assert [name for name, opacity in traces if opacity > 0.5] == ["none"] and len(traces) == 3
    button.click()
    assert button.is_disabled() and "stay" not in (canvas.get_attribute("aria-label") or "")


def test_light_and_dark(opened: Opened) -> None:
    page = opened.page
    opened.draw_all()
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('[data-plot=scaling] .xtitle')).fill"
    button = page.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "false" and page.evaluate(paper) == "rgb(255, 255, 255)"
    bright = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.locator("button[aria-pressed=true]", has_text="Dark").wait_for()
    assert page.evaluate(paper) == "rgb(23, 27, 32)"
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and page.evaluate(paper) == "rgb(255, 255, 255)"
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(paper) == "rgb(255, 255, 255)", "what was chosen is kept"
    page.get_by_role("button", name="Dark").click()
    page.locator("[data-plot=scaling]").scroll_into_view_if_needed()
    page.locator("[data-plot=scaling] .main-svg").first.wait_for()
    assert page.evaluate(ink) != bright, "the plots follow"
    page.get_by_role("button", name="Dark").click()
    page.emulate_media(color_scheme="light")


def test_by_keyboard_alone(opened: Opened) -> None:
    page = opened.page
    page.evaluate("document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("table.runs thead button").last.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "open"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    focused = "document.activeElement.closest('tr')?.dataset.place"
    assert page.evaluate(focused) == "1"
    page.keyboard.press("End")
    assert page.evaluate(focused) == "17"
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible() and page.evaluate("document.activeElement.id") == "run-title"
    page.get_by_role("button", name="Previous").press("Enter")
    assert page.get_by_role("dialog").get_by_role("heading", level=2).inner_text() == "svd seed=1 workers=4"
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible() and page.evaluate(focused) == "17"
    page.keyboard.press("Home")
    assert page.evaluate(focused) == "0"


def test_everything_has_a_name(opened: Opened) -> None:
    """What a screen reader says of controls, regions and pictures."""
    nameless = opened.page.evaluate(
        """() => [
            ...document.querySelectorAll("button, select, input, a[href], [role=img], [role=region], section, nav")]
        .filter(e => e.checkVisibility() && !e.closest(".modebar"))
        .filter(e => !(e.textContent.trim() || e.ariaLabel || e.ariaLabelledByElements?.length || e.labels?.length))
        .map(e => e.outerHTML)"""
    )
    assert nameless == []
    assert opened.page.evaluate("[...document.querySelectorAll('table')].every(table => table.caption)")
    ids = opened.page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))


def test_print_has_tables_and_pictures_and_no_controls(opened: Opened) -> None:
    page = opened.page
    page.emulate_media(media="print")
    assert page.locator("figure.static img").first.is_visible() and page.locator("table.runs").is_visible()
    for control in (".plot", ".controls", "nav", "#tools"):
        assert not page.locator(control).first.is_visible(), control
    assert page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper')").strip() == "#fff"
    heading = page.locator("table.runs thead button").first
    assert heading.evaluate("button => getComputedStyle(button).display") == "contents", "repeated on every page"
    page.set_viewport_size({"width": 700, "height": 900})
    broken = page.locator("table.runs").evaluate(
        """table => [...table.querySelectorAll("thead span:not(.unit), td.number, td.status")].filter(cell => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return range.getClientRects().length > 1;
        }).map(cell => cell.textContent)"""
    )
    assert broken == [], "no number or name is broken over two lines"
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="screen")
    assert not page.locator("figure.static img").first.is_visible() and page.locator(".plot").first.is_visible()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> BuiltReport:
    """Names, values, reasons and logs that would be markup, links or scripts if anything took them as such."""
    configs: list[dict[str, Any]] = [
        fabricate.config(name, workers, model__name=model)
        for name in (HOSTILE, LINK, "%{x}<br>$\\alpha$", "fp16", "none")
        for workers in (2, 4)
        for model in ("</script><script>alert(3)</script>", "javascript:alert(4)")
    ]
    sweep = fabricate.sweep(tmp_path_factory.mktemp("browser") / "hostile", [])
    for place, config in enumerate(configs[:-2]):
        fabricate.run(sweep, config, name=f"<b>{place}")
    fabricate.run(sweep, configs[-2], name='x="><script>alert(2)<|script>&amp; %2e é\u2028')
    failed = fabricate.run(sweep, configs[-1], run_directory.FAILED, f"{LINK} {HOSTILE}", name="javascript:alert(5)")
    (failed / "attempt-1" / run_directory.STDERR).write_text(f"{HOSTILE}\n{LINK}\n</script><!--<script>\n")
    built = read_report([sweep], sweep)
    built.page.write_text(render_report(built), encoding="utf-8")
    return built


def test_what_others_wrote_is_text_everywhere(context: BrowserContext, hostile: BuiltReport) -> None:
    opened = Opened(context, hostile.page)
    opened.draw_all()
    page = opened.page
    for plot in page.locator("[data-plot]:not([hidden])").all():
        for trace in plot.locator(".points path, .bars path").all()[:2]:
            trace.hover(force=True)
    texts = page.locator("[data-plot] svg").all_text_contents()
    assert any(HOSTILE in text for text in texts) and any(LINK[:20] in text for text in texts)
    for row in (0, 3, 7, 11):
        page.locator("table.runs tbody button.open").nth(row).click()
        page.keyboard.press("Escape")
    page.get_by_label("Runs with these words").fill("failed")
    page.locator("table.runs tbody button.open").click()
    dialog = page.get_by_role("dialog")
    assert HOSTILE in dialog.locator("pre").inner_text() and LINK in dialog.inner_text()
    schemes = page.evaluate("[...document.links].map(link => link.protocol)")
    assert set(schemes) == {"file:"}
    assert not page.locator("svg a").count() and not page.locator("svg tspan[style*=bold]").count()
    assert page.evaluate("document.scripts.length") == 4, "the page's own and the data"
    page.keyboard.press("Escape")
    ink = "getComputedStyle(document.querySelector('.legend [data-label=fp16] .glyph')).color"
    assert page.evaluate(ink) == "rgb(51, 34, 136)"
    page.emulate_media(color_scheme="dark")
    lighter = f"() => Math.min(...{ink}.match(/\\d+/g).map(Number)) > 80"
    page.wait_for_function(lighter)  # the page redraws in an event of its own
    assert opened.errors == [] and len(opened.requests) == 1


def test_only_the_rows_in_view_are_elements(context: BrowserContext, many: BuiltReport) -> None:
    opened = Opened(context, many.page)
    page = opened.page
    rows = page.locator("table.runs tbody tr[data-place]")
    assert page.locator("table.runs").get_attribute("aria-rowcount") == "162"
    assert 10 < rows.count() < 80
    page.locator("table.runs tbody button.open").first.focus()
    page.keyboard.press("End")
    last = page.locator("table.runs tbody tr[data-place='160']")
    assert last.is_visible() and last.get_attribute("aria-rowindex") == "162" and rows.count() < 80
    assert page.evaluate("document.activeElement.closest('tr').dataset.place") == "160"
    page.get_by_label("Runs with these words").fill("lr=15")
    assert rows.count() == 1, "not 150"
    page.get_by_label("Runs with these words").fill("lr=")
    assert rows.count() > 10, "while it is typed"
    page.get_by_role("button", name="Clear").click()
    page.emulate_media(media="print")
    rows.nth(160).wait_for()
    assert rows.count() == 161
    page.emulate_media(media="screen")
    assert "20 of 40 compressors" in page.locator("[data-plot=accuracy] .legend").inner_text()
    assert opened.errors == []


def test_without_scripts_there_are_tables_and_pictures(browser: Browser, seeds: BuiltReport) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(seeds.page.resolve().as_uri())
    picture = page.locator("figure.static img").first
    assert picture.is_visible()
    assert picture.evaluate("img => img.clientWidth - 2 * parseFloat(getComputedStyle(img).paddingLeft)") == 336, (
        "700 dots at 200 an inch"
    )
    assert page.get_by_role("table", name=re.compile("^All runs")).locator("tbody tr").count() == 18
    assert page.locator("td .reason", has_text="rank 3 died").is_visible() and not page.locator(".plot:visible").count()
    context.close()
