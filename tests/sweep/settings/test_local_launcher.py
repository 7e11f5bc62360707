"""hydra.launcher of this machine: which cores and GPUs a sweep shares out, and how many a run gets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gradsweep.errors import UsageError
from sweep.launchers.launchers import build_executor
from sweep.settings.launcher import LocalOptions, parse_options
from sweep.system import cgroups, cores, gpus

WHOLE = "GPU 0: NVIDIA H200 (UUID: GPU-8f1b1c2d-aaaa-bbbb-cccc-1234567890ab)\n"
PARTS = """  MIG 3g.71gb     Device  0: (UUID: MIG-5a2f0a3e-1111-2222-3333-444444444444)
  MIG 1g.18gb     Device  1: (UUID: MIG-6b3f0a3e-1111-2222-3333-444444444444)
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, no GPU, and a torch that could use one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cgroups, "read_cpu_limit", lambda root=None, real=cgroups.read_cpu_limit: root and real(root))
    monkeypatch.setattr(gpus, "list_installed", lambda: ())
    monkeypatch.setattr(gpus, "torch_has_gpus", lambda: True)


def see(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(gpus, "list_installed", lambda: names)


@pytest.mark.parametrize(
    ("value", "which", "most"),
    [
        (None, [0, 1, 2, 5], 4),
        (1, [0, 1, 2, 5], 1),
        (4, [0, 1, 2, 5], 4),
        ([2, 0], [0, 2], 2),
        ("0-2", [0, 1, 2], 3),
        ("5, 0-1", [0, 1, 5], 3),
    ],
)
def test_cores(value: Any, which: list[int], most: int) -> None:
    assert cores.choose_cores(value) == (which, most)


@pytest.mark.parametrize(
    "value",
    [0, 5, -1, True, 1.5, [], [3], [0, 0], [0, "1"], [True], "", "a", "2-0", "0-5", "0,,1", "0-99999999999", {}],
)
def test_cores_that_there_are_not(value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        parse_options({"cluster": "local", "cores": value})
    assert str(raised.value) == (
        f"hydra.launcher.cores={value}: valid is null, a number from 1 to 4, or a list of cores out of 0-2,5, each once"
    )


@pytest.mark.parametrize(
    ("groups", "files", "cores_worth"),
    [
        ("0::/a/b\n", {}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "250000 100000\n"}, 2.5),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "100000 100000\n"}, 1.0),
        ("0::/elsewhere\n", {"cpu.max": "300000 100000\n"}, 3.0),
        (
            "4:cpu,cpuacct:/x\n0::/\n",
            {"cpu/x/cpu.cfs_quota_us": "200000\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            2.0,
        ),
        ("4:cpu:/x\n", {"cpu/x/cpu.cfs_quota_us": "-1\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, None),
        ("4:memory:/x\n", {"cpu/x/cpu.cfs_quota_us": "200000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, None),
        ("nonsense\n\n::\n", {"cpu.max": "\n"}, None),
    ],
)
def test_the_quota_of_a_container(
    tmp_path: Path, groups: str, files: dict[str, str], cores_worth: float | None
) -> None:
    write_groups(tmp_path, groups, files)
    assert cgroups.read_cpu_limit(tmp_path) == cores_worth


def write_groups(root: Path, groups: str, files: dict[str, str]) -> None:
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{key}": files[key] for key in files}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


@pytest.mark.parametrize(
    ("groups", "files", "most"),
    [
        ("0::/a\n", {"a/memory.max": "max\n"}, None),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "4294967296\n"}, 4 << 30),
        ("0::/elsewhere\n", {"memory.max": "1048576\n"}, 1 << 20),
        ("4:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "2097152\n"}, 2 << 20),
        ("4:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "2097152\n"}, None),
        ("nonsense\n", {"memory.max": "\n"}, None),
    ],
)
def test_the_memory_of_a_container(tmp_path: Path, groups: str, files: dict[str, str], most: int | None) -> None:
    write_groups(tmp_path, groups, files)
    assert cgroups.read_memory_limit(tmp_path) == most


@pytest.mark.parametrize(("time", "most"), [(None, 4), (2.9, 2), (0.5, 1), (16.0, 4)])
def test_no_more_cores_than_the_quota_is_worth(time: float | None, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else runs of a container with the time of two cores would believe to have 64."""
    monkeypatch.setattr(cgroups, "read_cpu_limit", lambda: time)
    assert cores.choose_cores(None) == ([0, 1, 2, 5], most)
    assert cores.choose_cores(4) == ([0, 1, 2, 5], 4), "who says so knows better"


def test_a_number_of_cores_is_how_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which, the sweeps of the machine settle among themselves."""
    from sweep.settings.sweep import SweepSettings

    monkeypatch.setenv("GRADSWEEP_SLOTS", str(tmp_path / "slots"))
    executor: Any = build_executor(LocalOptions(cores=3), tmp_path, SweepSettings())
    assert (executor.slots.cores, executor.slots.total) == ([0, 1, 2, 5], 3)


@pytest.mark.parametrize("value", [["a"], [-1], [0, 0], [1.5], "0", 3, [True], ["0; reboot"], [None]])
def test_gpus_that_are_none(value: Any) -> None:
    with pytest.raises(UsageError, match="^hydra.launcher.gpus=.*: valid is null or a list of numbers or UUIDs"):
        parse_options({"cluster": "local", "gpus": value})


@pytest.mark.parametrize("value", [-1, 1.5, "1", True])
def test_gpus_per_worker_that_cannot_be(value: Any) -> None:
    with pytest.raises(UsageError, match="^hydra.launcher.gpus_per_worker=.*: valid is an integer from 0 up or null"):
        parse_options({"cluster": "local", "gpus_per_worker": value})


def test_gpus_are_those_named_else_those_inherited_else_all(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "0", "1")
    assert LocalOptions().list_gpus() == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8f1b ,-1,2")
    assert LocalOptions().list_gpus() == ["3", "GPU-8f1b"], "as for CUDA, what is no GPU ends the list"
    assert LocalOptions(gpus=[3]).list_gpus() == ["3"]
    with pytest.raises(UsageError, match="out of CUDA_VISIBLE_DEVICES=3, GPU-8f1b ,-1,2$"):
        LocalOptions(gpus=[0])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert LocalOptions().list_gpus() == []


def test_what_nvidia_smi_lists() -> None:
    assert gpus.parse_listing(WHOLE + WHOLE.replace("GPU 0", "GPU 1")) == ["0", "1"]
    parts = ["MIG-5a2f0a3e-1111-2222-3333-444444444444", "MIG-6b3f0a3e-1111-2222-3333-444444444444"]
    assert gpus.parse_listing(WHOLE + PARTS + WHOLE.replace("GPU 0", "GPU 1")) == [*parts, "1"]
    assert gpus.parse_listing("No devices were found\n") == [] and gpus.parse_listing("") == []


def test_nvidia_smi_is_asked_and_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for script, found in ((f"echo '{WHOLE.strip()}'", ("0",)), (f"echo '{WHOLE.strip()}'; exit 9", ())):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        gpus.list_installed.cache_clear()
        assert gpus.list_installed() == found
    gpus.list_installed.cache_clear()


@pytest.mark.parametrize(
    ("config", "per_worker", "there", "number"),
    [
        ({"device": "cuda", "workers": 4}, None, "0123", 4),
        ({"device": "cuda", "workers": 2}, 2, "0123", 4),
        ({"device": "cuda", "workers": 2}, 0, "", 0),
        ({"device": "cpu", "workers": 2}, None, "0123", 0),
        ({"device": "cpu", "workers": 2}, 1, "", 0),
        ({"device": "cuda", "workers": 4, "gpus_per_node": 2}, None, "0123", 2),
        ({"device": "cuda", "workers": 2, "gpus_per_node": 4}, None, "0123", 2),
        ({"device": "cuda", "workers": 2, "gpus": [0, 1, 3]}, None, "0123", 2),
        ({"device": "cuda", "workers": 3, "gpus": [0, 0, 2]}, None, "0123", 3),
        ({"device": "auto", "workers": 4}, None, "", 0),
        ({"device": "auto", "workers": 4}, None, "01", 2),
        ({"device": "auto", "workers": 1}, None, "01", 1),
        ({"device": "auto", "workers": 2}, 0, "01", 0),
    ],
)
def test_gpus_of_a_run(
    config: dict[str, Any], per_worker: int | None, there: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, *there)
    assert LocalOptions(gpus_per_worker=per_worker).count_gpus(config) == number


def test_where_torch_is_for_cpus_only_no_gpu_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "0")
    monkeypatch.setattr(gpus, "torch_has_gpus", lambda: False)
    assert LocalOptions().count_gpus({"device": "auto", "workers": 4}) == 0


@pytest.mark.parametrize(("device", "per_worker"), [("cuda", None), ("cuda", 2), ("auto", 1)])
def test_more_gpus_than_there_are(device: str, per_worker: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    see(monkeypatch, "0", "1")
    options = LocalOptions(gpus_per_worker=per_worker)
    with pytest.raises(UsageError) as raised:
        options.count_gpus({"device": device, "workers": 4})
    line = str(raised.value)
    key = "null" if per_worker is None else per_worker
    assert line.startswith(f"hydra.launcher.gpus_per_worker={key}: workers=4 want ")
    assert "of 2 (0,1); valid is fewer workers" in line and "\n" not in line


def test_numbers_are_nvidia_smis_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert gpus.build_environment(("0", "2")) == {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    assert gpus.build_environment(("0", "2")) == {"CUDA_VISIBLE_DEVICES": "0,2"}
    assert gpus.build_environment(()) == {}
