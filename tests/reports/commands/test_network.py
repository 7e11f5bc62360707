"""`python -m reports network`: tables and picture of what a probe has left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.collections import LineCollection

from gradsweep import files, run_directory
from reports.__main__ import main
from reports.plots import network
from reports.tables import probe_tables


def collective(alpha: float, beta: float, largest: int = 2**26, algorithm: str | None = None) -> dict[str, Any]:
    """Points on two lines, the second of which begins behind 64 KiB and is half as steep."""
    sizes = [2**power for power in range(2, 27) if 2**power <= largest]
    times = [alpha + beta * size if size <= 2**16 else 2 * alpha + beta / 2 * size for size in sizes]
    ends = [(4, min(2**16, largest), alpha, beta), (2**17, largest, 2 * alpha, beta / 2)][: 1 + (largest > 2**17)]
    return {
        "points": [
            {"bytes": size, "time_s": time, "low_s": 0.9 * time, "high_s": 1.2 * time, "repeats": 5}
            for size, time in zip(sizes, times, strict=True)
        ],
        "fits": [
            {
                "from_bytes": first,
                "to_bytes": last,
                "alpha_s": alpha,
                "beta_s_per_byte": beta,
                "residual": 0.012,
                "outliers": [],
                "algorithm": algorithm,
            }
            for first, last, alpha, beta in ends
        ],
        "switch_points": [92682] if largest > 2**17 else [],
        "left_out": None if largest == 2**26 else {"from_bytes": 2 * largest, "for_lack_of": "time"},
    }


PROBE = {
    "format": 1,
    "kind": "probe",
    "network": {"name": "ethernet_1g", "bandwidth": "1gbit", "latency": "200us", "loss": 0.01},
    "emulation": {"problems": ["latency is not emulated: no C compiler (package gcc)"]},
    "workers": 4,
    "hosts": ["host0", "host1"],
    "measured": {
        "latency_s": 3e-4,
        "bandwidth": 9.4e8,
        "ring_bandwidth": 9.0e8,
        "busy_cores": 1.5,
        "busiest_core": 0.8,
        "cores": 2,
    },
    "expected": {"latency_s": 2e-4, "bandwidth": 9.564e8, "ring_bandwidth": 9.564e8},
    "marks": ["latency"],
    "mpi": "Open MPI v5.0.11",
    "transport": {"layer": "ob1", "over": ["tcp"], "faster": []},
    "settings": {"OMPI_MCA_coll_tuned_allreduce_algorithm": "4"},
    "allreduce_segment_bytes": 2**21,
    "collectives": {
        "allreduce": collective(1e-3, 1.5e-8, algorithm="ring"),
        "allgather": collective(5e-4, 3e-8, 2**20, algorithm="ring"),
        "alltoall": collective(2e-4, 1e-8),
        "bcast": collective(3e-4, 1e-8, 2**10),
    },
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a command that has probed twice."""
    found = tmp_path / "output/2026-11-20/14-03-22-probe"
    for workers in (2, 4):
        place = found / run_directory.PROBES / f"workers={workers}-3f9a2c1e"
        place.mkdir(parents=True)
        files.write_json(place / run_directory.NETWORK, {**PROBE, "workers": workers})
    return found


def test_tables_and_picture_of_all_that_was_probed(
    directory: Path, capsys: pytest.CaptureFixture[str], no_terminal: None
) -> None:
    assert main(["network", str(directory)]) == 0
    said = capsys.readouterr().out
    for workers in (2, 4):
        assert f"network=ethernet_1g (1gbit, 200us, 1 % loss), {workers} workers on 2 hosts" in said
        picture = directory / run_directory.PROBES / f"workers={workers}-3f9a2c1e/network.png"
        assert picture.read_bytes().startswith(b"\x89PNG")
    lines = [line.split() for line in said.splitlines()]
    assert ["latency,", "one", "way", "300", "µs", "200", "µs"] in lines
    assert ["bandwidth,", "all", "to", "the", "next", "900", "Mbit/s", "956.4", "Mbit/s"] in lines
    assert ["busy", "cores", "meanwhile", "1.5", "of", "2"] in lines
    assert ["allreduce", "ring", "4", "B", "65.5", "kB", "1.00", "66.7", "1.2"] in lines
    assert ["allreduce", "ring", "131", "kB", "67.1", "MB", "2.00", "133", "1.2"] in lines
    assert any(line[:3] == ["alltoall", "MPI's", "choice"] for line in lines)
    for note in (
        "the latency is more than 10 % off",
        "latency is not emulated: no C compiler (package gcc)",
        "allgather: left out from 2.10 MB on for lack of time",
        "as in training: Open MPI v5.0.11, ob1 over tcp, coll_tuned_allreduce_algorithm=4, "
        "allreduce at most 2.10 MB at a time",
    ):
        assert note in said.splitlines()


