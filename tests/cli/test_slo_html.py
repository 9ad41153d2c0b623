"""Where objectives stand, as a page: whole in itself, safe, and with a burn-down that says where nothing was measured."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from msgspec.structs import replace

from slo_report_making import BUDGET, OBJECTIVE, REPORT
from tachoscope_cli.slo_html import page


class Tags(HTMLParser):
    """Checks that what is opened is closed, in order."""

    void = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    return tags


def test_the_page_is_well_formed_and_asks_for_nothing_from_elsewhere() -> None:
    tags = parsed(page(REPORT))
    assert not any(name in attrs for _, attrs in tags.seen for name in ("src", "href"))
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.seen}
    assert "url(" not in page(REPORT)
    assert ("meta", {"name": "viewport", "content": "width=device-width"}) in tags.seen


def test_names_from_the_metrics_cannot_put_markup_on_the_page() -> None:
    text = page(REPORT)
    assert "<b>&:" not in text
    assert "job &lt;b&gt;&amp;: 10 bad, 25 %" in text


def test_each_budget_has_a_row_and_a_card_and_those_with_events_a_burn_down() -> None:
    text = page(REPORT)
    assert text.count('data-title="objective"') == text.count('class="card"') == 4
    assert text.count("<svg") == 3
    assert "page fires" in text
    assert "no samples of x in the period" in text
    assert REPORT.notes[0] in text


def lines(text: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (point.split(",") for point in found.split())]
        for found in re.findall(r'<polyline points="([^"]+)"', text)
    ]


def test_the_burn_down_falls_as_the_budget_is_spent_and_stays_in_its_picture() -> None:
    exhausted, _, steady = lines(page(REPORT))
    assert [y for _, y in steady] == sorted(y for _, y in steady), "y grows downwards"
    assert [x for x, _ in steady] == sorted(x for x, _ in steady)
    whole, half, end = (y for _, y in steady)
    assert abs((half - whole) / (end - whole) - 0.5) < 0.01
    assert max(y for _, y in exhausted) <= 190 - 28 + 0.1


def test_time_without_samples_is_grey() -> None:
    assert page(REPORT).count("<title>not measured</title>") == 1
    assert page(replace(REPORT, objectives=[OBJECTIVE])).count("<title>not measured</title>") == 0


def test_a_budget_without_points_has_no_picture() -> None:
    bare = replace(OBJECTIVE, budgets=[replace(BUDGET, burn_down=[])])
    assert "<svg" not in page(replace(REPORT, objectives=[bare]))


def test_no_objectives_make_a_page_that_says_so() -> None:
    assert "no objectives at" in page(replace(REPORT, objectives=[]))
    parsed(page(replace(REPORT, objectives=[])))
