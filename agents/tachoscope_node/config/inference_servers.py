"""The part of the agent's configuration that names inference servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from tachoscope_service.http.page_url import page_fault
from tachoscope_service.metrics.otlp.push import header_faults

MOST_SERVERS = 64
"""Each has a thread of its own."""
_INTERVAL_SECONDS = (1.0, 3600.0)
_MOST_BODY_CHARACTERS = 4096
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An inference server on this node.

    Attributes:
        name: of the service, the label `service`. namespace: its Kubernetes namespace, if any. url: of its
            metrics page. kind: its make; auto: by what is on the page.
        interval_seconds: between two looks. headers: sent with each; secrets, never shown.
        node: name of the node whose agent reads it; nothing: each agent that has this configuration.
        check_url: asked at each look as well; the server is up only if this is answered, too. Nothing: its page is enough.
        check_body: JSON to send there with POST, such as a request of one token; without it the check is a GET.
    """

    name: str = ""
    url: str = ""
    kind: Literal["auto", "triton", "vllm", "sglang", "tgi", "tachoscope", "otel"] = "auto"
    interval_seconds: float = 15.0
    headers: dict[str, str] = {}
    namespace: str = ""
    node: str = ""
    check_url: str = ""
    check_body: str = ""

    def __repr__(self) -> str:
        """All but secrets: headers by name."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__} | {"headers": dict.fromkeys(self.headers, "***")}
        return f"Server({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def faults(servers: Sequence[Server]) -> list[str]:
    """Return every fault of the servers, each with its key, its value unless secret, and the way out."""
    found = [f"servers[{number}].{fault}" for number, server in enumerate(servers) for fault in _faults(server)]
    names = Counter(server.name for server in servers if server.name)
    found += [f"servers: {name!r} names {count} of them: give each a different name" for name, count in names.items() if count > 1]
    if len(servers) > MOST_SERVERS:
        found.append(f"servers: there are {len(servers)}, more than {MOST_SERVERS}: let other agents read some of them")
    return found


def _faults(server: Server) -> list[str]:
    low, high = _INTERVAL_SECONDS
    found = []
    if not _SERVICE.fullmatch(server.name):
        found.append(f"name: {server.name!r} is not the name of a service: give 1 to 63 letters, digits and any of . _ / -")
    if server.namespace and not _NAMESPACE.fullmatch(server.namespace):
        found.append(f"namespace: {server.namespace!r} is not a namespace: give 1 to 63 small letters, digits and -")
    found += _url_faults("url", server.url)
    if server.check_url:
        found += _url_faults("check_url", server.check_url)
    if server.check_body and not server.check_url:
        found.append("check_body: is sent nowhere: give check_url as well")
    if fault := _json_fault(server.check_body):
        found.append(f"check_body: {fault}")
    if not low <= server.interval_seconds <= high:
        found.append(f"interval_seconds: {server.interval_seconds} is not between {low:g} and {high:g}")
    return found + header_faults(server.headers)


def _url_faults(key: str, url: str) -> list[str]:
    if "@" in url.partition("://")[2].partition("/")[0]:
        return [f"{key}: (not shown): has a user in it: give the password as headers, Authorization"]
    fault = page_fault(url)
    return [f"{key}: {url!r} {fault}"] if fault else []


def _json_fault(text: str) -> str:
    if len(text) > _MOST_BODY_CHARACTERS:
        return f"has {len(text)} characters, more than {_MOST_BODY_CHARACTERS}: a check is a small request"
    try:
        msgspec.json.decode(text or "null")
    except msgspec.DecodeError as error:
        return f"{text[:80]!r} is not JSON ({error})"
    return ""