def test_only_the_tables(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file, _) = probe_tables.find_files(directory)
    assert main(["network", "--no-plots", str(file)]) == 0
    assert not file.with_name("network.png").exists() and "2 workers" in capsys.readouterr().out


def test_times_of_sizes_that_were_not_measured_are_words_or_nothing() -> None:
    (_, times, _) = probe_tables.build_tables(PROBE)
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in times.rows}
    assert rows["allreduce"][0] == "1.00" and rows["allreduce"][-1] == "505"
    assert rows["bcast"][2] == "0.310" and rows["bcast"][3:] == ["left out"] * 4
    begins_later = {**PROBE["collectives"]["alltoall"]}  # type: ignore[index]
    begins_later["points"] = begins_later["points"][2:]
    (_, times, _) = probe_tables.build_tables({**PROBE, "collectives": {"alltoall": begins_later}})
    assert times.rows[0][1].text == ""


def test_the_picture_has_points_with_quartiles_lines_and_switch_points() -> None:
    plot = network.plot_probe(PROBE)
    panels = {axes.get_title(loc="left"): axes for axes in plot.figure.axes}
    assert list(panels) == ["allreduce (ring)", "allgather (ring)", "alltoall", "bcast"]
    axes = panels["allreduce (ring)"]
    points, first, second, switch = axes.lines
    assert list(points.get_xdata()) == [2**power for power in range(2, 27)]
    (bars,) = [each for each in axes.collections if isinstance(each, LineCollection)]
    low, high = bars.get_segments()[0][:, 1]
    assert low == pytest.approx(0.9 * points.get_ydata()[0]) and high == pytest.approx(1.2 * points.get_ydata()[0])
    assert first.get_ydata()[0] == pytest.approx(1e-3 + 6e-8) and second.get_ydata()[-1] == pytest.approx(0.5053, 1e-3)
    assert list(switch.get_xdata()) == [92682] * 2 and axes.texts[0].get_text() == "92.7 kB"
    assert "allreduce: 1 ms for 4 B, 505.3 ms for 67.1 MB, other lines from 92.7 kB on" in plot.alt


def test_a_collective_that_was_not_measured_at_all_leaves_its_panel_empty() -> None:
    nothing = {"points": [], "fits": [], "switch_points": [], "left_out": {"from_bytes": 4, "for_lack_of": "time"}}
    probe = {**PROBE, "collectives": {**PROBE["collectives"], "bcast": nothing}}  # type: ignore[dict-item]
    assert "bcast: not measured" in network.plot_probe(probe).alt
    assert [row[1].text for row in probe_tables.build_tables(probe)[1].rows][-1] == "left out"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "no JSON object is there; valid is the network.json of a probe"),
        ("[]", "no JSON object is there; valid is the network.json of a probe"),
        (json.dumps({"format": 1, "measured": {}}), "not of a probe, whose `kind` is probe"),
        (json.dumps({**PROBE, "format": 2}), "format=2: valid is 1"),
        (json.dumps({"format": 1, "kind": "probe", "network": {}}), "workers, hosts and collectives missing"),
    ],
)
def test_what_is_no_probe_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str
) -> None:
    (tmp_path / run_directory.NETWORK).write_text(text)
    assert main(["network", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"reports: {tmp_path / run_directory.NETWORK}: {line}") and said.count("\n") == 1


def test_where_no_probe_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", str(tmp_path)]) == 2
    assert "valid is a probe's directory" in capsys.readouterr().err
    assert main(["network", str(tmp_path / "nowhere.json")]) == 2
    assert "no JSON object is there" in capsys.readouterr().err
