"""How quick the explorer's pages are, by the real server and a real browser on this machine: seconds, bytes and memory.

A trace of one and of five million events (made as benchmarks/trace_reading.py makes them), a store of 200 jobs, and a job of 8
ranks with 20,000 steps each; `long_job.py` has a long job. Of each view: from the browser's question to the server's last message,
and from the click to the last thing drawn; first with an empty cache of traces, then by a server that was started again, then by
another browser. Then a tab is chosen and a part of the first figure is zoomed into, and 200 interactions show whether the server's
memory stays as it is.

    python -m benchmarks.explorer_pages.pages --write                      # about ten minutes, 1 GiB below build/bench
    python -m benchmarks.explorer_pages.pages --only x1m --interactions 20
    python -m benchmarks.explorer_pages.pages --trace a.json.gz --trace b.json.gz   # other traces instead of the two
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.explorer_pages.stores import fill
from benchmarks.sections import write_section
from benchmarks.traces.trace_reading import BUILD, files, resident_bytes, tree
from playwright.sync_api import Browser, Page, sync_playwright

# What the browser is asked of the pages: names that Streamlit and plotly give, none of a page's own.
ALERT = '[data-testid="stAlert"]'
DONE = """() => {
    const app = document.querySelector('[data-testid="stApp"]')
    const figures = [...document.querySelectorAll('.js-plotly-plot')]
    return app?.getAttribute('data-test-script-state') === 'notRunning' && !!document.querySelector('h1')
        && !document.querySelector('[data-testid="stSkeleton"]') && figures.every(one => one.querySelector('.main-svg'))
}"""
TABS = '[role="tab"]:visible, [data-testid="stButtonGroup"] button:visible'
FIGURE = ".js-plotly-plot .nsewdrag"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]

QUIET_SECONDS, LONGEST_SECONDS = 0.6, 240.0
TRACES = ("x1m", "x5m")
VIEWS = {
    "x1m": "/trace?job=(traces)",
    "x5m": "/trace?job=(traces)",
    "jobs": "/jobs",
    "steps": "/job?job=steps",
}
SAID = {
    "x1m": "a trace of 1 million events",
    "x5m": "a trace of 5 million events",
    "jobs": "200 jobs",
    "steps": "a job of 8 ranks and 20,000 steps",
}


@dataclass
class Look:
    """What one look or one interaction took.

    Attributes:
        answered: seconds from the browser's first message to the last of the server. drawn: from the act until nothing changes.
        socket_bytes, http_bytes: received; of HTTP without Streamlit's own program. figures: that were drawn.
    """

    answered: float
    drawn: float
    socket_bytes: int
    http_bytes: int
    figures: int


@dataclass
class Wire:
    """What a page sent and received, as Chromium counts it: times of messages sent, times and bytes of those received."""

    sent: list[float] = field(default_factory=list)
    frames: list[tuple[float, int]] = field(default_factory=list)
    http: list[int] = field(default_factory=list)
    of_program: set[str] = field(default_factory=set)

    def listen(self, page: Page) -> None:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.on("Network.webSocketFrameSent", lambda _: self.sent.append(time.perf_counter()))
        session.on("Network.webSocketFrameReceived", self._frame)
        session.on("Network.requestWillBeSent", self._asked)
        session.on("Network.loadingFinished", self._loaded)

    def _frame(self, event: Any) -> None:
        self.frames.append((time.perf_counter(), len(event["response"]["payloadData"]) * 3 // 4))  # in base 64

    def _asked(self, event: Any) -> None:
        if "/static/" in event["request"]["url"]:
            self.of_program.add(event["requestId"])

    def _loaded(self, event: Any) -> None:
        if event["requestId"] not in self.of_program:
            self.http.append(int(event["encodedDataLength"]))


class Explorer:
    """A running server, and what it holds."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process, self.url = process, url.rstrip("/")

    def resident(self) -> int:
        return sum(map(resident_bytes, tree(self.process.pid)))


