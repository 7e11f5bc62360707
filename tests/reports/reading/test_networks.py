"""What tables say of the networks that runs were measured to have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import reports
from gradsweep import files, run_directory
from reports.__main__ import main as command
from reports.analysis.grid import lay_out_runs
from reports.analysis.table import MARKS, ReportTable
from reports.building.sweep_report import BuiltReport, build_report
from reports.plots import layout
from reports.reading.columns import RUN_COLUMNS
from reports.reading.networks import format_network
from reports.tables import formats
from reports.tables.sweep_tables import write_headline
from tests.reports import fabricate

GIGABIT = {"name": "ethernet_1g", "bandwidth": "1gbit", "latency": "200us", "loss": 0.0, "workers_per_host": 1}
SLOW = {**GIGABIT, "name": "wan_100m", "bandwidth": "100mbit", "latency": "10ms"}
OWN = {**GIGABIT, "name": "emulated"}
PROBLEM = "latency is not emulated: no C compiler (package gcc)"
SWEPT = {"swept": ["network", "compressor", "workers"]}


def config(network: dict[str, Any], compressor: str = "none", workers: int = 2) -> dict[str, Any]:
    return {**fabricate.config(compressor, workers), "network": network}


def tell(sweep: Path, of: Callable[[dict[str, Any]], bool], **said: Any) -> None:
    """Change what those runs say of their network for whose network `of` is true."""
    for run in run_directory.runs_of(sweep):
        result = run.result() or {}
        if of(result.get("network", {}).get("network", {})):
            one = {"network": result["network"]["network"], "workers": result["network"]["hosts"]}
            files.write_json(run.path(run_directory.RESULT), {**result, "network": fabricate.network(one, **said)})


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compressors on three networks, of which one was off, could not be delayed, and kept all cores busy."""
    configs = [
        config(network, name, workers)
        for network in ({"name": "none"}, GIGABIT, SLOW)
        for name in ("none", "qsgd")
        for workers in (2, 4)
    ]
    made = fabricate.sweep(tmp_path_factory.mktemp("output") / "2026-11-22" / "networks", configs, **SWEPT)
    marks = ("latency", "bandwidth", "cpu")
    tell(made, lambda one: one == SLOW, marks=marks, problems=[PROBLEM], latency_s=3e-5, ring_bandwidth=7e7)
    return made


@pytest.fixture(scope="module")
def built(sweep: Path) -> BuiltReport:
    return build_report(sweep)


def test_runs_say_what_was_measured(sweep: Path) -> None:
    runs = reports.load(sweep).runs
    assert {name: str(runs[name].dtype) for name in runs if name.startswith("network_")} == {
        name: dtype for name, dtype in RUN_COLUMNS.items() if name.startswith("network_")
    }
    by_network = {name: found.iloc[0] for name, found in runs.groupby("network")}
    good, bad, none = by_network["ethernet_1g"], by_network["wan_100m"], by_network["none"]
    assert (good["network_latency_s"], good["network_bandwidth"]) == (200e-6, 0.956e9)
    assert not good["network_off"] and not good["network_cpu_limited"] and pd.isna(good["network_problems"])
    assert bad["network_off"] and bad["network_cpu_limited"] and bad["network_problems"] == PROBLEM
    assert (bad["network_latency_s"], bad["network_bandwidth"]) == (3e-5, 7e7)
    assert none[[name for name in RUN_COLUMNS if name.startswith("network_")]].isna().all()


@pytest.mark.parametrize(
    "damaged",
    ["fast", [], {"measured": 3, "marks": []}, {"measured": {"latency_s": "x"}, "marks": ["cpu"]}, {"emulation": 3}],
)
def test_what_is_damaged_is_not_known(damaged: Any, tmp_path: Path) -> None:
    made = fabricate.sweep(tmp_path / "s", [config(GIGABIT)])
    (run,) = run_directory.runs_of(made)
    files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), "network": damaged})
    (found,) = reports.load(made).runs.to_dict("records")
    assert pd.isna(found["network_latency_s"]) and pd.isna(found["network_problems"]) and found["accuracy"] > 0


