"""The options of the group `network`: what is valid, and one's own networks."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gradsweep.errors import UsageError
from sweep.directory import run_layout
from tests.conftest import ROOT
from tests.trainers.configs import compose_config
from trainers.config import run_config
from trainers.options.networks import NETWORKS, Emulated
from trainers.rules.resolve import resolve

BANDWIDTH, LATENCY = "a bandwidth with its unit, such as 100mbit", "a one-way time with its unit, such as 200us"
HOSTS = "numbers of hosts, from 0, with a bandwidth, a latency or both"


@pytest.mark.parametrize(
    ("option", "value", "valid"),
    [
        ("bandwidth", 0, BANDWIDTH),
        ("bandwidth", "0gbit", BANDWIDTH),
        ("bandwidth", "-1gbit", BANDWIDTH),
        ("bandwidth", 100, BANDWIDTH),
        ("bandwidth", "9kbit", BANDWIDTH),
        ("latency", "10s", LATENCY),
        ("latency", "-1ms", LATENCY),
        ("latency", 1, LATENCY),
        ("loss", 0.6, "a number from 0.0 to 0.5"),
        ("workers_per_host", 0, "an integer from 1 to 1024"),
        ("hosts", [], HOSTS),
        ("hosts", {-1: {"latency": "1ms"}}, HOSTS),
        ("hosts", {"a": {"latency": "1ms"}}, HOSTS),
        ("hosts", {True: {"latency": "1ms"}}, HOSTS),
        ("hosts", {0: {"latency": 1}}, HOSTS),
        ("hosts", {0: {"loss": 0.1}}, HOSTS),
        ("hosts", {0: "1gbit"}, HOSTS),
    ],
)
@pytest.mark.parametrize("name", ["emulated", "wan_100m"])
def test_what_is_not_valid_is_one_line(name: str, option: str, value: Any, valid: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(compose_config(network={"name": name, option: value}))
    assert str(error.value).startswith(f"network.{option}={value}: valid is {valid}") and "\n" not in str(error.value)


def test_numbers_of_hosts_may_come_as_texts() -> None:
    """As they do from JSON, in which configs travel, and where they are typed: network.hosts.1.latency=1ms."""
    hosts = {0: {"bandwidth": "100mbit"}, 11: {"latency": "1ms"}}
    typed, told = (
        compose_config(network={"name": "emulated", "hosts": one}) for one in (hosts, json.loads(json.dumps(hosts)))
    )
    assert run_config.parse(typed).network == run_config.parse(told).network == Emulated(hosts=hosts)
    assert run_layout.signature(typed) == run_layout.signature(told)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_a_file_with_its_defaults(name: str) -> None:
    text = (ROOT / f"conf/network/{name}.yaml").read_text()
    found = {key: value for key, value in yaml.safe_load(text).items() if key != "defaults"}
    assert NETWORKS[name](**found) == NETWORKS[name]()
    assert found.keys() <= {key for key in compose_config(network=name)["network"] if key != "name"}
