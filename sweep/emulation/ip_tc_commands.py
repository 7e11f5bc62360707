"""Build, as texts, the commands for `ip` and `tc`, the kernel settings and mpirun's arguments of a cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from gradsweep.run_directory import CORES_VARIABLE, STEERING_VARIABLE, SWITCH_VARIABLE
from sweep.emulation.cluster import MTU, PREFIX, SUBNET, Cluster, Host, Shape, compute_bulk_bytes, compute_packet_bytes

BRIDGE = "bridge0"
HERE = "here0"
"""The switch's own interface; its port is that of `Cluster.switch`."""
STEERING = "steering"
"""The socket through which ranks correct the latency."""
LONGEST_QUEUE = 1_000_000  # packets that netem may hold
WINDOW = 32 << 20
MOST_WINDOW = 512 << 20

MASK = "net/core/rps_default_mask"
"""The setting of Linux 6.2 and later for the cores that receive the packets of new links. Without it, a flow goes
through the queues of all cores that its sender runs on, and arrives out of order."""

Settings = Mapping[str, str]
"""Values by the file under /proc/sys that they are written to."""


def format_mask(cores: Iterable[int]) -> str:
    """Return a set of cores in the kernel's format: hexadecimal, in groups of 32."""
    mask = sum(1 << core for core in cores)
    groups = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(1, mask.bit_length()), 32)]
    return ",".join(reversed(groups))


def build_switch_settings(cores: Iterable[int]) -> Settings:
    """Return the settings of the switch's namespace, which are written before any link exists."""
    return {
        "net/ipv6/conf/all/disable_ipv6": "1",  # IPv6 would announce itself over the links
        "net/ipv6/conf/default/disable_ipv6": "1",
        MASK: format_mask(cores),
    }


def build_host_settings(cluster: Cluster, cores: Iterable[int]) -> Settings:
    """Return the settings of a host's namespace, which are written before its link exists."""
    slowest_answer = 2 * max(host.latency for host in cluster.hosts)
    fastest = max(host.bandwidth for host in cluster.hosts)
    window = round(min(max(WINDOW, 2 * slowest_answer * fastest / 8), MOST_WINDOW))
    return {
        **build_switch_settings(cores),
        "net/ipv4/tcp_congestion_control": "reno",  # the only algorithm that every namespace allows
        "net/ipv4/tcp_no_metrics_save": "1",  # a connection starts without what earlier ones have learnt
        "net/ipv4/tcp_slow_start_after_idle": "0",  # connections idle while gradients are computed
        "net/ipv4/tcp_rmem": f"4096 131072 {window}",
        "net/ipv4/tcp_wmem": f"4096 65536 {window}",
        "net/ipv4/tcp_limit_output_bytes": str(2 * compute_bulk_bytes(cluster)),  # acknowledgements wait behind them
        "net/ipv4/tcp_notsent_lowat": "131072",
    }


def build_host_links(cluster: Cluster, host: Host, switch_namespace: str) -> list[str]:
    """Build lines for `ip -batch` in a host's namespace: the link to the switch, and the other hosts' MAC addresses."""
    packet = compute_packet_bytes(cluster)
    cut = "gso_max_segs 1" if cluster.loss else f"gso_max_size {packet}"
    others = [other for other in (*cluster.hosts, cluster.switch) if other != host]
    return [
        "link set lo up",
        f"link add eth0 mtu {MTU} address {host.mac} type veth peer name {host.port} mtu {MTU} "
        f"netns {switch_namespace}",
        f"addr add {host.address}/{PREFIX} dev eth0",
        f"link set eth0 {cut}",
        "link set eth0 up",
        *(f"neigh replace {other.address} lladdr {other.mac} dev eth0 nud permanent" for other in others),
    ]


def build_host_shapes(cluster: Cluster, host: Host) -> list[str]:
    """Build lines for `tc -batch` in a host's namespace, which limit the rate at which the host sends."""
    return [f"qdisc replace dev eth0 root handle 1: {_format_bucket(cluster, host)}"]


def build_switch_links(cluster: Cluster) -> list[str]:
    """Build lines for `ip -batch` in the switch's namespace: its own link, and the bridge with all hosts' links."""
    here = cluster.switch
    return [
        "link set lo up",
        f"link add {HERE} mtu {MTU} address {here.mac} type veth peer name {here.port} mtu {MTU}",
        f"addr add {here.address}/{PREFIX} dev {HERE}",
        f"link set {HERE} up",
        *(f"neigh replace {host.address} lladdr {host.mac} dev {HERE} nud permanent" for host in cluster.hosts),
        f"link add {BRIDGE} mtu {MTU} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        f"link set {BRIDGE} up",
        *build_port_links(cluster, f"master {BRIDGE} up"),
    ]


def build_port_links(cluster: Cluster, change: str) -> list[str]:
    """Build lines for `ip -batch` in the switch's namespace that change all ports, such as `nomaster`."""
    return [f"link set {host.port} {change}" for host in (*cluster.hosts, cluster.switch)]


