"""Makes a picture of each board with a headless Chromium, once all its panels are drawn."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from grafana_preview.api import Preview
from grafana_preview.server import Server
from tachoscope_alerts.compile.links import board_name
from tachoscope_core.errors import TachoscopeError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

Theme = Literal["light", "dark"]
WIDTH, HEIGHT = 1600, 1000
DRAWN_SECONDS = 180.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture. panels: how many have queries; empty: of how many of them these gave nothing; errors: what went wrong."""

    uid: str
    path: Path
    panels: int
    empty: int
    errors: tuple[str, ...]


def shots(preview: Preview, folder: Path, theme: Theme, chromium: Path | None) -> Iterator[Shot]:
    """Write `UID.png` (dark: `UID.dark.png`) of each board.

    Raises:
        TachoscopeError: playwright or Chromium is missing, or a board is not drawn within `DRAWN_SECONDS`.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise TachoscopeError("--shots needs playwright", fix="pip install playwright, and a Chromium") from None
    folder.mkdir(parents=True, exist_ok=True)
    server = Server(preview, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        with sync_playwright() as playwright:
            browser = _browser(playwright, chromium)
            for uid in preview.boards:
                path = folder / (f"{board_name(uid)}.dark.png" if theme == "dark" else f"{board_name(uid)}.png")
                yield _shot(browser, f"{server.url}/d/{uid}?theme={theme}", uid, path)
            browser.close()
    except Error as error:
        raise TachoscopeError(f"Chromium failed: {str(error).splitlines()[0]}") from None
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _shot(browser: Browser, url: str, uid: str, path: Path) -> Shot:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(url)
    page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=DRAWN_SECONDS * 1000)
    page.screenshot(path=path, full_page=True)
    states = page.eval_on_selector_all(
        ".panel", "panels => panels.map(p => [p.dataset.type, p.dataset.state, p.querySelector('.error')?.textContent ?? ''])"
    )
    problem = page.text_content("#problem") or ""
    page.close()
    asking = [(state, error) for kind, state, error in states if kind not in {"text", "row"}]
    errors = [error for state, error in asking if state == "error"] + ([problem] if problem else [])
    return Shot(uid, path, len(asking), sum(state == "empty" for state, _ in asking), tuple(errors))


def _browser(playwright: Playwright, chromium: Path | None) -> Browser:
    path = str(chromium) if chromium else next((found for name in _NAMES if (found := shutil.which(name))), None)
    if chromium and not chromium.is_file():
        raise TachoscopeError(f"there is no Chromium {chromium}")
    # Chromium's sandbox does not work for root; it opens nothing but the pages of this process.
    arguments = [*_QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    if path is None and not Path(playwright.chromium.executable_path).is_file():
        raise TachoscopeError("--shots needs a Chromium", fix="install Debian's chromium, or name one with --chromium PATH")
    return playwright.chromium.launch(executable_path=path, args=arguments)
