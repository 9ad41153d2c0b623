"""What a live agent of this machine says on its pages."""

from __future__ import annotations

from tachoscope_core.net.http_client import get
from tachoscope_core.storage.spool import LiveAgent

_BEHIND = "the store is behind: "


def page(agent: LiveAgent, path: str) -> str:
    """Return a page of the agent.

    Raises:
        OSError: it cannot be read from here; it may need a password.
    """
    return get(f"{agent.url}{path}", seconds=5.0).decode(errors="replace")


def why_behind(agent: LiveAgent) -> str:
    """Return why the agent cannot ship, as far as it says so."""
    try:
        return page(agent, "/readyz").partition(_BEHIND)[2].strip()
    except OSError:
        return ""