def build_switch_shapes(cluster: Cluster, delay: float | None = None) -> list[str]:
    """Build lines for `tc -batch` in the switch's namespace, which limit the rate at which each host receives.

    Args:
        delay: the delay that the kernel's netem adds, in s; None: no netem.
    """
    lines = []
    for host in cluster.hosts:
        if delay is None:
            lines.append(f"qdisc replace dev {host.port} root handle 1: {_format_bucket(cluster, host)}")
        else:
            lines += [
                f"qdisc replace dev {host.port} root handle 1: {_format_netem(delay)}",
                f"qdisc replace dev {host.port} parent 1:1 handle 10: {_format_bucket(cluster, host)}",
            ]
    return lines


def build_delay_change(cluster: Cluster, delay: float, loss: float = 0.0) -> list[str]:
    """Build lines for `tc -batch` in the switch's namespace, which change netem's delay (s) and fraction of losses."""
    return [f"qdisc change dev {host.port} root handle 1: {_format_netem(delay, loss)}" for host in cluster.hosts]


def _format_netem(delay: float, loss: float = 0.0) -> str:
    return f"netem limit {LONGEST_QUEUE} delay {delay * 1e6:.0f}us" + (f" loss {100 * loss:g}%" if loss else "")


def _format_bucket(cluster: Cluster, host: Host) -> str:
    shape = Shape.from_rate(host.bandwidth, compute_packet_bytes(cluster))
    return f"tbf rate {shape.rate:.0f}bit burst {shape.burst} limit {shape.limit}"


def build_hosts_file(cluster: Cluster) -> str:
    """Build the text of /etc/hosts, which is the same on all hosts."""
    lines = ["127.0.0.1 localhost", f"{cluster.switch.address} switch"]
    return "".join(f"{line}\n" for line in [*lines, *(f"{host.address} {host.name}" for host in cluster.hosts)])


def build_hostfile(cluster: Cluster) -> str:
    """Build the hostfile of Open MPI."""
    return "".join(f"{host.name} slots={cluster.workers_per_host}\n" for host in cluster.hosts)


def choose_host_cores(cores: Sequence[int], host: int, wanted: int) -> list[int]:
    """Return the cores to which the ranks of a host may be pinned: the host's own, if the run has enough; else none.

    Without cores its ranks are not pinned, because the first rank of every host would be pinned to the same core.

    Args:
        cores: the cores leased to the run.
        host: the number of the host.
        wanted: the number of cores of each host.
    """
    own = cores[host * wanted : (host + 1) * wanted]
    return list(own) if len(own) == wanted else []


def build_agent(
    cluster: Cluster, cores: Sequence[int], threads: int, place: str, prefix: str, plain: str, switch: int | None = None
) -> str:
    """Build a shell script in place of ssh (Open MPI's launch agent): `agent [options] HOST COMMAND...`.

    Args:
        cores: the cores leased to the run.
        threads: the number of threads of each rank.
        place: the directory with the files NAME.net and NAME.uts of the hosts' namespaces.
        prefix: Open MPI's installation directory. Open MPI does not quote it, so a space in it would split a word.
        plain: another path of the same directory, without spaces.
        switch: the process ID of the switch; None if the kernel is the switch.
    """
    lines = []
    for host in cluster.hosts:
        own = choose_host_cores(cores, host.number, cluster.workers_per_host * threads)
        lines.append(f"{host.name}) {CORES_VARIABLE}={','.join(map(str, own))} ;;")
    pattern = re.sub(r"[][\\.*^$|]", r"\\\g<0>", prefix)  # escaped for sed, between bars
    renamed = "".join(f"s|{pattern}{end}|{plain}{end}|g;" for end in "/;:")
    return "\n".join(
        [
            "#!/bin/sh",
            "while :; do case $1 in -[BbcDEeFIiJLlmOopQRSWw]) shift 2 ;; -*) shift ;; *) break ;; esac; done",
            "host=$1; shift",
            'case "$host" in',
            *lines,
            '*) echo "no such host: $host" >&2; exit 255 ;;',
            "esac",
            f"place={shlex.quote(place)}",
            f'{STEERING_VARIABLE}="$place/{STEERING}"',
            f"{SWITCH_VARIABLE}={'' if switch is None else switch}",
            f"export {CORES_VARIABLE} {STEERING_VARIABLE} {SWITCH_VARIABLE}",
            f"line=$(printf '%s' \"$*\" | sed {shlex.quote(renamed)}) || exit",  # otherwise mpirun would wait forever
            'exec nsenter --net="$place/$host.net" --uts="$place/$host.uts" sh -c "$line"',
            "",
        ]
    )


def build_mpi_arguments(hostfile: str, agent_file: str, preload: str | None) -> list[str]:
    """Build mpirun's arguments that precede the user's: they demand one daemon per host, and TCP between all ranks.

    Args:
        preload: a library to preload into the ranks only; None: none.
    """
    daemons = {"plm": "ssh", "plm_ssh_agent": agent_file, "prte_if_include": SUBNET}
    ranks = {
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": SUBNET,
        "btl_tcp_flags": "1",  # send and receive: its `put` makes an exchange half-duplex
        "mpi_yield_when_idle": "1",
    }
    return [
        *(word for key, value in daemons.items() for word in ("--prtemca", key, value)),
        *("--hostfile", hostfile, "--map-by", "slot"),
        *(word for key, value in ranks.items() for word in ("--mca", key, value)),
        *([] if preload is None else ("-x", f"LD_PRELOAD={preload}")),
    ]
