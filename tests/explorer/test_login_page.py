"""Logging in by keyboard, in a real browser: on to what was asked for, asking no other host, and out again everywhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from served import served

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
HAS_FOCUS = "document.activeElement.id === 'password'"
"""Which it gets by itself, a moment after it is there."""


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_a_person_logs_in_by_keyboard_looks_and_logs_out(tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    (tmp_path / "password").write_text("open sesame\n")
    asked: list[str] = []
    said: list[str] = []
    with (
        served("--store", "store", "--password-file", "password", folder=tmp_path) as explorer,
        playwright.sync_playwright() as play,
    ):
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        context = browser.new_context()
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))

        page.goto(f"{explorer.url}job?job=planted&rank=3")
        page.wait_for_function(HAS_FOCUS)
        page.keyboard.type("sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector("[role=alert]")
        assert page.inner_text("[role=alert]") == "Wrong password."
        page.wait_for_function(HAS_FOCUS)

        page.keyboard.type("open sesame")
        page.keyboard.press("Enter")
        page.wait_for_selector("h1:has-text('planted')", timeout=60_000)
        assert page.url.startswith(f"{explorer.url}job?job=planted")

        other = context.new_page()
        other.goto(f"{explorer.url}logout")
        assert other.get_by_label("Password").is_visible()
        page.reload()
        assert page.get_by_label("Password").is_visible()
        browser.close()

    assert [url for url in asked if not url.startswith((explorer.url, "data:", "blob:"))] == []
    assert [text for text in said if "Content Security Policy" in text] == []