def concerns_times(table: ReportTable) -> bool:
    return table.name in ("time", "efficiency", "speedup", "phases", "runs", "accuracy_equal_time") or (
        table.name.startswith(("throughput", "time_to"))
    )


@pytest.mark.thorough
def test_networks_are_rows_of_tables(built: BuiltReport) -> None:
    throughput = next(table for table in built.tables if table.name == "throughput")
    assert [column.name for column in throughput.columns[:2]] == ["compressor", "network"]
    assert [tuple(cell.text for cell in row[:2]) for row in throughput.rows] == [
        (compressor, network) for compressor in ("none", "qsgd") for network in ("ethernet_1g", "none", "wan_100m")
    ]
    said = throughput.settings.split("set by what was swept: ")[1]
    assert {"network.bandwidth", "network.latency"} <= set(said.split(", "))


def test_options_of_a_network_are_rows_where_they_differ(tmp_path: Path) -> None:
    configs = [config({**OWN, "bandwidth": rate}, name) for rate in ("1gbit", "100mbit") for name in ("none", "qsgd")]
    configs += [config(GIGABIT, name) for name in ("none", "qsgd")]
    made = fabricate.sweep(tmp_path / "s", configs, swept=["network", "network.bandwidth", "compressor"])
    (table,) = (table for table in build_report(made, pictures=()).tables if table.name == "accuracy")
    assert [column.name for column in table.columns[:3]] == ["compressor", "network", "network.bandwidth"]
    assert len(table.rows) == 6


def test_networks_of_ones_own_are_told_apart_by_all_that_is_different(tmp_path: Path) -> None:
    """Also where a host has something of its own."""
    office = {**OWN, "bandwidth": "300mbit", "hosts": {1: {"latency": "2ms"}}}
    configs = [config(network, name) for network in (office, {**OWN, "hosts": {}}) for name in ("none", "qsgd")]
    made = fabricate.sweep(tmp_path / "s", configs, swept=["network", "compressor"])
    keys = lay_out_runs(reports.load(made).runs, ["network", "compressor"]).keys
    assert set(keys) == {"network.bandwidth", "network.hosts", "network.hosts.1.latency"}


def test_networks_that_are_not_as_described_are_marked_in_every_table_of_times(built: BuiltReport) -> None:
    for table in filter(concerns_times, built.tables):
        markdown, latex, page = formats.to_markdown(table), formats.to_latex(table), formats.to_html(table)
        for row, record in zip(table.rows, table.records, strict=False):
            texts = [cell.text for cell in row]
            is_slow = "wan_100m" in texts
            assert any("§" in text and "¶" in text for text in texts) == is_slow, (table.name, texts)
            assert {"network_off", "network_cpu_limited"} <= record.keys()
        assert [note[:1] for note in table.notes if note[:1] in "§¶"] == ["§", "¶"]
        for text in (markdown, page):
            assert "§" in text.decode() and "¶: the CPUs, not the network, were the limit" in text.decode()
        assert r"\textsuperscript{\S}" in latex.decode() and r"\textsuperscript{\P}" in latex.decode()
        assert f"network=wan_100m (4 runs): {PROBLEM}" in table.notes
    assert "network measured" in (built.directory / "report.html").read_text()


def test_a_sweep_without_networks_says_nothing_of_them(tmp_path: Path) -> None:
    made = fabricate.sweep(tmp_path / "s", [fabricate.config("none"), fabricate.config("qsgd")])
    for table in build_report(made, pictures=()).tables:
        assert not any("network" in name for record in table.records for name in record)
        assert not any("network" in note for note in table.notes) and "network" not in table.caption


