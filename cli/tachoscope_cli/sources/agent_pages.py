"""What a live agent of this machine says on its pages."""

from __future__ import annotations

import urllib.request

from tachoscope_core.storage.spool import LiveAgent

_BEHIND = "the store is behind: "
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine: no proxy leads there


def page(agent: LiveAgent, path: str) -> str:
    """Return a page of the agent.

    Raises:
        OSError: it cannot be read from here; it may need a password.
    """
    with _direct.open(f"{agent.url}{path}", timeout=5) as answer:
        return str(answer.read().decode(errors="replace"))


def why_behind(agent: LiveAgent) -> str:
    """Return why the agent cannot ship, as far as it says so."""
    try:
        return page(agent, "/readyz").partition(_BEHIND)[2].strip()
    except OSError:
        return ""
