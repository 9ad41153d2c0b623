"""`tachoscope explore`: the explorer's pages, served on this machine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tachoscope_cli.common.options import StoreOption, needs_dashboards, print_notice, store_url
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.allowed_hosts import EVERYWHERE, is_loopback

if TYPE_CHECKING:
    from tachoscope_explorer.server.access import Access, Network

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


MOST_UPLOAD_MIB = 512
_PROXY = "put a proxy in front that asks for a password, and give --proxy-header (docs/guides/explorer.md)"


def explore(
    traces: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRACE...", help="Profiler traces in addition to those in the store: files, directories, patterns."),
    ] = None,
    store: StoreOption = None,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Prometheus that has the objectives and the history of alerts.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8501,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on. Anyone who can reach it can read the store."),
    ] = "127.0.0.1",
    password_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    proxy_header: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Require this header with the user's name from the proxy: X-Forwarded-User."),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Address or network of the proxy. Default: 127.0.0.1. Can be given several times."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Host name that browsers may use, such as the proxy's. Can be given several times."),
    ] = None,
    max_upload: Annotated[
        int, typer.Option(metavar="MIB", min=0, help="Maximum size of uploaded traces; 0: uploads are disabled.")
    ] = MOST_UPLOAD_MIB,
) -> None:
    """Serve the explorer: jobs and their bottlenecks, profiler traces down to the kernel, comparisons, objectives.

    Reads the store and writes nothing into it. Runs until Ctrl-C.
    """
    needs_dashboards("streamlit", "plotly")
    from tachoscope_core.storage.store import absolute_url, check_url
    from tachoscope_explorer.page.settings import Settings
    from tachoscope_explorer.server.run import listen, serve

    if password_file is not None:
        raise TachoscopeError("--password-file was removed: the explorer has no login", fix=_PROXY)
    access = _access(proxy_header, trusted_proxy or (), allow_host or ())
    url = absolute_url(store_url(store))
    check_url(url)
    named = tuple(str(Path(path).absolute()) for path in traces or ())
    chosen = Settings(
        url,
        prometheus or "",
        named,
        most_upload_bytes=max_upload << 20,
        uploads=max_upload > 0,
    )
    with listen(host, port) as listening:
        number = listening.getsockname()[1]
        if not (is_loopback(host) or proxy_header):
            print_notice(
                f"address {host!r} is not loopback, and --proxy-header is not given: anyone who can reach port {number} can see "
                f"what the store holds; {_PROXY}"
            )
        typer.echo(f"http://{_browser_address(host)}:{number}/")
        missing = "://" not in url and not Path(url).is_dir()
        print_notice(f"store {url}{', which does not exist yet' if missing else ''}; Ctrl-C ends it")
        try:
            serve(chosen, listening, host, access)
        except KeyboardInterrupt:
            print_notice("ended")


def _access(header: str | None, proxies: Sequence[str], names: Sequence[str]) -> Access:
    from tachoscope_explorer.server.access import LOOPBACK, Access

    if header is not None and not _HEADER.fullmatch(header):
        raise TachoscopeError(f"{header!r} is not a header name", fix="--proxy-header X-Forwarded-User")
    trusted = tuple(map(_network, proxies)) or (LOOPBACK,)
    return Access(header or "", trusted, tuple(names))


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise TachoscopeError(f"{text!r} is neither an address nor a network", fix="--trusted-proxy 10.0.0.0/8") from None


def _browser_address(host: str) -> str:
    """Return an address as a browser on this machine uses it."""
    if host in EVERYWHERE:
        return "localhost"
    return f"[{host}]" if ":" in host else host