@contextlib.contextmanager
def serving(words: list[str], cache: Path) -> Iterator[Explorer]:
    """Serve with these words and a cache of traces."""
    command = [sys.executable, "-m", "tachoscope_cli.main", "explore", "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TACHOSCOPE_CACHE": str(cache)})
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit(f"{' '.join(command)} ended with {process.wait()}")
        yield Explorer(process, url)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def look(browser: Browser, url: str) -> Look:
    """Open a view in a browser that has seen nothing."""
    with opened(browser) as (page, wire):
        seen = measured(page, wire, lambda: page.goto(url))
        for text in page.locator(ALERT).all_inner_texts():
            print(f"{url} says: {text}", file=sys.stderr)
        return seen


@contextlib.contextmanager
def opened(browser: Browser) -> Iterator[tuple[Page, Wire]]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page, wire = context.new_page(), Wire()
    wire.listen(page)
    try:
        yield page, wire
    finally:
        context.close()


def measured(page: Page, wire: Wire, act: Any) -> Look:
    """Return what an act took: it is over when the page has been done, and the socket silent, for a while."""
    for kept in (wire.sent, wire.frames, wire.http):
        kept.clear()
    began = time.perf_counter()
    act()
    done: float | None = None
    while True:
        now = time.perf_counter()
        if now - began > LONGEST_SECONDS:
            raise SystemExit(f"{page.url} was not drawn within {LONGEST_SECONDS:g} s")
        if not page.evaluate(DONE):
            done = None
        elif done is None:
            done = time.perf_counter()
        last = wire.frames[-1][0] if wire.frames else began
        if done is not None and now - max(done, last) > QUIET_SECONDS:
            break
        page.wait_for_timeout(25)
    sizes = sum(size for _, size in wire.frames)
    asked = wire.sent[0] if wire.sent else last
    return Look(max(0.0, last - asked), max(done, last) - began, sizes, sum(wire.http), page.locator(FIGURE).count())


def interactions(page: Page, wire: Wire) -> dict[str, Look]:
    """Choose another tab, and zoom into the middle of the first figure, where the page has them."""
    found = {}
    if page.locator(TABS).count() > 1:
        found["tab"] = measured(page, wire, page.locator(TABS).nth(1).click)
        page.locator(TABS).nth(0).click()
        page.wait_for_timeout(1000)
        if not page.locator(FIGURE).count():  # the figure of a job is behind its second tab
            settled(page, page.locator(TABS).nth(1).click)
    if page.locator(FIGURE).count():
        found["zoom"] = measured(page, wire, lambda: drag(page))
    return found


def drag(page: Page) -> None:
    figure = page.locator(FIGURE).first
    figure.scroll_into_view_if_needed()
    box = figure.bounding_box()
    assert box is not None
    at = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, at - 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, at + 10, steps=6)
    page.mouse.up()


def memory(page: Page, wire: Wire, explorer: Explorer, url: str, count: int) -> list[int]:
    """Return the server's resident bytes before and after each of many interactions: tabs, and the view again."""
    taken = [explorer.resident()]
    for number in range(count):
        tabs = page.locator(TABS).count()
        if tabs > 1 and number % 4:
            settled(page, page.locator(TABS).nth(number % tabs).click)
        else:
            settled(page, lambda: page.goto(url))
        taken.append(explorer.resident())
    return taken


def settled(page: Page, act: Any) -> None:
    """Act, and wait until the page is done; what is drawn later does not matter to the server."""
    act()
    until = time.monotonic() + LONGEST_SECONDS
    page.wait_for_timeout(100)
    while not page.evaluate(DONE):  # Playwright's own wait runs text as script, which the pages' policy forbids
        if time.monotonic() > until:
            raise SystemExit(f"{page.url} was not drawn within {LONGEST_SECONDS:g} s")
        page.wait_for_timeout(25)


