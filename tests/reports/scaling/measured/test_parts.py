"""What the cost model takes from run directories."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradsweep import files, run_directory
from gradsweep.errors import UsageError
from reports.reading.report import Report
from reports.scaling.measured import links, measurements
from reports.scaling.measured.cell import MeasuredCell
from reports.scaling.measured.measurements import Measurements
from reports.scaling.measured.traffic import Traffic, compute_demand
from reports.scaling.model.cross_validation import CrossValidation
from reports.scaling.model.fit import fit_model
from reports.scaling.model.predict import Predictor
from reports.scaling.output.speedup import compute_speedups
from tests.reports import fabricate
from tests.reports.scaling import truth
from tests.reports.scaling.conftest import SWEPT

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    return truth.sweep(
        tmp_path / "2026-11-20" / "10-00-00", methods=["none", "qsgd"], networks=["ethernet_1g"], noise=0.0
    )


def change(sweep: Path, name: str, what: Change, only: str = "") -> None:
    """Change the content of this file of the runs that have `only` in their name."""
    for directory in (sweep / run_directory.RUNS).iterdir():
        if only in directory.name:
            content = json.loads((directory / name).read_text())
            what(content)
            files.write_json(directory / name, content)


def read(sweep: Path) -> Measurements:
    return measurements.read_measurements(Report([sweep]).merge().runs, SWEPT)


def one(found: Measurements, method: str, workers: int) -> MeasuredCell:
    (cell,) = (cell for cell in found.cells if (cell.method, cell.workers) == (method, workers))
    return cell


def test_a_cell_is_what_was_measured(sweep: Path) -> None:
    cell = one(read(sweep), "qsgd", 4)
    phases = truth.phases("qsgd", 4, truth.NETWORKS["ethernet_1g"], 32.0)
    assert cell.step_s == pytest.approx(sum(phases.values())) and cell.samples == pytest.approx(32)
    for phase in ("encode", "communicate", "decode", "backward"):
        assert getattr(cell, f"{phase}_s") == pytest.approx(phases[phase])
    assert (cell.load, cell.network, cell.overlaps, cell.is_fair) == (2.0, "ethernet_1g", False, True)
    assert cell.links.alpha == 220e-6 and cell.links.bandwidth == pytest.approx(1e9 * 1448 / 1514)
    assert one(read(sweep), "qsgd", 2).load == 1.0


def test_repetitions_are_one_cell_with_their_median(tmp_path: Path) -> None:
    sweep = truth.sweep(tmp_path / "a" / "b", methods=["none"], networks=["none"], workers=(2, 4), seeds=3, noise=0.0)

    def slower(result: dict[str, Any]) -> None:
        result["phases_s"]["encode"] *= 50

    before = one(read(sweep), "none", 2).encode_s
    change(sweep, run_directory.RESULT, slower, only="workers=2,network=none,seed=1")
    found = read(sweep)
    assert len(found.cells) == 2 and one(found, "none", 2).encode_s == pytest.approx(before)


def test_marks_and_threads_and_overlap_are_seen(sweep: Path) -> None:
    change(
        sweep,
        run_directory.RESULT,
        lambda result: result["network"].update(marks=["bandwidth", "cpu"]),
        only="qsgd,workers=4",
    )
    change(sweep, run_directory.CONFIG, lambda config: config.update(threads_per_worker=2))
    change(sweep, run_directory.CONFIG, lambda config: config["exchange"].update(overlap=True), only="none")
    found = read(sweep)
    ours, dense = one(found, "qsgd", 4), one(found, "none", 4)
    assert not ours.is_fair and not ours.overlaps
    assert dense.is_fair and dense.overlaps and dense.load == 4.0


def test_what_differs_between_runs_of_a_compressor_is_in_the_name_of_the_method(sweep: Path) -> None:
    change(sweep, run_directory.CONFIG, lambda config: config["exchange"].update(overlap=True), only="none,workers=4")
    found = read(sweep)
    assert found.compressors == {
        "none exchange.overlap=true": "none",
        "none exchange.overlap=false": "none",
        "qsgd exchange.overlap=false": "qsgd",
    }, "the workers would do as names of the runs"


def test_models_are_apart_even_if_each_compressor_has_its_own(sweep: Path) -> None:
    change(sweep, run_directory.CONFIG, lambda config: config["model"].update(name="lenet"), only="none")
    assert {(cell.workload, cell.method) for cell in read(sweep).cells} == {
        ("model=lenet", "none"),
        ("model=wideresnet", "qsgd"),
    }


def test_cores_that_a_worker_has_for_itself_are_no_crowd(sweep: Path) -> None:
    change(sweep, run_directory.STATE, lambda state: state.update(oversubscribed=False))
    assert {cell.load for cell in read(sweep).cells} == {1.0}


def test_an_emulated_network_that_was_not_measured_is_what_it_was_asked_to_be(sweep: Path) -> None:
    own: Mapping[str, Any] = {"name": "emulated", "bandwidth": "100mbit", "latency": "3ms", "loss": 0.0}
    change(sweep, run_directory.CONFIG, lambda config: config.update(network=own))
    change(sweep, run_directory.RESULT, lambda result: result.pop("network"))
    cell = one(read(sweep), "none", 4)
    assert cell.network == "emulated 100mbit 3ms"
    assert cell.links.alpha == pytest.approx(3e-3) and cell.links.bandwidth == pytest.approx(1e8 * 1448 / 1514)


def test_runs_of_versions_without_networks_are_of_none(sweep: Path) -> None:
    change(sweep, run_directory.CONFIG, lambda config: config.pop("network"))
    change(sweep, run_directory.RESULT, lambda result: result.pop("network"))
    found = read(sweep)
    assert {cell.network for cell in found.cells} == {"none"} and found.cells[0].links == links.MEMORY
    assert found.networks == []


def test_what_has_no_model_is_left_out_with_its_reason(sweep: Path) -> None:
    change(sweep, run_directory.CONFIG, lambda config: config["exchange"].update(name="parameter_server"), only="qsgd")
    found = read(sweep)
    assert {cell.method for cell in found.cells} == {"none"}
    (reason,) = found.left_out
    assert reason.startswith("qsgd: exchange=parameter_server ") and "simulator" in reason
    assert {key[1] for key in found.traffic} == {"none"}
    change(sweep, run_directory.CONFIG, lambda config: config["exchange"].update(name="hierarchical"), only="none")
    with pytest.raises(UsageError, match="no method is left with two numbers of workers: .*hierarchical"):
        read(sweep)


def test_runs_without_phases_are_not_used(sweep: Path) -> None:
    change(sweep, run_directory.RESULT, lambda result: result.pop("phases_s"), only="compressor=qsgd,workers=4")
    assert {(cell.method, cell.workers) for cell in read(sweep).cells} == {
        *(("none", workers) for workers in (2, 4, 8)),
        *(("qsgd", workers) for workers in (2, 8)),
    }


def test_steps_between_two_exchanges_and_neighbours_are_seen(sweep: Path) -> None:
    change(
        sweep,
        run_directory.CONFIG,
        lambda config: config.update(algorithm={"name": "local_sgd", "steps": 8}),
        only="none",
    )
    gossip = {"algorithm": {"name": "dpsgd"}, "topology": {"name": "ring"}}
    change(sweep, run_directory.CONFIG, lambda config: config.update(gossip), only="qsgd")
    change(sweep, run_directory.RESULT, lambda result: result.update(messages_per_step=2.0), only="qsgd")
    found = read(sweep)
    by_name = {method.partition(" ")[0]: traffic for (_, method), traffic in found.traffic.items()}
    assert by_name["none"].every == 8 and by_name["none"].summed == pytest.approx(8 * truth.DENSE_BYTES)
    gathered = truth.METHODS["qsgd"].payload
    assert by_name["qsgd"] == Traffic("gossip", gathered=gathered, degree=2.0)


def gossip(sweep: Path, topology: str, *neighbours: float) -> Measurements:
    """The parts where qsgd gossips over this graph: messages of a worker with 2, 4 and 8."""
    section = {"algorithm": {"name": "dpsgd"}, "topology": {"name": topology}}
    change(sweep, run_directory.CONFIG, lambda config: config.update(section), only="qsgd")
    for workers, count in zip((2, 4, 8), neighbours, strict=True):

        def sent(result: dict[str, Any], count: float = count) -> None:
            result["messages_per_step"] = count

        change(sweep, run_directory.RESULT, sent, only=f"qsgd,workers={workers},")
    return read(sweep)


def test_neighbours_grow_with_the_workers_where_the_graph_has_it_so(sweep: Path) -> None:
    found = gossip(sweep, "hypercube", 1.0, 2.0, 3.0)
    (traffic,) = (traffic for (_, method), traffic in found.traffic.items() if method.startswith("qsgd"))
    assert [traffic.count_payloads(workers) - 1 for workers in (2, 8, 1024)] == [1, 3, 10] and not found.remarks


def test_neighbours_that_may_be_others_with_other_workers_are_told(sweep: Path) -> None:
    found = gossip(sweep, "torus", 1.0, 2.0, 3.0)
    (traffic,) = (traffic for (_, method), traffic in found.traffic.items() if method.startswith("qsgd"))
    assert traffic.count_payloads(1024) == 4
    (remark,) = found.remarks
    assert remark.startswith("qsgd") and "torus counts with 3 neighbours whatever the workers" in remark


def test_a_hub_is_not_modelled(sweep: Path) -> None:
    found = gossip(sweep, "star", 1.0, 1.5, 1.75)
    assert {cell.method.partition(" ")[0] for cell in found.cells} == {"none"}
    assert "topology=star is not in the cost model" in found.left_out[0]


def test_rounds_that_change_are_not_modelled(sweep: Path) -> None:
    change(sweep, run_directory.CONFIG, lambda config: config.update(optimizer={"name": "zero_one_adam"}), only="qsgd")
    found = read(sweep)
    assert {cell.method.partition(" ")[0] for cell in found.cells} == {"none"}
    assert "optimizer=zero_one_adam, whose rounds change, is not in the cost model" in found.left_out[0]


def test_a_method_with_one_number_of_workers_is_left_out_with_what_to_run(sweep: Path) -> None:
    for workers in (4, 8):
        change(sweep, run_directory.STATE, lambda state: state.update(status="failed"), only=f"qsgd,workers={workers},")
    found = read(sweep)
    assert {cell.method for cell in found.cells} == {"none"} and list(found.traffic) == [("", "none")]
    assert found.left_out == ["qsgd: measured with workers=2 only; run it with workers=4,8 too"]


def test_one_worker_tells_nothing_of_communication(tmp_path: Path) -> None:
    sweep = truth.sweep(tmp_path / "a" / "b", methods=["none"], networks=["none"], workers=(1, 2))
    with pytest.raises(UsageError, match="have workers=1,2, but .* two numbers above 1; run .* workers=4,8 "):
        read(sweep)


def marked(sweep: Path, only: str) -> Measurements:
    """The parts where these runs got 200 Mbit/s, since the CPUs gave no more."""

    def slower(result: dict[str, Any]) -> None:
        network = result["network"]
        network["expected"] = dict(network["measured"])
        network["measured"] |= {"bandwidth": 2e8, "ring_bandwidth": 2e8}
        network["marks"] = ["bandwidth", "cpu"]

    change(sweep, run_directory.RESULT, slower, only=only)
    return read(sweep)


def test_links_are_those_of_runs_that_the_cpus_did_not_limit(sweep: Path) -> None:
    found = marked(sweep, "workers=8")
    assert [one.bandwidth for one in found.networks] == [pytest.approx(1e9 * 1448 / 1514)]
    assert found.promised == [] and found.limited == [] and len(found.cells) == 6


def test_of_a_network_that_the_cpus_limited_always_only_the_promise_counts(tmp_path: Path) -> None:
    names = ["ethernet_1g", "wan_100m"]
    sweep = truth.sweep(tmp_path / "a" / "b", methods=["none", "qsgd"], networks=names, noise=0.0)
    found = marked(sweep, "network=ethernet_1g")
    assert [one.name for one in found.networks] == ["wan_100m"] and found.limited == ["ethernet_1g"]
    (promised,) = found.promised
    assert promised.name == "ethernet_1g" and promised.bandwidth == pytest.approx(1e9 * 1448 / 1514)


def test_a_sweep_that_the_cpus_limited_says_so(sweep: Path) -> None:
    with pytest.raises(
        UsageError, match="none, qsgd: with workers=4,8 the CPUs were the limit, .* workers=2 only; run"
    ):
        marked(sweep, "workers=4")
        marked(sweep, "workers=8")


SPOILT: dict[str, tuple[str, dict[str, Any], str]] = {
    "shared": (run_directory.STATE, {"shared_cores": True}, "cores shared with other runs"),
    "disturbed": (run_directory.RESULT, {"yardstick": fabricate.yardstick(others=0.5)}, "disturbed by other programs"),
}


def test_runs_of_few_steps_are_used_and_mentioned(sweep: Path) -> None:
    before = read(sweep)
    change(sweep, run_directory.RESULT, lambda content: content.update(timed_steps=12), "=none")
    found = read(sweep)
    assert found.cells == before.cells and found.remarks == ["used all the same: 3 runs (3 few timed steps)"]


@pytest.mark.parametrize("why", SPOILT)
def test_runs_whose_times_tell_nothing_are_not_used(why: str, sweep: Path) -> None:
    file, content, words = SPOILT[why]
    change(sweep, file, lambda found: found.update(content), only="qsgd,workers=8")
    found = read(sweep)
    assert {cell.workers for cell in found.cells if cell.method == "qsgd"} == {2, 4}
    assert found.remarks == [f"not used: 1 run (1 {words}) of 6"]
    change(sweep, file, lambda found: found.update(content))
    with pytest.raises(UsageError, match=rf"all finished runs tell nothing: 6 runs \(6 {words}\)"):
        read(sweep)


def test_batches_are_cells_of_their_own(tmp_path: Path) -> None:
    """Half of the runs, by their seed, have 128 samples a worker instead of 32."""
    sweep = truth.sweep(tmp_path / "a" / "b", methods=["none"], networks=["none"], seeds=2, noise=0.0)
    change(
        sweep, run_directory.CONFIG, lambda config: config.update(batch={"size": 32, "per": "worker"}), only="seed=0"
    )
    change(
        sweep, run_directory.CONFIG, lambda config: config.update(batch={"size": 128, "per": "worker"}), only="seed=1"
    )

    def more(result: dict[str, Any]) -> None:
        result["samples_per_second"] *= 4

    change(sweep, run_directory.RESULT, more, only="seed=1")
    found = measurements.read_measurements(Report([sweep]).merge().runs, (*SWEPT, "batch.size"))
    assert {(cell.workers, cell.batch, round(cell.samples)) for cell in found.cells} == {
        (workers, f"batch.size={samples}", samples) for workers in (2, 4, 8) for samples in (32, 128)
    }


def test_calls_are_those_of_result_json_and_overlap_is_beside_backward(tmp_path: Path) -> None:
    sweep = truth.sweep(tmp_path / "a" / "b", methods=["svd", "none"], networks=["none"], overlap=True, noise=0.0)
    found = read(sweep)
    svd = found.traffic["", "svd"]
    assert (svd.gathers, svd.sizes, svd.early) == (11, 11, 10)
    cell = one(found, "svd", 4)
    assert cell.beside_s == cell.backward_s
    gossip = {"algorithm": {"name": "dpsgd"}, "topology": {"name": "ring"}}
    change(sweep, run_directory.CONFIG, lambda config: config.update(gossip), only="svd")
    cell = next(cell for cell in read(sweep).cells if cell.method.startswith("svd") and cell.workers == 4)
    assert cell.beside_s == pytest.approx(cell.backward_s + truth.phases("svd", 4, None, 32.0)["forward"])


@pytest.mark.parametrize(("granularity", "calls"), [("layer", 14), ("bucket", 11), ("model", 1)])
def test_calls_of_earlier_runs_are_estimated_from_the_gradient(sweep: Path, granularity: str, calls: int) -> None:
    change(sweep, run_directory.RESULT, lambda result: result.pop("collectives_per_step"))
    exchange = {"granularity": granularity, "bucket_mib": 4.0}
    change(sweep, run_directory.CONFIG, lambda config: config["exchange"].update(exchange))
    change(sweep, run_directory.CONFIG, lambda config: config["compressor"].update(name="svd"), only="qsgd")
    (svd,) = (traffic for (_, method), traffic in read(sweep).traffic.items() if "none" not in method)
    assert svd.gathers == svd.sizes == calls


def race(sweep: Path, **records: Any) -> dict[int, list[str]]:
    """Let the sweep's runs be those of race=only: no result, all figures in races/; return runs by workers."""
    by_workers: dict[int, list[Path]] = {}
    for directory in sorted((sweep / run_directory.RUNS).iterdir()):
        config = json.loads((directory / run_directory.CONFIG).read_text())
        by_workers.setdefault(config["workers"], []).append(directory)
    for workers, runs in by_workers.items():
        place = sweep / run_directory.RACES / f"workers={workers}"
        place.mkdir(parents=True)
        figures, traffic, network = {}, {}, None
        for run in runs:
            result = json.loads((run / run_directory.RESULT).read_text())
            step = 1 / result["iterations_per_second"]
            figures[run.name] = {"step_s": step, "phases_s": result["phases_s"], "ratio": 1.5, "blocks": 9}
            figures[run.name] |= {"ratio_low": 0.9, "ratio_high": 2.0, "timed_steps": 90}
            names = ("parameters", "payload_bytes", "sent_bytes", "collectives_per_step")
            traffic[run.name] = {name: result[name] for name in names} | {"samples": 32.0}
            network = result["network"]
            state = json.loads((run / run_directory.STATE).read_text())
            files.write_json(place / run_directory.STATE, state)
            files.write_json(run / run_directory.STATE, {**state, "attempts": [], "status": "pending"})
            (run / run_directory.RESULT).unlink()
        names = [run.name for run in runs]
        racers = {name: [name] for name in names}
        heat = {"heat": 1, "baseline": next(name for name in names if "=none" in name), "runs": figures, "pairs": []}
        about = {"format": 1, "finished": True, "racers": racers, "heats": [heat], "left_out": {}, "network": network}
        files.write_json(place / run_directory.RATIOS, {**about, "traffic": traffic, **records})
        files.write_json(place / run_directory.RACE_PLAN, {"racers": racers})
    return {workers: [run.name for run in runs] for workers, runs in by_workers.items()}