def test_the_runs_table_has_what_was_measured(built: BuiltReport) -> None:
    (table,) = (table for table in built.tables if table.name == "runs")
    places = [place for place, column in enumerate(table.columns) if column.name in ("one way", "link")]
    assert [table.columns[place].shown for place in places] == ["ms", "Mbit/s"]
    found = {row[1].text: [row[place].text for place in places] for row in table.rows}
    assert found == {
        "none": ["not measured"] * 2,
        "ethernet_1g": ["0.200", "956"],
        "wan_100m": ["0.0300", "70.0"],
    }


def test_the_headline_compares_no_times_of_other_networks(sweep: Path) -> None:
    runs = reports.load(sweep).runs
    fair = runs[~runs["network_off"].fillna(False) & (runs["workers"] == 2)]
    assert f"{fair['iterations_per_second'].max():.0f} it/s" in write_headline(lay_out_runs(runs))


def test_a_table_by_network_can_be_asked_for(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(sweep), "--rows", "network", "--cols", "workers", "--value", "network_bandwidth"]
    assert command(words) == 0
    said = capsys.readouterr().out
    assert "bit/s" in said and PROBLEM in said


def test_a_run_and_two_runs_show_what_was_measured(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_network = {
        (run.result() or {}).get("network", {}).get("network", {}).get("name"): run
        for run in run_directory.runs_of(sweep)
    }
    pair = [str(by_network[name].directory) for name in ("ethernet_1g", "wan_100m")]
    assert command(["show", pair[0]]) == 0
    assert "network.measured.latency_s" in capsys.readouterr().out
    assert command(["diff", *pair]) == 0
    said = capsys.readouterr().out
    (line,) = (line.split() for line in said.splitlines() if "network.measured.latency_s" in line)
    assert line[1:] == ["0.0002", "3e-05", "0.150"]


def test_figures_for_people() -> None:
    assert format_network(2.15e-4, 9.41e8) == "215 µs one way, 941 Mbit/s"
    assert format_network(float("nan"), 9.41e8) == format_network(pd.NA, pd.NA) == ""


def test_every_mark_is_printed(tmp_path: Path) -> None:
    made = fabricate.sweep(tmp_path / "s", [config(GIGABIT, workers=4)])
    tell(made, lambda one: True, marks=["bandwidth", "cpu"])
    (run,) = run_directory.runs_of(made)
    files.write_json(
        run.path(run_directory.STATE), {**json.loads(run.path(run_directory.STATE).read_text()), "shared_cores": True}
    )
    more = {"timed_steps": 5, "transport": OVER_TCP, "yardstick": fabricate.yardstick(others=0.5)}
    files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), **more})
    (table,) = (table for table in build_report(made, pictures=()).tables if table.name == "throughput")
    assert table.rows[0][-1].text.endswith("".join(MARKS.values()))


def test_plots_have_a_panel_for_each_network_and_say_what_is_wrong_with_it(built: BuiltReport) -> None:
    grid = lay_out_runs(built.report.runs, SWEPT["swept"])
    found = layout.lay_out_panels(grid, grid.runs, ["workers"])
    assert {title.partition("\n")[0] for title, _ in found.panels} == {
        f"network={name}" for name in ("none", "ethernet_1g", "wan_100m")
    }
    assert set(found.find_unfair()) == {"oversubscribed", "network_off", "network_cpu_limited"}
    assert set(layout.UNFAIR) == set(MARKS)


def carry(sweep: Path, of: Callable[[dict[str, Any]], bool], transport: Any) -> None:
    """Have those runs record what carried their messages of whose config `of` is true."""
    for run in run_directory.runs_of(sweep):
        if of(yaml.safe_load(run.path(run_directory.CONFIG).read_text())):
            files.write_json(run.path(run_directory.RESULT), {**(run.result() or {}), "transport": transport})


def with_transport(transport: str, compressor: str = "none", workers: int = 2) -> dict[str, Any]:
    return {**fabricate.config(compressor, workers), "mpi": {"command": ["mpirun"], "transport": transport}}


