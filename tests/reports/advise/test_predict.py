"""Predictions of measurements whose laws are known, and the advice that follows from them."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from reports.advise import output
from reports.advise.advice import NOT_WORTH, WORTH, advise, format_counts
from reports.advise.measured import read_measured
from reports.advise.predict import Estimate, Forecast
from reports.scaling.measured.links import parse_network
from reports.scaling.output.tables import CLOSE
from tests.reports.advise import measurements as made


@pytest.fixture(scope="module")
def forecast(tmp_path_factory: pytest.TempPathFactory) -> Forecast:
    path = made.write(tmp_path_factory.mktemp("measured") / "measured.json", noise=0.05)
    return Forecast(read_measured(path))


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Forecast:
    return Forecast(read_measured(made.write(tmp_path_factory.mktemp("exact") / "measured.json")))


@pytest.mark.parametrize("workers", [2, 16])
def test_a_gathered_step_is_the_sum_of_its_parts(workers: int, exact: Forecast) -> None:
    links = parse_network("1gbit")
    payload = made.BYTES * made.SHARE["qsgd"]
    messages = 4 * (workers - 1)  # parts, each sent on by all but one; above 64 KiB a message takes three latencies
    wire = 3 * messages * links.alpha + (workers - 1) * payload * links.beta
    own = messages * links.per_message + (workers - 1) * payload * links.per_byte
    parts = made.COMPUTE + made.ENCODE["qsgd"] + made.DECODE + workers * made.EACH["qsgd"] + wire + own
    step = exact.predict_step("qsgd", workers, links)
    assert parts < step.value < parts + 0.05 * (made.COMPUTE + made.ENCODE["qsgd"]) * 3, "the rest waits for others"
    assert step.low < step.value < step.high


def test_the_baseline_is_tuned(exact: Forecast) -> None:
    links = parse_network("1gbit")
    untuned = dataclasses.replace(exact.measured.methods[0].traffic, is_tuned=False)
    alone = [dataclasses.replace(exact.measured.methods[0], traffic=untuned), *exact.measured.methods[1:]]
    plain = Forecast(dataclasses.replace(exact.measured, methods=tuple(alone)))
    for workers in (2, 64, 512):
        tuned, fixed = (one.predict_step("none", workers, links).value for one in (exact, plain))
        assert tuned <= fixed
    wire = 2 * 15 / 16 * made.BYTES * links.beta
    step = exact.predict_step("none", 16, links).value
    assert max(wire, made.COMPUTE) < step < made.COMPUTE + made.ENCODE["none"] + made.DECODE + wire, "it overlaps"


def test_ratios_are_surer_than_steps(forecast: Forecast) -> None:
    links = parse_network("100gbit")
    step, times = forecast.predict_step("qsgd", 4, links), forecast.predict_times("qsgd", 4, links)
    assert times.low <= times.value <= times.high
    assert times.high / times.low < step.high / step.low
    assert times.value == pytest.approx(
        forecast.predict_step("none", 4, links).value / forecast.predict_step("qsgd", 4, links).value
    )


def test_advice_by_network(forecast: Forecast) -> None:
    slow = {one.method: one for one in advise(forecast, 16, parse_network("100mbit"), [], "").rows}
    fast = {one.method: one for one in advise(forecast, 16, parse_network("100gbit"), [], "").rows}
    assert slow["powersgd"].verdict == WORTH and slow["none"].verdict == ""
    assert fast["qsgd"].verdict == fast["topk"].verdict == NOT_WORTH
    assert {one.verdict for one in (*slow.values(), *fast.values())} <= {"", WORTH, CLOSE, NOT_WORTH}
    pays = slow["powersgd"].pays
    assert pays is not None and pays.wins[0][0] == 0 and 1e9 < pays.wins[0][1] < 1e12
    assert 16 in slow["powersgd"].workers and not fast["topk"].workers
    assert slow["none"].sent_bytes == pytest.approx(2 * 15 / 16 * made.BYTES)
    assert slow["topk"].memory_bytes == pytest.approx(made.BYTES + 17 * made.BYTES * made.SHARE["topk"])


def test_numbers_of_workers_are_ranges(forecast: Forecast) -> None:
    found = advise(forecast, 16, parse_network("100mbit"), [], "")
    (one,) = (row for row in found.rows if row.method == "powersgd")

    def format_(*workers: int) -> str:
        return format_counts(dataclasses.replace(one, workers=workers), [2, 4, 8, 16])

    assert [format_(2, 4, 8, 16), format_(), format_(2), format_(2, 4), format_(2, 8, 16), format_(4, 8)] == [
        *("all", "none", "2", "2 to 4", "2, from 8 up", "4 to 8")
    ]


def test_files_and_page(forecast: Forecast, tmp_path: Path) -> None:
    found = advise(forecast, 16, parse_network("100mbit"), ["<script>note</script>"], "<i>model</i>")
    table = output.write(found, tmp_path, ["csv", "md"], "a & b")
    assert {path.name for path in tmp_path.iterdir()} == {"advice.csv", "advice.md", "advice.png", "advice.html"}
    assert [row[0].text for row in table.rows] == [one.method for one in found.rows]
    steps = [one.step.value for one in found.rows]
    assert steps == sorted(steps)
    page = (tmp_path / "advice.html").read_text()
    assert "<script" not in page and "<i>" not in page and "<b>" not in page
    assert "&lt;script&gt;note" in page and "a &amp; b" in page and "paper of qsgd &lt;b&gt;" in page
    assert "http" not in page.partition("<main>")[2].replace("http-equiv", "")
    places = [page.index(text) for text in (found.headline, "<table>", "a &amp; b", "<img", "<h2>Notes")]
    assert places == sorted(places), "the answer, the table, the command, the picture, the notes"
    assert "<tfoot" not in page and page.count('<div class="scroll') == page.count("<table>") == 2


def test_the_table_has_state_and_reported_accuracy(forecast: Forecast) -> None:
    table = output.build_table(advise(forecast, 16, parse_network("100mbit"), [], ""))
    names = [column.name for column in table.columns]
    cells = {row[0].text: dict(zip(names, (cell.text for cell in row), strict=True)) for row in table.rows}
    assert cells["powersgd"]["state"] == "error feedback" and cells["qsgd"]["state"] == "none"
    assert cells["powersgd"]["reported accuracy"] == "ImageNet: 90 % (91 %)" and not cells["topk"]["reported accuracy"]
    assert [column.name for column in output.shorten(table).columns] == names[:7]


def test_columns_without_texts_are_left_out(forecast: Forecast) -> None:
    found = advise(forecast, 16, parse_network("100mbit"), [], "")
    bare = dataclasses.replace(found, rows=[dataclasses.replace(one, state="", reported="") for one in found.rows])
    assert not {"state", "reported accuracy"} & {column.name for column in output.build_table(bare).columns}


def test_the_headline_answers(forecast: Forecast) -> None:
    slow, fast = (advise(forecast, 16, parse_network(name), [], "") for name in ("100mbit", "100gbit"))
    best = slow.rows[0]
    said = f"{best.method} is the fastest on 100 Mbit/s with 16 workers: {best.times.value:.3g}"
    assert slow.headline.startswith(said) and "as fast as the best uncompressed exchange; then " in slow.headline
    assert slow.about_accuracy == f"its accuracy is not predicted: {best.needs}" + (
        f"; reported (without compression): {best.reported}" if best.reported else ""
    )
    assert fast.headline.startswith(
        f"no compressor is worth it on 100 Gbit/s with 16 workers; the fastest, {fast.others[0].method}"
    )
    assert not fast.about_accuracy


def test_the_headline_tells_the_fastest_from_the_surest(forecast: Forecast) -> None:
    found = advise(forecast, 16, parse_network("100mbit"), [], "")
    base = next(one for one in found.rows if one.is_baseline)
    first, second, *_ = found.others
    doubtful = dataclasses.replace(first, times=Estimate(2.0, 0.9, 3.0))
    sure = dataclasses.replace(second, times=Estimate(1.5, 1.4, 1.6))
    changed = dataclasses.replace(found, rows=[doubtful, sure, base])
    assert changed.headline.startswith(f"{second.method} is the fastest that is certainly worth it")
    changed = dataclasses.replace(found, rows=[doubtful, base])
    assert changed.headline.endswith(f"{CLOSE}") and changed.headline.startswith("no compressor is worth it")
    unknown = dataclasses.replace(first, times=Estimate(math.nan, math.nan, math.nan))
    assert "no run has compressor=none" in dataclasses.replace(found, rows=[unknown]).headline
    assert "nothing is compared" in dataclasses.replace(found, rows=[base]).headline


def test_says_who_disturbed(tmp_path: Path) -> None:
    quiet = read_measured(made.write(tmp_path / "quiet.json"))
    assert quiet.disturbed == "" and quiet.refused == {"svd": "not enough memory"}
    readings = [{"seconds": 1e-3, "others_s": 0.5, "cores_s": 1.0}] * 9
    assert "other programs took 50 %" in read_measured(made.write(tmp_path / "busy.json", yardstick=readings)).disturbed


@pytest.mark.parametrize("changed", [{"compute": {}}, {"methods": {}}, {"parameters": None}])
def test_refuses_other_files(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"valid is a file of|no round of measurements"):
        read_measured(made.write(tmp_path / "measured.json", **changed))


def test_more_draws_of_the_same_seed_are_the_same(exact: Forecast) -> None:
    links = parse_network("1gbit")
    again = Forecast(exact.measured)
    assert again.predict_step("topk", 8, links) == exact.predict_step("topk", 8, links)
    assert math.isfinite(again.predict_times("topk", 1024, links).high)
