"""Interfaces of the host, and how much TCP has to send again."""

import socket
from pathlib import Path

import pytest
from trees import RECORDED, collected, plant, points

from tachoscope_core.metrics.host import NETWORK_BYTES, NETWORK_DROPS, NETWORK_ERRORS, TCP_RETRANSMITTED, TCP_SENT
from tachoscope_node.collectors.network import NetworkCollector
from tachoscope_node.common.kernel_files import MalformedError
from tachoscope_node.config.device_filter import DeviceFilter

_HEAD = "Inter-| Receive | Transmit\n face |bytes packets errs drop ... |bytes packets ...\n"
_ETH0 = "  eth0: 23 2 3 5 0 0 0 0 29 7 11 13 0 0 0 0\n"
_LO = "    lo: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0\n"
_SNMP = "Ip: Forwarding\nIp: 1\nTcp: RtoMin MaxConn OutSegs RetransSegs InErrs\nTcp: 200 -1 101 23 0\nUdp: OutDatagrams\nUdp: 5\n"


def test_planted_traffic_and_troubles_come_out_by_direction(tmp_path: Path) -> None:
    families = collected(NetworkCollector(plant(tmp_path, {"net/dev": _HEAD + _LO + _ETH0, "net/snmp": _SNMP})))

    receive, transmit = ("eth0", "receive"), ("eth0", "transmit")
    assert points(families, NETWORK_BYTES) == {receive: 23, transmit: 29}
    assert points(families, NETWORK_ERRORS) == {receive: 3, transmit: 11}
    assert points(families, NETWORK_DROPS) == {receive: 5, transmit: 13}
    assert points(families, TCP_SENT) == {(): 101}
    assert points(families, TCP_RETRANSMITTED) == {(): 23}


def test_a_large_number_may_touch_the_colon_and_an_alias_has_a_colon_of_its_own(tmp_path: Path) -> None:
    lines = _ETH0.replace(": ", ":") + _ETH0.replace("eth0", "eth0:1")
    families = collected(NetworkCollector(plant(tmp_path, {"net/dev": _HEAD + lines, "net/snmp": _SNMP})))

    assert {device for device, _ in points(families, NETWORK_BYTES)} == {"eth0", "eth0:1"}


def test_the_hosts_network_is_read_and_not_the_agents_pods(tmp_path: Path) -> None:
    files = {
        "net/dev": _HEAD + _ETH0.replace("eth0", "pod0"),
        "net/snmp": _SNMP,
        "1/net/dev": _HEAD + _ETH0.replace("eth0", "host0"),
        "1/net/snmp": _SNMP,
    }
    families = collected(NetworkCollector(plant(tmp_path, files)))

    assert {device for device, _ in points(families, NETWORK_BYTES)} == {"host0"}


def test_a_recorded_machine_without_its_loopback() -> None:
    families = collected(NetworkCollector(str(RECORDED / "proc")))

    assert {device for device, _ in points(families, NETWORK_BYTES)} == {"eth0", "ifb0", "ifb1"}


def test_real_traffic_over_the_loopback_is_counted() -> None:
    collector = NetworkCollector(devices=DeviceFilter(include="lo"))
    before = points(collected(collector), NETWORK_BYTES)["lo", "transmit"]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        connection, _ = server.accept()
        with connection:
            client.sendall(b"x" * 23_000)
            assert len(connection.recv(23_000, socket.MSG_WAITALL)) == 23_000

    assert points(collected(collector), NETWORK_BYTES)["lo", "transmit"] - before >= 23_000


def test_an_interface_that_disappears_disappears(tmp_path: Path) -> None:
    collector = NetworkCollector(plant(tmp_path, {"net/dev": _HEAD + _ETH0, "net/snmp": _SNMP}))
    assert points(collected(collector), NETWORK_BYTES)

    plant(tmp_path, {"net/dev": _HEAD})

    assert points(collected(collector), NETWORK_BYTES) == {}


@pytest.mark.parametrize("line", ["eth1: 1 2 3", "eth1 1 2", "eth1: 1 2 3 4 5 6 7 8 nine 10 11 12 13 14 15 16"])
def test_an_interface_that_cannot_be_read_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(MalformedError, match=f"net/dev:4: cannot be read: '{line}'"):
        NetworkCollector(plant(tmp_path, {"net/dev": _HEAD + _ETH0 + line + "\n", "net/snmp": _SNMP})).collect()


@pytest.mark.parametrize(
    ("snmp", "place"),
    [
        ("", ":2"),
        ("Ip: A\nIp: 1\nTcp: OutSegs\nTcp: 1 2\n", ":4"),
        ("Tcp: OutSegs RetransSegs\nTcp: 1 x\n", ":2"),
        ("Tcp: A\nTcp: 1\n", ":2"),
    ],
)
def test_tcp_that_cannot_be_read_is_named(tmp_path: Path, snmp: str, place: str) -> None:
    with pytest.raises(MalformedError, match=f"net/snmp{place}: cannot be read"):
        NetworkCollector(plant(tmp_path, {"net/dev": _HEAD + _ETH0, "net/snmp": snmp})).collect()