FAST = {"layer": "ucx", "over": ["rdma", "shm"], "faster": []}
OVER_TCP = {"layer": "ob1", "over": ["shm", "tcp"], "faster": ["mlx5_0"]}


def test_a_run_over_tcp_beside_a_faster_device_is_marked(tmp_path: Path) -> None:
    configs = [with_transport(each, name) for each in ("auto", "tcp") for name in ("none", "qsgd")]
    made = fabricate.sweep(tmp_path / "s", configs, swept=["mpi.transport", "compressor"])
    carry(made, lambda config: config["mpi"]["transport"] == "auto", FAST)
    carry(made, lambda config: config["mpi"]["transport"] == "tcp", OVER_TCP)
    runs = reports.load(made).runs.set_index("mpi.transport")
    assert set(runs.loc["auto", "transport"]) == {"ucx over rdma and shm"}
    assert not runs.loc["auto", "slow_transport"].any()
    assert set(runs.loc["tcp", "transport"]) == {"ob1 over shm and tcp"} and runs.loc["tcp", "slow_transport"].all()
    built = build_report(made, pictures=())
    for table in filter(concerns_times, built.tables):
        for row in table.rows:
            texts = [cell.text for cell in row]
            assert any("◊" in text for text in texts) == ("tcp" in texts), (table.name, texts)
        assert any(note.startswith("◊: messages went over TCP") for note in table.notes)
        assert not any("different ways" in note for note in table.notes), "that is what was swept"
        assert r"\textsuperscript{$\diamond$}" in formats.to_latex(table).decode()
    (table,) = (table for table in built.tables if table.name == "runs")
    assert "transport" in [column.name for column in table.columns]


def test_tcp_is_no_fault_where_there_is_nothing_faster(tmp_path: Path) -> None:
    made = fabricate.sweep(tmp_path / "s", [with_transport("tcp", name) for name in ("none", "qsgd")])
    carry(made, lambda config: True, {**OVER_TCP, "faster": []})
    carry(made, lambda config: config["compressor"]["name"] == "qsgd", {"layer": None, "over": ["tcp"], "faster": []})
    runs = reports.load(made).runs
    assert set(runs["transport"]) == {"ob1 over shm and tcp", "MPI over tcp"} and not runs["slow_transport"].any()


def test_different_ways_with_one_setting_are_remarked_on(tmp_path: Path) -> None:
    made = fabricate.sweep(tmp_path / "s", [with_transport("auto", name) for name in ("none", "qsgd", "svd")])
    carry(made, lambda config: config["compressor"]["name"] != "svd", FAST)
    carry(made, lambda config: config["compressor"]["name"] == "svd", {**OVER_TCP, "faster": []})
    said = "messages went by different ways with mpi.transport=auto, so times of these are not comparable: "
    said += "ob1 over shm and tcp (1 run) and ucx over rdma and shm (2 runs)"
    for table in build_report(made, pictures=()).tables:
        assert (said in table.notes) == concerns_times(table)


def test_runs_of_earlier_versions_stand_beside_those_with_their_transport(tmp_path: Path) -> None:
    configs = [fabricate.config("none", 2), with_transport("shm", "qsgd"), with_transport("tcp", "qsgd")]
    runs = reports.load(fabricate.sweep(tmp_path / "s", configs)).runs
    assert runs["mpi.transport"].tolist().count("shm") == 2 and runs["transport"].isna().all()
    assert not [column for column in runs if str(column).startswith("mpi.") and column != "mpi.transport"]


@pytest.mark.parametrize("damaged", ["shm", [], {"over": "tcp"}, {"over": []}, {"layer": "ob1"}])
def test_a_damaged_transport_is_not_known(damaged: Any, tmp_path: Path) -> None:
    made = fabricate.sweep(tmp_path / "s", [with_transport("shm")])
    carry(made, lambda config: True, damaged)
    (found,) = reports.load(made).runs.to_dict("records")
    assert pd.isna(found["transport"]) and pd.isna(found["slow_transport"]) and found["accuracy"] > 0
