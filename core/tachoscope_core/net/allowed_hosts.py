"""Whether a request asks for the server that it reached, by the Host that it names.

A page elsewhere can make its own name lead to this machine (DNS rebinding); the browser then takes the answers for that page's. The
Host of its requests is that page's name, which no server of ours has.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # only where the user asks for it


@dataclass(frozen=True, slots=True)
class HostNames:
    """The names of a server.

    Attributes:
        host: the address that it listens at, as the user named it; where that is all addresses, any number is its name, too.
        port: where it listens. more: names that a proxy in front of it has, with any port.
    """

    host: str
    port: int
    more: tuple[str, ...] = ()
    _own: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        own = {_bare(self.host), "localhost", *((socket.gethostname().lower(),) if self._everywhere else ())}
        object.__setattr__(self, "_own", frozenset(own))

    def has(self, host: str) -> bool:
        """Return whether a Host header, with its port unless that is 80, names this server."""
        name, port = _split(host)
        if name in {_bare(one) for one in self.more}:
            return True
        if port != str(self.port):
            return False
        return name in self._own or (self._everywhere and _is_number(name))

    @property
    def _everywhere(self) -> bool:
        return self.host in EVERYWHERE


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens at an address."""
    return host.rstrip(".").lower() == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)


def is_in_networks(address: str, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    """Whether an address, an IPv4 address in IPv6's writing too, is in one of some networks; what is not an address is in none."""
    if not _is_number(address):
        return False
    number = ipaddress.ip_address(address)
    number = getattr(number, "ipv4_mapped", None) or number
    return any(number in network for network in networks)


def _split(host: str) -> tuple[str, str]:
    """Return name and port of a Host in lower case, without the brackets of IPv6."""
    head, colon, tail = host.rpartition(":")
    if not colon or host.endswith("]"):
        return _bare(host), "80"
    return _bare(head), tail


def _bare(name: str) -> str:
    return name.lower().removeprefix("[").removesuffix("]")


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