def measure(browser: Browser, name: str, words: list[str], count: int) -> tuple[list[str], list[str]]:
    """Return the rows of a view, and of its memory."""
    cache = Path(tempfile.mkdtemp(dir=BUILD, prefix="cache-"))
    said, path = SAID.get(name, name), VIEWS.get(name, VIEWS["x1m"])
    try:
        with serving(words, cache) as explorer:
            looks = {"cold": look(browser, explorer.url + path)}
        if name in TRACES:
            looks["in the store, first look"] = look_stored(browser, words[-1])
        with serving(words, cache) as explorer:
            url = explorer.url + path
            looks["server again"] = look(browser, url)
            print(f"{said}: drawn in {looks['cold'].drawn:.1f} s cold; {looks['server again'].drawn:.1f} s, again", file=sys.stderr)
            warm = [look(browser, url) for _ in range(3)]
            looks["warm"] = sorted(warm, key=lambda one: one.drawn)[1]
            with opened(browser) as (page, wire):
                measured(page, wire, lambda: page.goto(url))
                looks |= interactions(page, wire)
                taken = memory(page, wire, explorer, url, count) if count else []
    finally:
        shutil.rmtree(cache, ignore_errors=True)
    rows = [
        f"| {said} | {what} | {one.answered:.2f} | {one.drawn:.2f} | {one.socket_bytes / 1e3:,.0f} | {one.http_bytes / 1e3:,.0f} "
        f"| {one.figures} |"
        for what, one in looks.items()
    ]
    return rows, [memory_row(said, taken)] if taken else []


def look_stored(browser: Browser, trace: str) -> Look:
    """Put a trace into a store as somebody does, and look at it for the first time."""
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="store-") as folder:
        store, cache = f"{folder}/store", Path(folder, "cache")
        command = [sys.executable, "-m", "tachoscope_cli.main", "store", "add-traces", "big", trace, "--store", store]
        begin = time.monotonic()
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=os.environ | {"TACHOSCOPE_CACHE": str(cache)})
        print(f"put into a store in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        with serving(["--store", store], cache) as explorer:
            return look(browser, explorer.url + "/trace?job=big")


def memory_row(said: str, taken: list[int]) -> str:
    """Return the row of a view's memory; flat or not by the medians of two quarters, the second and the last."""
    quarter = max(1, len(taken) // 4)
    growth = statistics.median(taken[-quarter:]) - statistics.median(taken[quarter : 2 * quarter])
    mib = [f"{size / (1 << 20):,.0f}" for size in (taken[0], max(taken), taken[-1])]
    return f"| {said} | {len(taken) - 1} | {' | '.join(mib)} | {growth / (1 << 20):+,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=VIEWS, action="append")
    parser.add_argument(
        "--trace", action="append", default=[], metavar="FILE", help="look at this trace instead of those made here"
    )
    parser.add_argument("--interactions", type=int, default=200, help="over which the server's memory is watched")
    parser.add_argument("--write", action="store_true", help="write the result into docs/develop/measurements.md")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    chosen = list(options.only or (() if options.trace else VIEWS))
    rows, memories = list[str](), list[str]()
    with sync_playwright() as play, tempfile.TemporaryDirectory() as empty:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        given = {Path(path).name: ["--store", empty, path] for path in options.trace}
        made = ((name, [empty, *map(str, files(name))] if name in TRACES else [str(fill(BUILD, name))]) for name in chosen)
        for name, words in (*given.items(), *((name, ["--store", *some]) for name, some in made)):
            more, of_memory = measure(browser, name, words, options.interactions)
            print(*more, *of_memory, sep="\n", file=sys.stderr)
            rows, memories = [*rows, *more], [*memories, *of_memory]
        browser.close()
    table = report(rows, memories)
    print(table)
    if options.write:
        write_section("explorer", table, "python -m benchmarks.explorer_pages.pages --write")


def report(rows: list[str], memories: list[str]) -> str:
    """Return both tables."""
    seen = [
        "| view | look | server s | drawn s | socket kB | HTTP kB | figures |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    held = [
        "",
        "| view | interactions | server at first, MiB | at most | at last | from the second quarter to the last |",
        "|---|---|---|---|---|---|",
        *memories,
    ]
    return "\n".join([*seen, *(held if memories else [])])


if __name__ == "__main__":
    main()
