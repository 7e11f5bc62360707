"""The model against steps whose laws are known (tests/reports/scaling/truth.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from gradsweep.errors import UsageError
from reports.scaling.measured.cell import MeasuredCell
from reports.scaling.measured.links import BYTE_S, MESSAGE_S, Links, parse_network
from reports.scaling.measured.measurements import Measurements
from reports.scaling.measured.traffic import Traffic, compute_demand
from reports.scaling.model import fit
from reports.scaling.model.cross_validation import CrossValidation, cross_validate, refuse_poor_fit
from reports.scaling.model.fit import compute_exposed, expect_maximum
from reports.scaling.model.predict import Predictor
from tests.reports.scaling import truth
from tests.reports.scaling.truth import METHODS

Made = Callable[..., Measurements]


def test_cells_that_were_left_out_are_found_within_what_is_promised(predictor: Predictor) -> None:
    found = predictor.check
    assert len(found.held) == 45 and found.median < 0.10 and found.p90 < 0.25
    assert found.beyond and {one.cell.workers for one in found.beyond} == {8} and found.beyond_median < 0.10
    refuse_poor_fit(found)


def test_parts_are_those_of_the_law(predictor: Predictor) -> None:
    model = predictor.model
    for name, law in METHODS.items():
        one = model.methods["", name]
        assert one.encode == pytest.approx(law.encode, rel=0.05)
        decode = one.decode + one.decode_each * one.traffic.count_payloads(8)
        assert decode == pytest.approx(law.decode * (1 if law.is_summed else 8), rel=0.08)
        assert one.traffic.summed + one.traffic.gathered == pytest.approx(law.payload)
    k_a, k_b, _, per_byte, spread = model.shared
    assert k_a == pytest.approx(1, abs=0.15) and k_b == pytest.approx(1, abs=0.06)
    assert per_byte == pytest.approx(truth.CPU_BYTE, rel=0.2) and spread < 0.03
    assert model.kappa == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("workers", [16, 64, 256])
@pytest.mark.parametrize("rate", [1e8, 1e9, 1e10])
def test_extrapolates_to_more_workers_with_cores_of_their_own(
    predictor: Predictor, name: str, workers: int, rate: float
) -> None:
    """Fitted to 2, 4 and 8 ranks on two cores."""
    links = Links("", 1e-3, 8 / (rate * 1448 / 1514))
    found = predictor.predict_step("", name, workers, links)
    assert found.total == pytest.approx(truth.step_s(name, workers, (rate, 1e-3), 32.0, cores=None), rel=0.12)


def test_work_that_crowds_less_than_in_proportion(made: Made) -> None:
    parts = made(kappa=0.7, noise=0.02)
    assert fit.fit_model(parts.cells, parts.traffic).kappa == pytest.approx(0.7, abs=0.05)
    assert cross_validate(parts).median < 0.05


def test_a_global_batch_tells_the_fixed_part_of_a_step_from_that_of_a_sample(made: Made) -> None:
    parts = made(global_batch=128, noise=0.01)
    work = fit.fit_model(parts.cells, parts.traffic).works[""]
    assert work.each == pytest.approx(truth.FORWARD + truth.BACKWARD, rel=0.05)
    assert work.fixed == pytest.approx(truth.FIXED + truth.UPDATE, rel=0.2)
    assert cross_validate(parts).p90 < 0.1


def test_a_few_samples_less_tell_nothing_of_the_fixed_part(made: Made) -> None:
    """The last batch of an epoch may be shorter."""
    parts = made(noise=0.1, networks=["none"])
    cells = [
        dataclasses.replace(cell, samples=cell.samples * 0.95) if cell.workers == 8 else cell for cell in parts.cells
    ]
    assert fit.fit_model(cells, parts.traffic).works[""].fixed == 0.0


def test_overlap_hides_what_backward_takes(made: Made) -> None:
    parts = made(overlap=True, noise=0.02)
    assert all(cell.overlaps for cell in parts.cells) and cross_validate(parts).p90 < 0.15
    model = fit.fit_model(parts.cells, parts.traffic)
    for rate in (1e9, 1e10):
        links = Links("", 1e-4, 8 / (rate * 1448 / 1514))
        step = truth.step_s("none", 16, (rate, 1e-4), 32.0, cores=None, overlap=True)
        assert model.predict_step(("", "none"), 16, links, 32.0).total == pytest.approx(step, rel=0.12)


@pytest.mark.parametrize("name", truth.LAWS)
@pytest.mark.parametrize("rate", [1e8, 1e9])
def test_only_what_leaves_early_is_hidden(made: Made, name: str, rate: float) -> None:
    """Rounds and a single part with its sizes are not."""
    parts = made(methods=[name], overlap=True, noise=0.0)
    links = Links("", 1e-3, 8 / (rate * 1448 / 1514))
    found = fit.fit_model(parts.cells, parts.traffic).predict_step(("", name), 8, links, 32.0)
    alone = truth.phases(name, 8, (rate, 1e-3), 32.0, cores=None)["communicate"]
    left = truth.phases(name, 8, (rate, 1e-3), 32.0, cores=None, overlap=True)["communicate"]
    assert found.communicate == pytest.approx(left, rel=0.1)
    assert (left < alone - 0.005) == (name not in ("powersgd", "topk"))


def test_what_overlap_leaves_to_wait_for() -> None:
    assert compute_exposed(10.0, 0.0, 5.0) == 10.0, "nothing leaves before all is there"
    assert compute_exposed(10.0, 0.9, 4.5) == 5.5 and compute_exposed(10.0, 0.9, 100.0) == pytest.approx(1.0)


def test_gossip_travels_beside_forward_and_backward(made: Made) -> None:
    """And where it is hidden the runs do not tell how long it took."""
    parts = made(methods=["qsgd"], noise=0.0, networks=["ethernet_1g", "wan_100m"])
    gossip = Traffic("gossip", gathered=parts.traffic["", "qsgd"].gathered, degree=2.0)
    cells = []
    for cell in parts.cells:
        beside = 0.9 * cell.compute_s
        asked = compute_demand(gossip, cell.workers)
        time = cell.links.alpha * asked.latencies + cell.links.beta * asked.bytes
        left = max(0.0, time - beside)
        cells.append(dataclasses.replace(cell, overlaps=True, beside_s=beside, communicate_s=left))
    model = fit.fit_model(cells, {("", "qsgd"): gossip})
    assert model.shared[:2] == pytest.approx((1, 1), abs=0.1)
    slow, fast = (Links("", 1e-3, 8 / rate) for rate in (1e8, 1e10))
    compute = model.works[""].each * 32
    assert model.predict_step(("", "qsgd"), 16, fast, 32.0).communicate < 0.06 * compute, "the slowest is waited for"
    expected = 3e-3 + 2 * gossip.gathered * slow.beta - 0.9 * compute
    assert model.predict_step(("", "qsgd"), 16, slow, 32.0).communicate == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("counts", "within"), [(True, 0.05), (False, 0.5)])
def test_many_short_parts_take_many_latencies(made: Made, counts: bool, within: float) -> None:
    """Of a compressor whose payloads may be as long as the gradient; runs that have not counted them are estimated."""
    parts = made(methods=["none", "svd"], counts=counts, noise=0.0)
    found = fit.fit_model(parts.cells, parts.traffic).predict_step(
        ("", "svd"), 64, parse_network("100mbit", 10e-3), 32.0
    )
    expected = truth.step_s("svd", 64, (1e8, 10e-3), 32.0, cores=None)
    assert found.total == pytest.approx(expected, rel=within)


def test_one_disturbed_run_does_not_spoil_the_others(made: Made) -> None:
    parts = made(noise=0.02)
    (place,) = (
        place
        for place, cell in enumerate(parts.cells)
        if (cell.method, cell.workers, cell.network) == ("qsgd", 4, "ethernet_1g")
    )
    cells = list(parts.cells)
    before = fit.fit_model(cells, parts.traffic).predict_cell(cells[place]).total
    cells[place] = dataclasses.replace(cells[place], communicate_s=10 * cells[place].communicate_s)
    assert fit.fit_model(cells, parts.traffic).predict_cell(cells[place]).total == pytest.approx(before, rel=0.04)


def test_runs_that_the_cpu_has_limited_tell_nothing_of_the_network(made: Made) -> None:
    parts = made(noise=0.0, networks=["ethernet_1g"])
    model = fit.fit_model(parts.cells, parts.traffic)
    limited = [
        dataclasses.replace(cell, communicate_s=3 * cell.communicate_s, is_fair=False, method=cell.method)
        for cell in parts.cells
        if cell.workers == 8
    ]
    fair = [cell for cell in parts.cells if cell.workers < 8]
    both = fit.fit_model([*fair, *limited], parts.traffic)
    assert both.shared == pytest.approx(fit.fit_model(fair, parts.traffic).shared)
    held = cross_validate(dataclasses.replace(parts, cells=[*fair, *limited])).held
    assert {one.cell.workers for one in held} == {2, 4}, "nor are they predicted"
    told = fit.fit_model([*fair, *(dataclasses.replace(cell, is_fair=True) for cell in limited)], parts.traffic)
    assert told.shared != pytest.approx(model.shared, rel=0.01)


def test_waiting_grows_with_the_workers() -> None:
    """Against the means of the largest of normal numbers, as tables have them (Teichroew, 1956)."""
    for workers, mean in ((2, 0.5642), (4, 1.0294), (8, 1.4236), (20, 1.8675)):
        assert expect_maximum(workers) == pytest.approx(mean, rel=0.05)
    assert expect_maximum(1) == 0.0


def test_nonsense_is_not_extrapolated(made: Made) -> None:
    parts = made(noise=1.5)
    with pytest.raises(
        UsageError, match=r"scaling: nothing is extrapolated: .* 45 cells left out one by one [0-9.]+ times too long"
    ):
        refuse_poor_fit(cross_validate(parts))


@pytest.mark.parametrize("ratio", [2.2, 1 / 2.2])
def test_steps_that_are_taken_for_too_short_count_as_those_that_are_taken_for_too_long(
    predictor: Predictor, ratio: float
) -> None:
    """Each fifth is missed by as many times: an error of +120 %, or -55 %."""
    held = []
    for place, one in enumerate(predictor.check.held):
        step = one.cell.step_s * (ratio if place % 5 == 0 else 1.0)
        held.append(dataclasses.replace(one, predicted=fit.StepTimes(step, 0.0, 0.0, 0.0)))
    with pytest.raises(UsageError, match=r"2.2 times too long or too short \(90th percentile; at most 2 times"):
        refuse_poor_fit(CrossValidation(held, []))
    refuse_poor_fit(CrossValidation([one for place, one in enumerate(held) if place % 5], []))


def test_neither_the_times_nor_the_bytes_of_a_cell_that_is_left_out_are_used(made: Made) -> None:
    """Of 8 workers, whose bytes are those that count: only they had sent so many."""
    parts = made(methods=["none", "qsgd"], networks=["ethernet_1g"], noise=0.0)
    rows = {
        key: [{**row, **{name: row[name] * 10 for name in ("payload_bytes", "sent_bytes")}} for row in group]
        if (key[1], key[3]) == ("qsgd", 8)
        else group
        for key, group in parts.rows.items()
    }
    changed = dataclasses.replace(parts, rows=rows)
    changed = dataclasses.replace(changed, traffic=changed.infer_traffic(changed.cells))
    assert changed.traffic["", "qsgd"].gathered == pytest.approx(10 * METHODS["qsgd"].payload)
    for held in (cross_validate(changed).held, cross_validate(changed).beyond):
        (one,) = (one for one in held if (one.cell.method, one.cell.workers) == ("qsgd", 8))
        assert one.model.methods["", "qsgd"].traffic.gathered == pytest.approx(METHODS["qsgd"].payload)
        assert abs(one.error) < 0.1


def test_too_few_cells_are_refused(made: Made) -> None:
    parts = made(methods=["none"], workers=(2, 4), networks=["none"])
    with pytest.raises(UsageError, match="2 cells .* can be left out .* takes 4 or more; run more compressors"):
        refuse_poor_fit(cross_validate(parts))
    limited = [*parts.cells, *(dataclasses.replace(cell, is_fair=False) for cell in parts.cells)]
    with pytest.raises(UsageError, match="4 or more; in 2 the CPUs were the limit, .* slower network or more cores"):
        refuse_poor_fit(cross_validate(dataclasses.replace(parts, cells=limited)))


def test_models_are_stacked_for_one_method(predictor: Predictor) -> None:
    held = [one for one in predictor.check.held if ("", "topk") in one.model.methods][:5]
    stacked = fit.stack_models([one.model for one in held], ("", "topk"))
    links = parse_network("10gbit")
    each = [one.model.predict_step(("", "topk"), 64, links, 32.0).total for one in held]
    assert np.allclose(stacked.predict_step(("", "topk"), 64, links, 32.0).total, each)


def test_figures_of_an_emulated_network_hold_there_only(made: Made) -> None:
    """On a real network they go into other networks, too; a typed overhead goes before all that was fitted."""
    parts = made(methods=["none", "qsgd"], networks=["none", "ethernet_1g"], noise=0.0)
    real = fit.fit_model(parts.cells, parts.traffic)
    assert real.real == real.shared == real.get_figures(parse_network("100gbit"))

    def emulate(cell: MeasuredCell) -> MeasuredCell:
        links = dataclasses.replace(cell.links, is_emulated=cell.network != "none")
        slow = cell.communicate_s + 1e-3 * compute_demand(parts.traffic["", cell.method], cell.workers).messages
        return dataclasses.replace(cell, links=links, communicate_s=slow if links.is_emulated else cell.communicate_s)

    cells = [emulate(cell) for cell in parts.cells]
    model = fit.fit_model(cells, parts.traffic)
    (here,) = {cell.links for cell in cells if cell.links.is_emulated and cell.workers == 2 and cell.method == "none"}
    assert model.real is None and model.get_figures(here) == model.shared != real.shared
    for name, per_message, per_byte in (("100gbit", MESSAGE_S, BYTE_S), ("infiniband", 0.0, 0.0)):
        assert model.get_figures(parse_network(name)) == (1.0, 1.0, per_message, per_byte, model.shared[4])
    typed = parse_network("100gbit", overhead=7e-6)
    assert model.get_figures(typed)[2] == real.get_figures(typed)[2] == 7e-6
    both = fit.fit_model([*(cell for cell in cells if cell.links.is_emulated), *parts.cells], parts.traffic)
    assert both.real == pytest.approx(real.shared) and both.get_figures(parse_network("1gbit")) == both.real
    assert both.get_figures(here) == both.shared != both.real
    traffic = parts.traffic["", "none"]
    step = model.predict_step(("", "none"), 1024, typed, 32.0)
    messages = compute_demand(traffic.count_calls(1024), 1024).messages
    again = model.predict_step(("", "none"), 1024, parse_network("100gbit", overhead=9e-6), 32.0)
    assert again.total - step.total == pytest.approx(2e-6 * messages)
