"""Where objectives stand, as a page: whole in itself, safe, and with a burn-down that says where nothing was measured."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from msgspec.structs import replace

from slo_report_making import BUDGET, OBJECTIVE, REPORT
from tachoscope_show.slo.html import page


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
    assert not any("src" in attrs for _, attrs in tags.seen)
    assert {tag for tag, attrs in tags.seen if "href" in attrs} == {"a"}, "links are followed by people only"
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags.seen}
    assert "url(" not in page(REPORT)
    assert ("meta", {"name": "viewport", "content": "width=device-width"}) in tags.seen


def test_names_from_the_metrics_cannot_put_markup_on_the_page() -> None:
    text = page(REPORT)
    assert "<b>&:" not in text
    assert "job &lt;b&gt;&amp;: 10 of 40 bad, 25 %" in text


def test_each_measured_budget_has_a_row_and_a_card_and_the_others_stand_in_a_list_at_the_end() -> None:
    text = page(REPORT)
    assert text.count('data-title="objective"') == text.count('class="card"') == text.count("<svg") == 3
    assert "page fires" in text
    assert text.count("training-recovery") == text.count("no samples of x in the period") == 1
    assert text.index("training-recovery: no samples of x") > text.rindex('class="card"')
    assert REPORT.notes[0] in text


def test_a_link_leads_from_each_card_to_its_runbook() -> None:
    def links(text: str) -> list[str | None]:
        return [attrs["href"] for tag, attrs in parsed(text).seen if tag == "a"]

    assert links(page(REPORT))[0] == "runbooks/InferenceTimeToFirstTokenBurn.md"
    assert links(page(REPORT, "https://books.test"))[-1] == "https://books.test/TrainingGoodputBurn.md"


def test_a_line_that_goes_on_below_the_picture_says_where_it_ends() -> None:
    assert re.findall(r"ends at (\S+ %)", page(REPORT)) == ["-250 %"], "the exhausted one only"
    within = replace(BUDGET.burn_down[-1], left=-0.9)
    drawn = replace(BUDGET, left=-0.9, state="exhausted", burn_down=[*BUDGET.burn_down[:-1], within])
    assert "ends at" not in page(replace(REPORT, objectives=[replace(OBJECTIVE, budgets=[drawn])]))


def test_a_tier_that_is_above_and_does_not_fire_says_why() -> None:
    held = replace(BUDGET.burns[0], severity="ticket", long=20.0, short=20.0, held="needs 6h of history, has 1m")
    text = page(replace(REPORT, objectives=[replace(OBJECTIVE, budgets=[replace(BUDGET, burns=[held])])]))
    assert "does not fire: needs 6h of history, has 1m" in text
    assert "does not fire" not in page(REPORT)


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
