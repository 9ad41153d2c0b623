"""Draws the pictures of the explorer in the docs, from recorded demos, in a real Chromium: `make pages`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from served import served

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
STORE = Path(__file__).parent / "recorded" / "store"
_RUN = "job=demo-input_straggler"
PICTURES = {
    "jobs": ("jobs", "light", 700),
    "job": (f"job?{_RUN}", "light", 1600),
    "trace": (f"trace?{_RUN}&rank=1&part=operators", "dark", 1300),
    "compare": (f"compare?{_RUN}&baseline=demo-none", "light", 1200),
    "what-if": (f"what-if?{_RUN}&class=input_straggler", "dark", 1200),
}
"""Address, theme, and height in pixels."""
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


def main() -> None:
    """Write them, each `explorer-NAME.png`."""
    with (
        tempfile.TemporaryDirectory(prefix="tachoscope-") as folder,  # pages name the store, and nobody cares where this clone is
        served("--store", shutil.copytree(STORE, f"{folder}/store")) as explorer,
        sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=_ARGUMENTS)
        for name, (address, theme, height) in PICTURES.items():
            page = browser.new_context(viewport={"width": 1280, "height": height}, color_scheme=theme).new_page()
            page.goto(explorer.url + address)
            page.wait_for_selector("h1", timeout=60_000)
            page.wait_for_timeout(1000)
            page.locator("[data-testid=stStatusWidget]").wait_for(state="detached", timeout=60_000)
            page.wait_for_timeout(2000)  # charts draw themselves
            page.screenshot(path=FOLDER / f"explorer-{name}.png")
            page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