def test_runs_that_only_raced_have_the_cells_of_trained_ones(sweep: Path) -> None:
    trained = read(sweep)
    race(sweep)
    raced = read(sweep)
    assert raced.traffic == trained.traffic and len(raced.cells) == len(trained.cells) == 6
    for cell in trained.cells:
        here = one(raced, cell.method, cell.workers)
        assert here.raced == ("none", 1.5, 0.9, 2.0) and cell.raced is None
        for field in dataclasses.fields(cell):
            expected, value = getattr(cell, field.name), getattr(here, field.name)
            assert field.name == "raced" or value == (
                pytest.approx(expected) if isinstance(expected, float) else expected
            )


def test_a_measured_lead_has_the_interval_of_its_race(sweep: Path) -> None:
    race(sweep)
    found = read(sweep)
    predictor = Predictor(found, fit_model(found.cells, found.traffic), CrossValidation([], []))
    predictions = predictor.predict(found.networks, [2])
    (lead,) = compute_speedups(predictor, predictions, {link.name: link for link in found.networks})
    assert lead.is_measured and (lead.low, lead.high) == (0.9, 2.0) and lead.is_close


def test_a_tuned_exchange_has_the_setting_that_its_trial_found(sweep: Path) -> None:
    """The baseline's is `tuned`, that of others `also_tuned`; elsewhere a trial would find the fastest setting."""
    setting = {"overlap": True, "part_mib": 16.0, "allreduce": "rabenseifner", "tried": []}
    race(sweep, tuned=setting)
    found = read(sweep)
    assert any(remark.startswith("baseline none") for remark in found.remarks), "what it was allowed"
    for method, tuned in (("none", True), ("qsgd", False)):
        for workers in (2, 4, 8):
            cell = one(found, method, workers)
            assert (cell.overlaps, cell.part, cell.allreduce) == (
                (True, 16.0, "rabenseifner") if tuned else (False, 1.0, "")
            )
        assert found.traffic["", method].is_tuned == tuned
    traffic = found.traffic["", "none"]
    assert traffic.part == 16 and traffic.allreduce == "rabenseifner"
    options = traffic.list_settings(1024)
    assert {(option.part, option.allreduce) for option in options} == {
        (part, name) for part in (32.0, 4.0, 16.0, 64.0) for name in ("ring", "recursive_doubling", "rabenseifner")
    }
    model = fit_model(found.cells, found.traffic)
    links = found.networks[0]
    best = model.predict_step(("", "none"), 1024, links, 32.0).communicate
    for option in options:
        method = dataclasses.replace(
            model.methods["", "none"], traffic=dataclasses.replace(option, is_tuned=False, is_fixed=True)
        )
        other = dataclasses.replace(model, methods={("", "none"): method})
        assert best <= other.predict_step(("", "none"), 1024, links, 32.0).communicate * (1 + 1e-9)
    cell = one(found, "none", 8)
    demand = compute_demand(cell.get_traffic(traffic), 8)
    assert demand.messages == 6 * traffic.sums, "twice lg 8 steps a call, not those of a ring"


def test_parts_and_algorithms_of_the_config_are_those_of_its_runs(sweep: Path) -> None:
    change(sweep, run_directory.CONFIG, lambda config: config["exchange"].update(part_mib=8, allreduce="ring"), "=none")
    found = read(sweep)
    traffic = found.traffic["", "none"]
    assert (traffic.part, traffic.allreduce, traffic.is_fixed, traffic.is_tuned) == (8.0, "ring", True, False)
    assert traffic.count_calls(1024) is traffic and one(found, "none", 4).part == 8.0
    assert found.traffic["", "qsgd"].count_calls(1024).part == 32
