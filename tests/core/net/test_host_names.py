"""A request that names another host than the server's gets nothing, whatever it looks like."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from tachoscope_core.net.allowed_hosts import HostNames, is_in_networks, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1:8501", "localhost:8501", "LOCALHOST:8501"])
def test_a_server_of_this_machine_is_named_by_number_and_as_localhost(host: str) -> None:
    assert HostNames("127.0.0.1", 8501).has(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", ":", ":8501", "evil.example.com", "evil.example.com:8501", "127.0.0.1", "127.0.0.1:8502", "127.0.0.1:", "[::1]:8501"),
        *("192.0.2.7:8501", "localhost.evil.example.com:8501", "127.0.0.1:8501.evil.example.com", "127.0.0.1:8501@evil:8501"),
        *("localhost:8501:8501", "127.0.0.1:08501", "2130706433:8501", "127.1:8501", f"{socket.gethostname()}:8501x"),
    ],
)
def test_any_other_name_or_port_is_not_its(host: str) -> None:
    assert not HostNames("127.0.0.1", 8501).has(host)


@pytest.mark.parametrize("host", ["192.0.2.7:8501", "[2001:db8::7]:8501", "localhost:8501", f"{socket.gethostname()}:8501"])
def test_a_server_of_all_addresses_is_asked_by_number_or_by_its_own_name(host: str) -> None:
    assert HostNames("0.0.0.0", 8501).has(host)
    assert HostNames("::", 8501).has(host)
    assert not HostNames("0.0.0.0", 8501).has("evil.example.com:8501")


def test_a_port_that_browsers_leave_out_is_80() -> None:
    assert HostNames("127.0.0.1", 80).has("127.0.0.1")
    assert HostNames("::1", 80).has("[::1]")


def test_the_name_of_a_proxy_in_front_is_its_name_with_any_port() -> None:
    names = HostNames("127.0.0.1", 8501, ("explorer.example.com",))

    assert names.has("Explorer.example.com")
    assert names.has("explorer.example.com:443")
    assert not names.has("explorer.example.com.evil.example.com")


def test_what_only_this_machine_reaches_is_told_from_the_rest() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "192.0.2.7", "example.com", "")] == [False] * 5


def test_an_address_is_in_a_network_in_whatever_way_it_is_written() -> None:
    networks = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1")]

    assert [is_in_networks(address, networks) for address in ("10.1.2.3", "::ffff:10.1.2.3", "::1")] == [True] * 3
    assert [is_in_networks(address, networks) for address in ("11.0.0.1", "", "10.1.2.3.4", "example.com")] == [False] * 4
