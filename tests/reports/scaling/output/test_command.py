"""`python -m reports scaling`: what it writes and says, and what it refuses in one line."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from gradsweep import files, run_directory
from reports.__main__ import main
from reports.scaling.model.predict import Predictor
from reports.scaling.output import remarks
from tests.reports import fabricate
from tests.reports.scaling import truth

NAMES = ("fastest", "speedup", "break_even", "throughput", "efficiency", "needed", "published", "check", "model")
PICTURES = ("check", "speedup", "efficiency", "map", "break_even")


def told(capsys: pytest.CaptureFixture[str], *words: object, status: int = 0) -> str:
    """What a command prints, or where it fails its one line."""
    assert main(["scaling", *map(str, words)]) == status
    out, error = capsys.readouterr()
    if status:
        assert not out and error.count("\n") == 1 and error.startswith("reports: "), error
    return str(error if status else out)


def rows(place: Path, name: str) -> list[dict[str, str]]:
    with (place / f"scaling_{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def place(measured: Path) -> Path:
    """What a command has written of the sweep of known laws."""
    words = [
        "scaling",
        str(measured),
        "--network",
        "1gbit,infiniband",
        "--workers",
        "2..64",
        "--format",
        "csv,md,tex,html",
    ]
    assert main([*words, "--plots", "png,svg", "--quiet"]) == 0
    return measured / "scaling"


def test_writes_tables_and_pictures(place: Path) -> None:
    wanted = {f"scaling_{name}.{suffix}" for name in NAMES for suffix in ("csv", "md", "tex", "html")}
    wanted |= {f"scaling_{name}.{suffix}" for name in PICTURES for suffix in ("png", "svg")}
    assert {path.name for path in place.iterdir()} == wanted
    assert all((place / name).stat().st_size > 100 for name in wanted)


def test_says_what_is_extrapolated(place: Path) -> None:
    found = rows(place, "throughput")
    assert len(found) == 4 * 5 * 6  # networks, methods, numbers of workers
    measured = {(row["network"], row["workers"]) for row in found if row["extrapolated"] == "false"}
    assert measured == {("ethernet_1g", "2"), ("wan_100m", "2")}, "4 and 8 workers had shared the two cores"
    lines = (place / "scaling_throughput.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("| ethernet") and "powersgd" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")[2:]]
    assert [cell.startswith("\\~") for cell in cells] == [False] + [True] * 5
    assert [" to " in cell for cell in cells] == [False] + [True] * 5, "what was measured needs no interval"
    svg = (place / "scaling_efficiency.svg").read_text()
    assert ">predicted<" in svg and ">measured<" in svg and "stroke-dasharray" in svg
    assert ">predicted<" in (place / "scaling_map.svg").read_text()


def test_predictions_are_those_of_the_law(place: Path) -> None:
    for row in rows(place, "throughput"):
        if row["network"] == "ethernet_1g":
            seconds = truth.step_s(
                row["compressor"], int(row["workers"]), truth.NETWORKS["ethernet_1g"], 32.0, cores=None
            )
            assert 1 / float(row["iterations_per_second"]) == pytest.approx(seconds, rel=0.1)
            ends = [row[f"iterations_per_second_{end}"] for end in ("low", "high")]
            if row["extrapolated"] == "false":
                assert ends == ["", ""]
            else:
                assert float(ends[0]) <= float(row["iterations_per_second"]) <= float(ends[1])


def test_the_check_is_told_with_its_error(place: Path, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(place, "check")
    alone = [row for row in found if row["left_out"] == "left out alone"]
    assert len(alone) == 45 and len(found) == 45 + 15
    errors = sorted(abs(float(row["error"])) for row in alone)
    assert f"off by {100 * errors[22]:.1f} % (median)" in (place / "scaling_check.md").read_text()
    out = told(capsys, measured, "--no-plots", "--workers", "8")
    assert "45 cells left out one by one" in out and "Which compressor is predicted to be fastest" in out
    assert "workers: " in out and " times as " in out and " would beat " in out
    assert out.rstrip().endswith("scaling")


def test_without_a_baseline_there_is_no_break_even(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = truth.sweep(tmp_path / "2026-11-20" / "18-00-00", methods=["qsgd"], networks=["none"], workers=(2, 3, 4, 8))
    told(capsys, sweep, "--network", "1gbit", "--workers", "4", "--quiet")
    names = {path.name for path in (sweep / "scaling").glob("*.csv")}
    assert names == {f"scaling_{name}.csv" for name in NAMES if name not in ("speedup", "break_even", "needed")}
    assert rows(sweep / "scaling", "fastest")[0]["over_none"] == ""
    assert "--network=: valid is one network or more" in told(capsys, sweep, "--network", "", status=2)


def test_published_model_stands_beside_ours(place: Path) -> None:
    found = rows(place, "published")
    assert {row["compressor"] for row in found} == set(truth.METHODS)
    assert all(float(row["step_s"]) > 0 and float(row["ours_s"]) > 0 for row in found)


def test_every_workload_has_its_own_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = truth.sweep(tmp_path / "2026-11-20" / "12-00-00", methods=["none", "qsgd"], networks=["ethernet_1g"])
    for path in list((sweep / run_directory.RUNS).iterdir()):
        copy = path.with_name(path.name.replace("compressor", "model=lenet,compressor"))
        shutil.copytree(path, copy)
        config = json.loads((copy / run_directory.CONFIG).read_text())
        config["model"] = {"name": "lenet"}
        files.write_json(copy / run_directory.CONFIG, config)
        result = json.loads((copy / run_directory.RESULT).read_text())
        result["phases_s"]["backward"] += 1.0
        seconds = sum(result["phases_s"].values())
        result["samples_per_second"] *= 1 / seconds / result["iterations_per_second"]
        result["iterations_per_second"] = 1 / seconds
        files.write_json(copy / run_directory.RESULT, result)
    told(capsys, sweep, "--network", "1gbit", "--workers", "16", "--quiet")
    found = {
        (row["workload"], row["compressor"]): float(row["compute_s"])
        for row in rows(sweep / "scaling", "throughput")
        if row["network"] == "1gbit"
    }
    assert {workload for workload, _ in found} == {"model=lenet", "model=wideresnet"}
    assert found["model=lenet", "qsgd"] > found["model=wideresnet", "qsgd"] + 0.2
    assert (sweep / "scaling" / "scaling_map-model-lenet.png").exists()
    even = {row["workload"] for row in rows(sweep / "scaling", "break_even")}
    assert even == {"model=lenet", "model=wideresnet"}


def test_a_single_number_of_workers_says_what_to_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "python multirun.py -m compressor=qsgd,none workers=4"
    grid = [fabricate.config(name, 4) for name in ("none", "qsgd")]
    sweep = fabricate.sweep(tmp_path / "2026-11-20" / "13-00-00", grid, command=command)
    error = told(capsys, sweep, status=2)
    assert "all finished runs have workers=4" in error
    assert "run `python multirun.py -m compressor=qsgd,none workers=2,8` and give both directories" in error


def test_no_finished_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = fabricate.sweep(tmp_path / "2026-11-20" / "14-00-00", [])
    fabricate.run(sweep, fabricate.config("none", 2), run_directory.FAILED, "exit status 1")
    fabricate.run(sweep, fabricate.config("none", 4), run_directory.PENDING)
    assert "scaling: none of 2 runs has finished" in told(capsys, sweep, status=2)


def test_a_model_that_misses_too_much_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = truth.sweep(tmp_path / "2026-11-20" / "15-00-00", noise=1.5)
    error = told(capsys, sweep, status=2)
    assert "nothing is extrapolated: " in error and "45 cells left out one by one" in error and "worst: " in error
    assert not (sweep / "scaling").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--network", "10"], "--network=10: valid is infiniband, "),
        (["--network", "0gbit"], "--network=0gbit: valid is"),
        (["--latency", "10s"], "--latency=10s: valid is a one-way time"),
        (["--workers", "0"], "--workers=0: valid is numbers from 1"),
        (["--samples", "-1"], "--samples=-1.0: valid is a number above 0"),
        (["--samples", "nan"], "--samples=nan: valid is a number above 0"),
        (["--format", "doc"], "--format doc: valid are"),
        (["--plots", "gif"], "--plots gif: valid are"),
        (["--probe", "nowhere.json"], "--probe nowhere.json: no such file"),
    ],
)
def test_wrong_words_are_one_line(
    measured: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert said in told(capsys, measured, *words, status=2)


def test_too_much_is_refused(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    networks = ",".join(f"{rate}mbit" for rate in range(1, 100))
    assert "ask for fewer networks or workers" in told(capsys, measured, "--network", networks, status=2)


def test_several_sweeps_are_one_model(tmp_path: Path, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = truth.sweep(tmp_path / "2026-11-20" / "16-00-00", workers=(2,), networks=["none"])
    more = truth.sweep(tmp_path / "2026-11-20" / "17-00-00", workers=(4,), networks=["none"])
    told(capsys, few, more, "--into", tmp_path / "both", "--quiet", "--workers", "4", "--no-plots")
    assert {row["workers"] for row in rows(tmp_path / "both", "check")} == {"2", "4"}
    assert "it is in a sweep" in told(capsys, few, more, "--into", few / "x", status=2)


def test_a_probe_is_one_more_network(tmp_path: Path, measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = {"latency_s": 2e-5, "bandwidth": 4e9, "ring_bandwidth": 4e9}
    files.write_json(tmp_path / "network.json", {"kind": "probe", "network": {"name": "real"}, "measured": figures})
    told(
        capsys,
        measured,
        "--probe",
        tmp_path / "network.json",
        "--network",
        "",
        "--workers",
        "4",
        "--no-plots",
        "--quiet",
    )
    assert {row["network"] for row in rows(measured / "scaling", "fastest")} == {
        "ethernet_1g",
        "wan_100m",
        "probe (real)",
    }


def test_what_is_not_modelled_is_named(predictor: Predictor) -> None:
    left = dataclasses.replace(predictor.measurements, left_out=["ps: no model"], remarks=["torus: so many neighbours"])
    notes = remarks.write_notes(dataclasses.replace(predictor, measurements=left), left.networks)
    assert "not modelled: ps: no model" in notes and "torus: so many neighbours" in notes


def test_a_network_that_the_cpus_limited_is_what_it_is_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["ethernet_1g", "wan_100m"]
    sweep = truth.sweep(tmp_path / "2026-11-20" / "19-00-00", methods=["none", "sign"], networks=names)
    for run in (sweep / run_directory.RUNS).iterdir():
        if "network=ethernet_1g" in run.name:
            result = json.loads((run / run_directory.RESULT).read_text())
            result["network"]["expected"] = dict(result["network"]["measured"])
            result["network"]["measured"] |= {"bandwidth": 2e8, "ring_bandwidth": 2e8}
            result["network"]["marks"] = ["bandwidth", "cpu"]
            files.write_json(run / run_directory.RESULT, result)
    out = told(capsys, sweep, "--network", "ethernet_1g", "--workers", "2,64", "--no-plots")
    assert "ethernet_1g: the CPUs were the limit in all its runs" in out and "its figures are nominal" in out
    assert "ethernet_1g: 956.4 Mbit/s of payload, 200 µs one way" in out
    found = rows(sweep / "scaling", "throughput")
    assert {(row["network"], row["workers"]) for row in found if row["extrapolated"] == "false"} == {("wan_100m", "2")}
    assert "6 cells are not among them: the CPUs were their limit" in out
    out = told(capsys, sweep, "--network", "1gbit", "--workers", "2", "--no-plots")
    assert "ethernet_1g: 956.4 Mbit/s of payload, 220 µs one way" in out, "as the runs had expected it"
