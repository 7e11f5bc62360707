"""Make the namespaces and links of a cluster, in the first process of its namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.emulation import ip_tc_commands, namespaces
from sweep.emulation.cluster import Cluster, Host

OF_ROOT = "/usr/sbin:/sbin"
"""Directories of `ip` and `tc`, which are not on every user's PATH."""
SWITCH_NAMESPACE = "/proc/1/ns/net"
MAY_BE_MISSING = (ip_tc_commands.MASK, "net/ipv6")
"""Settings that kernels before 6.2, or without IPv6, do not have."""


def find_program(program: str) -> str | None:
    """Return the path of a system program; None if it is not installed."""
    return shutil.which(program) or shutil.which(program, path=OF_ROOT)


class BuiltCluster:
    """An emulated cluster in this process's namespaces; its switch is the kernel's bridge.

    Args:
        place: an empty directory in a file system that is removed with the namespaces.
        cores: the cores that the cluster may use.

    Attributes:
        cluster: the hosts and links; after `start_delay` without latencies and losses that cannot be emulated.
        problems: texts on what could not be emulated, and why.

    Raises:
        RuntimeError: a command or the kernel refuses; `str()` says what.
    """

    def __init__(self, cluster: Cluster, place: Path, cores: Sequence[int]) -> None:
        self.cluster, self.place = cluster, place
        self.problems: list[str] = []
        namespaces.set_name("switch")
        missing = configure(ip_tc_commands.build_switch_settings(cores))
        begun = [namespaces.start(lambda host=host: self._make(host, cores)) for host in cluster.hosts]  # type: ignore[misc]
        for wait in begun:
            wait()
        run_batch("ip", ip_tc_commands.build_switch_links(cluster))
        run_batch("tc", ip_tc_commands.build_switch_shapes(cluster))
        if ip_tc_commands.MASK in missing:
            try:
                set_receive_cores([host.port for host in cluster.hosts], cores, place / "switch.sys")
            except OSError as error:
                self.problems.append(f"packets may come out of order: no {ip_tc_commands.MASK}, and {error.strerror}")
        if os.path.exists("/etc/hosts"):
            (place / "names").write_text(ip_tc_commands.build_hosts_file(cluster))
            namespaces.bind(place / "names", Path("/etc/hosts"))

    def find_namespace(self, host: Host) -> Path:
        """Return the file of a host's network namespace."""
        return self.place / f"{host.name}.net"

    def _make(self, host: Host, cores: Sequence[int]) -> None:
        namespaces.create_host(host.name, self.find_namespace(host), self.place / f"{host.name}.uts")
        missing = configure(ip_tc_commands.build_host_settings(self.cluster, cores))
        run_batch("ip", ip_tc_commands.build_host_links(self.cluster, host, SWITCH_NAMESPACE))
        run_batch("tc", ip_tc_commands.build_host_shapes(self.cluster, host))
        if ip_tc_commands.MASK in missing:
            with contextlib.suppress(OSError):  # the same fault is noted for the switch's ports
                set_receive_cores(["eth0"], cores, self.place / f"{host.name}.sys")


def set_receive_cores(interfaces: Sequence[str], cores: Sequence[int], place: Path) -> None:
    """Choose the cores that process the packets received by existing interfaces (RPS); needs root.

    Only for kernels without the setting `ip_tc_commands.MASK`, by which new interfaces get these cores.

    Raises:
        OSError: the kernel refuses.
    """
    namespaces.mount_sys(place)
    for interface in interfaces:
        (place / f"class/net/{interface}/queues/rx-0/rps_cpus").write_text(ip_tc_commands.format_mask(cores))


def configure(settings: Mapping[str, str]) -> list[str]:
    """Write kernel settings for this network namespace; return the settings that this kernel does not have.

    Raises:
        RuntimeError: the kernel refuses one.
    """
    missing = []
    for name, value in settings.items():
        try:
            Path("/proc/sys", name).write_text(value)
        except FileNotFoundError:
            if not name.startswith(MAY_BE_MISSING):
                raise RuntimeError(f"the kernel has no setting {name}") from None
            missing.append(name)
        except OSError as error:
            raise RuntimeError(f"{name}={value}: {error.strerror}") from error
    return missing


MODULES = {"qdisc kind": "sch_", "device type": ""}
"""What messages call unknown where a module is missing, and how the module's name begins."""


def name_module(name: str) -> str:
    """Return the name of a kernel module, with the packages that provide it."""
    return f"module {name} of the kernel (package linux-modules-extra-{os.uname().release} or kernel-modules-extra)"


def _explain_missing(said: str, line: str) -> str:
    """Return a hint at the kernel module that a line of `ip` or `tc` lacks, judged by its error message; else empty."""
    kind = next((begin for what, begin in MODULES.items() if "nknown" in said and what in said), None)
    kernel_module = next((word for word in ("netem", "tbf", "veth", "bridge") if word in line.split()), None)
    return "" if kind is None or kernel_module is None else f"; it lacks the {name_module(kind + kernel_module)}"


def run_batch(program: str, lines: Sequence[str]) -> None:
    """Execute lines of commands with `ip` or `tc` in this network namespace.

    Raises:
        RuntimeError: a line fails; the message names it and the reason.
    """
    path = find_program(program)
    if path is None:
        raise RuntimeError(f"no program {program} (package iproute2)")
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([path, "-batch", "-"], input=text, capture_output=True, text=True)
    if done.returncode:
        messages = [line for line in done.stderr.splitlines() if line.strip()]
        where = next((line.rsplit(":", 1)[-1] for line in messages if line.startswith("Command failed")), "")
        line = lines[int(where) - 1] if where.isdigit() and 0 < int(where) <= len(lines) else ""
        reason = messages[0] if messages else f"it exited with {done.returncode}"
        raise RuntimeError(f"{program} {line}: {reason}{_explain_missing(reason, line)}")
