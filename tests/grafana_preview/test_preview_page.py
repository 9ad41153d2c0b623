"""A board in a real browser, drawn from a real Prometheus: every type of panel shows the values that were planted."""

from __future__ import annotations

import re
import shutil
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, sync_playwright

import preview_making
from grafana_preview.api import Preview
from grafana_preview.server import Server
from preview_making import AWAY, NODE_NAMES, SCRIPT
from tachoscope_core.report import palette
from tachoscope_dashboards.parts.grafana_json import to_json

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.bar,  # a tool of the repository; test_preview_command.py draws all boards
    pytest.mark.skipif(not (CHROMIUM and shutil.which("prometheus")), reason="needs chromium and prometheus"),
]


@dataclass
class Site:
    """The pages of the boards, since when there are series, a browser, and what it asked for and complained of."""

    url: str
    since: float
    browser: Browser
    asked: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        page = self.browser.new_page(viewport={"width": 1600, "height": 1000}, timezone_id="UTC")
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(self.url + path)
        drawn(page)
        return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    boards = {board.uid: to_json(board) for board in (preview_making.every_type(), preview_making.other(), preview_making.large())}
    since = preview_making.hour_ago()
    with (
        preview_making.planted(tmp_path_factory.mktemp("prometheus"), since) as prometheus,
        Server(Preview(boards, prometheus), "127.0.0.1", 0) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield Site(server.url, since, browser)
        browser.close()
        server.shutdown()


@pytest.fixture(scope="module")
def board(site: Site) -> Page:
    """Return the board with each type, as it is opened first; tests that change it open their own."""
    return site.open("/d/every-type?theme=light")


def drawn(page: Page) -> None:
    page.wait_for_selector("html[data-drawn=yes]", state="attached", timeout=120_000)


def panel(page: Page, title: str) -> Locator:
    return page.locator(".panel", has=page.get_by_role("heading", name=title, exact=True))


def texts(page: Page, title: str, inside: str) -> list[str]:
    return panel(page, title).locator(inside).all_inner_texts()


def traces(page: Page, title: str) -> list[dict[str, Any]]:
    """Return what plotly.js drew, without the marks of events."""
    found: list[dict[str, Any]] = panel(page, title).locator(".plot").evaluate("e => JSON.parse(JSON.stringify(e.data))")
    return [trace for trace in found if not trace.get("meta", {}).get("mark")]


def layout(page: Page, title: str) -> dict[str, Any]:
    found: dict[str, Any] = panel(page, title).locator(".plot").evaluate("e => JSON.parse(JSON.stringify(e.layout))")
    return found


def moment(text: str) -> float:
    """Return the time of a text as plotly.js is given it, in a browser whose time zone is UTC."""
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def rgb(color: str) -> str:
    return f"rgb({', '.join(str(int(color[place : place + 2], 16)) for place in (1, 3, 5))})"


def plain(text: str) -> str:
    """Return a text as plotly.js has to be given it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def test_single_numbers_have_unit_colour_and_meaning(board: Page) -> None:
    assert texts(board, "Temperature", ".body strong") == ["75 °C"]
    assert panel(board, "Temperature").locator(".body strong").evaluate("e => getComputedStyle(e).color") == rgb(palette.BAD)
    assert texts(board, "Rate", ".body strong") == ["1.50K req/s"]
    assert panel(board, "Rate").locator("polyline").count() == 1
    assert (texts(board, "State", ".body strong"), panel(board, "State").locator("polyline").count()) == (["hung"], 0)
    each = dict(zip(texts(board, "Each node", ".number > span"), texts(board, "Each node", ".body strong"), strict=True))
    assert each == dict(zip(NODE_NAMES, ["1.50 KiB", "1.50 MiB", "1.50 GiB"], strict=True))


def test_lines_have_the_values_of_their_series_and_the_boards_thresholds(board: Page) -> None:
    found = {trace["name"]: trace for trace in traces(board, "Lines")}

    assert set(found) == {*map(plain, NODE_NAMES), "bound"}
    first, second = (found[name]["y"] for name in NODE_NAMES[:2])
    known = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    assert len(known) > 200
    assert all(abs(b - a - 1.0) < 1e-4 for a, b in known)
    assert all(0.0 < after[0] - before[0] < 0.01 for before, after in pairwise(known))
    assert found["bound"]["line"]["color"] == "#123456"
    assert found["bound"]["text"][0] == "700 ms"
    limits = [shape for shape in layout(board, "Lines")["shapes"] if shape.get("yref") == "y"]
    assert [(one["y0"], one["y1"], one["line"]["color"], one["line"]["dash"]) for one in limits] == [
        (1.5, 1.5, palette.BAD, "dash")
    ]


def test_areas_are_on_each_other_in_the_colours_of_their_states(board: Page) -> None:
    found = traces(board, "Areas")

    assert [(one["name"], one["fillcolor"]) for one in found] == [
        (name, palette.STATE_COLORS[name]) for name in ("compute", "data_wait", "unexplained")
    ]
    assert len({one["stackgroup"] for one in found}) == 1
    assert [max(value for value in one["y"] if value) for one in found] == [0.5, 0.3, 0.2]
    assert layout(board, "Areas")["yaxis"]["range"] == [0.0, 1.0]


def test_what_happens_now_and_then_is_a_bar_or_a_point(board: Page) -> None:
    (bars,), (points,) = traces(board, "Now and then, bars"), traces(board, "Now and then, points")

    assert (bars["type"], points["mode"]) == ("bar", "markers")
    for one in (bars, points):
        assert {value for value in one["y"] if value is not None} == {1.0}
        assert {one["text"][place] for place, value in enumerate(one["y"]) if value is not None} == {"1"}


def test_a_logarithmic_axis_is_one(board: Page) -> None:
    axis = layout(board, "Logarithm")["yaxis"]
    assert axis["type"] == "log"
    assert 10 ** axis["range"][0] <= 1536.0 <= 1.5 * 2**30 <= 10 ** axis["range"][1]
    assert {"1 KiB", "64 KiB"} <= set(axis["ticktext"])


def test_a_heatmap_has_a_row_a_series(board: Page) -> None:
    (found,) = traces(board, "Rows")
    rows = layout(board, "Rows")["yaxis"]["ticktext"]

    assert dict(zip(rows, (max(value for value in row if value) for row in found["z"]), strict=True)) == {
        "compute": 0.5,
        "data_wait": 0.3,
        "unexplained": 0.2,
    }


def test_the_buckets_of_a_histogram_are_what_is_in_each_not_below_it(board: Page) -> None:
    (found,) = traces(board, "Buckets")

    middle = [row[len(row) // 2] for row in found["z"]]
    assert layout(board, "Buckets")["yaxis"]["ticktext"] == ["100 ms", "1 s", "+Inf"]
    assert middle == pytest.approx([2.0, 3.0, 1.0], rel=1e-3)


def test_bands_have_the_states_that_ranks_were_in(site: Site, board: Page) -> None:
    found = {trace["name"]: trace for trace in traces(board, "Bands")}

    assert [(name, one["marker"]["color"]) for name, one in found.items()] == [
        ("working", palette.OK),
        ("silent", palette.WARN),
        ("hung", palette.BAD),
    ]
    minutes = {name: sum(one["x"]) / 60_000 for name, one in found.items()}
    # What is looked at ends when the board was opened, which is up to a minute, and what opening took, after the planted hour.
    end = max(moment(start) + length / 1000 for one in found.values() for start, length in zip(one["base"], one["x"], strict=True))
    later = (end - site.since) / 60 - 60
    assert 0 <= later < 9, "the planted series have ended"
    assert minutes["working"] == pytest.approx(60 + 2 * (20 - later), abs=2)
    assert minutes["silent"] == pytest.approx(40 + later + 20, abs=2)
    assert set(found["hung"]["text"]) == {"rank 2"}
    assert texts(board, "Bands", ".legend span") == ["working", "silent", "hung"]


def test_a_table_has_units_meanings_colours_links_and_order(board: Page) -> None:
    rows = [row.split("\t") for row in texts(board, "Nodes", "tbody tr")]

    heads = panel(board, "Nodes").locator("th")
    assert [(head.inner_text(), head.get_attribute("aria-sort")) for head in heads.all()] == [
        ("Node", "none"),
        ("Up", "none"),
        ("Hottest", "descending"),
        ("Memory", "none"),
    ]
    assert rows == [
        [NODE_NAMES[2], "up", "75 °C", "1.50 GiB"],
        [NODE_NAMES[1], "down", "62.5 °C", "1.50 MiB"],
        [NODE_NAMES[0], "up", "50 °C", "1.50 KiB"],
    ]
    hot, warm, cool = _colours_of_the_hottest(board)
    assert hot == warm
    assert hot.index(max(hot)) == 0  # red
    assert cool.index(max(cool)) == 1  # green
    href = panel(board, "Nodes").locator("tbody a").first.get_attribute("href") or ""
    assert urllib.parse.parse_qs(urllib.parse.urlsplit(href).query) == {"var-node": [NODE_NAMES[2]], "at": [NODE_NAMES[2]]}


def _colours_of_the_hottest(page: Page) -> list[list[float]]:
    """Return red, green and blue of the coloured column of the table, the hottest first, each from 0 to 1."""
    cells = panel(page, "Nodes").locator("tbody tr td:nth-child(3) > *")
    found = [cell.evaluate("e => getComputedStyle(e).color") for cell in cells.all()]
    return [[float(part) for part in re.findall(r"[\d.]+", text)[:3]] for text in found]


@pytest.mark.parametrize(("theme", "behind"), [("light", (1.0, 1.0, 1.0)), ("dark", (24 / 255, 27 / 255, 31 / 255))])
def test_small_words_in_a_states_colour_can_be_read_on_the_panel(site: Site, theme: str, behind: tuple[float, ...]) -> None:
    page = site.open(f"/d/every-type?theme={theme}")
    for colour in _colours_of_the_hottest(page):
        bright, dim = sorted((_luminance(colour), _luminance(behind)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5  # of the guidelines for accessible pages (WCAG 2, AA)
    page.close()


def _luminance(colour: Sequence[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_bars_are_as_long_as_their_values(board: Page) -> None:
    assert texts(board, "Bars", ".bars > strong") == ["75 °C", "62.5 °C", "50 °C"]
    parts = panel(board, "Bars").locator(".bar").evaluate_all("e => e.map(x => x.firstChild.offsetWidth / x.offsetWidth)")
    assert parts == pytest.approx([0.75, 0.625, 0.5], abs=0.01)


def test_an_empty_panel_says_why_and_a_refused_one_what_went_wrong(board: Page) -> None:
    reasons = {
        title: (texts(board, title, ".body p"), panel(board, title).get_attribute("data-state"))
        for title in ("Nothing here", "No line", "No rows", "No bars")
    }
    assert reasons == {
        "Nothing here": (["no traffic"], "empty"),
        "No line": (["no GPU on this node"], "empty"),
        "No rows": (["all agents are up"], "empty"),
        "No bars": (["no rank waits"], "empty"),
    }
    assert panel(board, "Refused").get_attribute("data-state") == "error"
    assert "parse error" in texts(board, "Refused", ".error")[0]
    assert board.locator(".panel[data-state=asking]").count() == 0


def test_alerts_are_marked_where_they_begin_and_events_from_when_to_when_they_were(board: Page) -> None:
    found = panel(board, "Lines").locator(".plot").evaluate("e => e.data.filter(t => t.meta?.mark).flatMap(t => t.text)")
    areas = [shape for shape in layout(board, "Lines")["shapes"] if shape["type"] == "rect"]

    assert sorted(found) == ["Alerts: Planted", "Drained: while Planted", "Restarts: restart of resnet"]
    (event,) = [shape for shape in areas if shape["fillcolor"] == palette.SERIES[3]]
    assert palette.BAD not in [shape["fillcolor"] for shape in areas]
    start, end = moment(event["x0"]), moment(event["x1"])
    assert 600 <= end - start <= 15 * 60  # Prometheus goes on to give the last sample for five minutes


def test_panels_lie_where_the_board_says(board: Page) -> None:
    left, right = panel(board, "Lines").bounding_box(), panel(board, "Areas").bounding_box()
    assert left is not None
    assert right is not None
    assert (left["y"], left["height"]) == (right["y"], right["height"]) == (left["y"], 8 * 38 - 8)
    assert right["x"] - left["x"] - left["width"] == pytest.approx(8, abs=1)
    assert left["width"] == pytest.approx(1600 / 2, abs=20)
    rows = board.locator(".panel.row h2").all_inner_texts()
    assert rows == ["Numbers", "Over time", "Now"]


def test_what_a_panel_is_about_and_where_it_leads_is_at_its_title(board: Page) -> None:
    words = panel(board, "Lines").locator(".words")
    assert not words.is_visible()
    panel(board, "Lines").locator(".about button").hover()
    assert words.is_visible()
    assert words.locator("em").inner_text() == "planted"
    assert panel(board, "Lines").locator("header > a").get_attribute("href") == "https://runbooks.example.com/Test.md"
    assert panel(board, "Rate").locator("header > a").nth(1).get_attribute("href") == "/d/other?var-node=.%2A"


def test_labels_and_words_that_look_like_html_are_text(board: Page) -> None:
    assert board.title() == "tachoscope / Each type of panel (preview)"
    assert board.locator("script").count() == 2
    assert board.locator("#grid b").count() == 0
    assert SCRIPT in board.locator("#grid").inner_text()
    shown = panel(board, "Lines").locator(".legend").inner_text()
    assert SCRIPT + AWAY in shown
    assert "<script>" in board.locator(".panel.text").last.inner_text()


def test_the_page_says_that_it_is_a_preview(board: Page) -> None:
    assert board.get_by_text("preview, not Grafana").is_visible()
    assert board.locator("#title").inner_text() == "tachoscope / Each type of panel"


def test_a_choice_is_kept_in_the_address_and_goes_along_to_the_other_boards(site: Site) -> None:
    page = site.open("/d/every-type")
    page.locator("[data-variable=node] summary").click()
    page.locator("[data-variable=node] .options label", has_text=SCRIPT).locator("input").check()
    page.locator("#title").click()
    page.wait_for_url("**var-node=*")
    drawn(page)
    asked = urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)
    assert asked == {"var-node": [NODE_NAMES[2]]}
    assert {trace["name"] for trace in traces(page, "Lines")} == {plain(NODE_NAMES[2]), "bound"}
    page.reload()
    drawn(page)
    assert texts(page, "Each node", ".body strong") == ["1.50 GiB"]
    page.locator("#boards a", has_text="Another").click()
    page.wait_for_url(re.compile(r"/d/other\?"))  # else the board before it may still be there, drawn
    drawn(page)
    assert urllib.parse.urlsplit(page.url).path == "/d/other"
    assert page.locator("[data-variable=node] summary").inner_text().startswith("<script>")
    page.close()


def test_the_time_is_chosen_from_a_list_or_drawn_into_a_panel_and_back_leads_back(site: Site) -> None:
    page = site.open("/d/every-type")
    page.locator("#time").select_option("now-15m")
    drawn(page)
    assert "from=now-15m&to=now" in page.url
    assert len(traces(page, "Lines")[0]["x"]) in {60, 61, 62}
    box = panel(page, "Lines").locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url("**from=1*")
    drawn(page)
    asked = urllib.parse.parse_qs(urllib.parse.urlsplit(page.url).query)
    assert 60_000 < int(asked["to"][0]) - int(asked["from"][0]) < 15 * 60_000
    page.go_back()
    page.wait_for_url("**from=now-15m*")
    page.close()


def test_the_theme_is_a_choice_too(site: Site) -> None:
    page = site.open("/d/other?theme=dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("#theme").click()
    drawn(page)
    assert "theme=light" in page.url
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.close()


@pytest.mark.alone
def test_a_board_of_forty_panels_is_drawn_within_seconds(site: Site) -> None:
    began = time.monotonic()
    page = site.open("/d/large")
    assert page.locator(".panel[data-state=drawn] .plot").count() == 40
    assert time.monotonic() - began < 20.0
    page.close()


def test_nothing_is_asked_of_another_server_and_the_browser_has_nothing_to_complain_of(site: Site) -> None:
    for uid in ("every-type", "large"):
        site.open(f"/d/{uid}?theme=dark").close()

    assert len(site.asked) > 60
    assert [url for url in site.asked if not url.startswith((site.url, "data:,"))] == []
    assert site.complaints == []
