"""The way through the explorer in a real browser, on recorded demos: from "it is slow" to the line, the cure and the proof."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from served import served

STORE = Path(__file__).parent / "recorded" / "store"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
PATIENCE_MS = 60_000
pytestmark = pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("--store", str(STORE)) as running:
        yield running.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1280, "height": 1400})  # one, which compiles the scripts of pages once
        context.set_default_timeout(PATIENCE_MS)
        yield context
        browser.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """A page that asks nobody else and never complains."""
    page, elsewhere, complaints = browser.new_page(), list[str](), list[str]()
    page.on("request", lambda one: elsewhere.append(one.url) if not one.url.startswith((address, "data:", "blob:")) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert not elsewhere
    assert not complaints


def rests(page: Any) -> None:
    """Wait until the server has nothing more to say: the status widget comes late, so that it alone would not tell."""
    page.wait_for_selector("h1")
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", state="attached")
    page.locator("[data-testid=stStatusWidget]").wait_for(state="detached")


def stands(plot: Any) -> dict[str, float]:
    """Return where a plot is on the page, once it has not moved for a second: what is above it may be drawn later."""
    before, box = None, plot.bounding_box()
    while box != before:
        plot.page.wait_for_timeout(1000)
        before, box = box, plot.bounding_box()
    return box


def at(page: Any, address: str, path: str, title: str) -> Any:
    page.goto(address + path)
    page.get_by_role("heading", name=title, level=1).wait_for()
    rests(page)
    return page


def test_the_job_that_loses_most_is_found_and_opened(page: Any, address: str) -> None:
    at(page, address, "jobs?q=straggler", "Jobs")
    table = page.locator("[data-testid=stDataFrame] canvas").first
    table.wait_for()
    # What the canvas shows is within it for those who cannot see: once that is there, it is drawn.
    table.get_by_text("demo-input_straggler").first.wait_for(state="attached")
    table.click(position={"x": 20, "y": 52}, force=True)  # the box of the first row

    page.get_by_role("heading", name="demo-input_straggler", level=1).wait_for()
    assert re.search(r"/job\?job=demo-input_straggler$", page.url)


@pytest.mark.bar  # without a browser in screens/jobs/test_job.py
def test_the_verdict_stands_first_with_who_how_much_and_what_to_do(page: Any, address: str) -> None:
    at(page, address, "job?job=demo-input_straggler", "demo-input_straggler")
    card = page.get_by_text("One rank's input is slow and all ranks wait for it").first
    card.wait_for()
    page.get_by_text("Where the time went").first.wait_for()
    page.get_by_text("num_workers").first.wait_for(state="attached")

    words = page.locator("[data-testid=stMain]").inner_text()
    assert re.search(r"critical.*rank 1", words, re.IGNORECASE | re.DOTALL)
    assert "num_workers" in words
    assert words.lower().index("critical") < words.index("Where the time went")


def test_a_window_that_is_brushed_goes_into_the_address_and_all_follows(page: Any, address: str) -> None:
    at(page, address, "job?job=demo-input_straggler&part=zoom", "demo-input_straggler")
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    box = stands(plot)
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.6 * box["height"], steps=8)
    page.locator(".select-outline").first.wait_for(state="attached")  # the plot has seen it
    page.mouse.up()

    page.wait_for_url(re.compile(r"from=\d+.*to=\d+"))
    rests(page)
    page.get_by_role("button", name="Whole run").first.wait_for()
    address_of_window = page.url
    page.goto(address_of_window)  # as somebody who was sent it
    rests(page)
    page.get_by_role("button", name="Whole run").first.wait_for()


@pytest.mark.bar  # the link is in screens/jobs/test_job.py, and a click on a cell leads there too
def test_the_trace_of_the_slow_rank_is_one_click_away(page: Any, address: str) -> None:
    at(page, address, "job?job=demo-input_straggler", "demo-input_straggler")
    page.get_by_role("link", name="Rank 1 in the trace").first.click()

    page.get_by_role("heading", name="Trace", level=1).wait_for()
    page.locator(".js-plotly-plot").first.wait_for()
    rests(page)
    assert "job=demo-input_straggler" in page.url
    assert "rank=1" in page.url
    page.get_by_text(re.compile("rank-1.json.gz")).first.wait_for(state="attached")


def test_a_click_on_a_cell_opens_the_trace_of_its_rank_and_steps(page: Any, address: str) -> None:
    at(page, address, "job?job=demo-input_straggler", "demo-input_straggler")
    assert not page.locator(".js-plotly-plot").count()
    page.get_by_role("tab", name="Time by rank").press("Enter")
    page.wait_for_url(re.compile("part=ranks"))
    plot = page.locator(".js-plotly-plot:has(.heatmaplayer image) .nsewdrag").first
    plot.scroll_into_view_if_needed()
    box = stands(plot)
    cell = box["x"] + 0.5 * box["width"], box["y"] + 0.75 * box["height"]  # of the lower of two ranks
    page.mouse.move(*cell)
    page.get_by_text(re.compile(r"rank 1, steps \d+ to \d+: [\d.]+ ms a step")).first.wait_for()
    page.mouse.click(*cell)

    page.wait_for_url(re.compile(r"trace\?.*rank=1.*from=\d+.*to=\d+"))


@pytest.mark.bar  # without a browser in figures/test_compare.py
def test_it_is_compared_with_the_clean_run(page: Any, address: str) -> None:
    at(page, address, "compare?job=demo-input_straggler", "Compare")
    page.get_by_role("combobox", name=re.compile("Baseline")).click()
    page.get_by_role("option", name=re.compile("demo-none")).click()
    page.wait_for_url(re.compile("baseline=demo-none"))
    rests(page)

    page.get_by_text(re.compile("Slower: .* beyond the noise; rank 1")).first.wait_for()


@pytest.mark.bar  # without a browser in screens/jobs/test_job.py
def test_the_runbook_is_open_where_its_link_leads(page: Any, address: str) -> None:
    at(page, address, "job?job=demo-input_straggler&class=input_straggler", "demo-input_straggler")

    page.get_by_text("Runbook: input_straggler").first.wait_for()
    page.get_by_role("link", name="What if").first.wait_for()
    page.get_by_text("num_workers").first.wait_for(state="attached")
