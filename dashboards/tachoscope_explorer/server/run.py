"""Serves the explorer: Streamlit's application, with who may look and the explorer's own addresses around it."""

from __future__ import annotations

import gc
import socket
from pathlib import Path
from typing import Any

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import HostNames
from tachoscope_core.report.palette import OK
from tachoscope_explorer.page import perfetto_files as perfetto
from tachoscope_explorer.page import settings, uploads
from tachoscope_explorer.page.settings import MIB, Settings
from tachoscope_explorer.server.access import Access, GuardedApp

_FEW_COLLECTIONS = 100_000
"""Objects between two collections: records are many and in no cycles; by default half the time of reading is a search for some."""
APP = Path(__file__).parents[1] / "app.py"
_WAITING = 128
_PING_SECONDS = 30.0
_PATIENCE_SECONDS = 3


def configuration(chosen: Settings, host: str, port: int) -> dict[str, Any]:
    """Return Streamlit's configuration: nothing is sent anywhere, nothing of the program can be changed from a page.

    What a `.streamlit/config.toml` that happens to lie around might open is said here as well: this comes before it.
    """
    return {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.baseUrlPath": "",
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "server.enableCORS": True,
        "server.corsAllowedOrigins": [],
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.scriptHealthCheckEnabled": False,
        "server.maxUploadSize": max(1, chosen.most_upload_bytes // MIB) if chosen.uploads else 0,
        "global.developmentMode": False,
        "browser.gatherUsageStats": False,
        "runner.magicEnabled": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        # Of both themes: one alone would be a theme of its own, and always light.
        "theme.light.primaryColor": OK,
        "theme.dark.primaryColor": OK,
    }


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; requests wait until `serve` answers.

    Raises:
        TachoscopeError: the port is taken, or the address is none of this machine.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.socket(family)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(_WAITING)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise TachoscopeError(
            f"could not serve on {host} port {port}: {error.strerror or error}", fix="--port 0 takes a free one"
        ) from None
    return listening


def serve(chosen: Settings, listening: socket.socket, host: str, access: Access) -> None:
    """Serve until the process is interrupted.

    Args:
        host: what `listening` listens at, as the user named it.

    Raises:
        KeyboardInterrupt: after what was open has been closed.
    """
    import uvicorn
    from streamlit.web import bootstrap
    from streamlit.web.server.starlette.starlette_app import App

    gc.set_threshold(_FEW_COLLECTIONS)
    settings.choose(chosen)
    port = listening.getsockname()[1]
    bootstrap.load_config_options(configuration(chosen, host, port))
    door = GuardedApp(App(APP, routes=perfetto.routes(), lifespan=uploads.served), access, HostNames(host, port, access.names))
    config = uvicorn.Config(
        door,
        lifespan="on",
        proxy_headers=False,  # whom to believe is Access's to say
        server_header=False,
        access_log=False,
        log_level="warning",
        ws="websockets-sansio",
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PING_SECONDS,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_PATIENCE_SECONDS,
    )
    uvicorn.Server(config).run(sockets=[listening])
