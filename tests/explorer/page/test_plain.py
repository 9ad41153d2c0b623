"""Names that look like markup are shown letter by letter, by the real Streamlit in a real browser."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import free_port, wait_for
from tachoscope_explorer.page.widgets import escape_markdown

HOSTILE = [
    *("<script>alert(1)</script>", "[x](javascript:alert(1))", "$x^2$", "$$x$$", ":red[x]", "![](http://elsewhere.example/x.png)"),
    *("<img src=x onerror=alert(1)>", "<!-- c -->", "&lt;b&gt; &amp; &#65;", "<https://x.example>", "http://elsewhere.example/x"),
    *(
        "https://elsewhere.example",
        "HTTP://elsewhere.example",
        "www.elsewhere.example",
        "me@elsewhere.example",
        "mailto:a@b.example",
    ),
    *("a->b <- c <-> d", "a -- b --- >= c <= d ~= e", ":smile: :material/home: :streamlit:", "::material/home:", "(c) (tm) a...b"),
    *("`code` **bold** _it_ ~~no~~ ==m== ~s~ ^s^", "# head", "1. one", "1) one", "- x", "+ x", "> q", "a | b", "[ ] todo", "[^1]"),
    *("\\(x\\) \\[y\\]", "\\", "\\\\", "name\\", "*", "__init__", "==", "---", "***", "~~~", "```", ":::x", "    four spaces"),
    *(
        "void at::native::(anonymous namespace)::vectorized<4, std::array<char*, 2ul>>(int)",
        "a\u202eb\u200bc",
        "a\nb\r\n\tc\0d",
    ),
    *(
        ':blue-background[x] :small[x] :color[x]{foreground="red"} :badge[x]',
        "&nbsp;&NewLine;",
        "%3Cscript%3E",
        "'q' \"q\" “q”",
        "🚀",
    ),
]
PIECES = [*r"\`*_{}[]()<>#+-.!|~$:&=@/^%'\"", " ", "a", "www.", "http", "://", "x.y", "1", "red", ":material/home:", "->", "script"]
PLACES = ("alone", "within", "label", "hint")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


def at_random(count: int) -> list[str]:
    chance = random.Random(11)
    return ["".join(chance.choices(PIECES, k=chance.randint(1, 12))) for _ in range(count)]


def as_read(text: str) -> str:
    """Return a text as a browser shows it: what cannot be printed and runs of spaces are one space."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


@pytest.fixture(scope="module")
def names() -> list[str]:
    return [name for name in (*HOSTILE, *at_random(80)) if as_read(name)]


@pytest.fixture(scope="module")
def url(names: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the names."""
    file, port = tmp_path_factory.mktemp("names") / "names.json", free_port()
    file.write_text(json.dumps(names))
    app = Path(__file__).parents[1] / "plain_app.py"
    server = {"port": port, "address": "127.0.0.1", "headless": "true", "fileWatcherType": "none"}
    options = {f"server.{name}": value for name, value in server.items()} | {"browser.gatherUsageStats": "false"}
    process = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", app, *(f"--{name}={value}" for name, value in options.items())],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"NAMES": str(file), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    address = f"http://127.0.0.1:{port}/"
    try:
        wait_for(lambda: urllib.request.urlopen(f"{address}_stcore/health", timeout=5).status == 200, 120)
        yield address
    finally:
        process.terminate()
        process.wait()


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_names_that_look_like_markup_are_shown_as_they_are_and_ask_nobody(url: str, names: list[str]) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    outside: list[str] = []
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.on("dialog", lambda dialog: (outside.append(dialog.message), dialog.dismiss()))
        page.on(
            "request", lambda request: outside.append(request.url) if not request.url.startswith((url, "data:", "ws://")) else None
        )
        page.goto(url)
        page.wait_for_selector("h3")
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", state="attached")
        page.wait_for_function(  # some is drawn by parts of Streamlit that are loaded late
            """([places, count]) => places.every(place => [...Array(count).keys()].every(
                number => document.querySelector(`.st-key-${place}-${number}`)?.innerText.trim()))""",
            arg=[PLACES, len(names)],
        )
        page.wait_for_timeout(500)
        shown = page.evaluate(
            """([places, count]) => places.flatMap(place => [...Array(count).keys()].map(number => {
                const element = document.querySelector(`.st-key-${place}-${number}`)
                const made = element.querySelectorAll('a, img, script, code, h1, h2, h3, h4, h5, table, blockquote, .katex')
                return [place, number, element.innerText, made.length]
            }))""",
            [PLACES, len(names)],
        )
        browser.close()

    patterns = {"alone": "{0}", "within": "{0} of {0}", "label": "{0}", "hint": "a {0} b"}
    wrong = [
        (place, names[number], text, made)
        for place, number, text, made in shown
        if as_read(text) != as_read(patterns[place].format(names[number])) or made
    ]
    assert wrong == [], f"{len(wrong)} of {len(shown)}"
    assert [address for address in outside if not address.startswith((url, "data:", "ws://"))] == []


def test_ordinary_names_stay_readable_in_the_page_s_source() -> None:
    assert escape_markdown("rank 3") == "rank 3"
    assert escape_markdown("demo-none") == "demo\\-none"
