"""What boards leave open is filled in; no value of a label can change what is asked, or where a link leads."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grafana_preview.interpolate import ALL, Choice, link, plain, query, safe
from grafana_preview.times import Span

SPAN = Span(1_700_000_000.0, 1_700_021_600.0, 30.0)
ONE = Choice("training_job", ("resnet",))
TWO = Choice("node", ("a.b:1", "c"), several=True, may_be_all=True, all_value=".*")
EVERY = Choice("node", (ALL,), several=True, may_be_all=True, all_value=".*")


def test_intervals_follow_the_step_and_the_range() -> None:
    filled = query("rate(x[$__rate_interval]) + y[$__range] + z[$__interval] + ${__range_s} + $__interval_ms", [], SPAN)
    assert filled == "rate(x[60s]) + y[21600s] + z[30s] + 21600 + 30000"
    assert query("x[$__rate_interval]", [], Span(0.0, 86_400.0, 120.0)) == "x[135s]"


def test_several_values_are_a_pattern_for_any_of_them_and_all_is_what_the_board_says() -> None:
    assert query('up{instance=~"$node"}', [TWO], SPAN) == 'up{instance=~"(a\\\\.b:1|c)"}'
    assert query('up{instance=~"${node}"}', [EVERY], SPAN) == 'up{instance=~".*"}'
    assert query('up{job="$training_job"}', [ONE], SPAN) == 'up{job="resnet"}'
    assert query('up{job=~"$other"}', [ONE], SPAN) == 'up{job=~"$other"}'


def test_all_without_a_pattern_of_its_own_is_each_of_the_options() -> None:
    listed = Choice("node", (ALL,), several=True, may_be_all=True, options=("a.b", "c"))
    assert query('up{instance=~"$node"}', [listed], SPAN) == 'up{instance=~"(a\\\\.b|c)"}'
    assert link("/d/x?${node:queryparam}", [listed], SPAN) == "/d/x?var-node=All"


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3), st.booleans())
def test_no_value_can_leave_its_quotes(values: list[str], several: bool) -> None:
    filled = query('up{a=~"$v"}', [Choice("v", tuple(values), several)], SPAN)
    inner = filled.removeprefix('up{a=~"').removesuffix('"}')
    pattern = json.loads(f'"{inner}"', strict=False) if '"' in inner or "\\" in inner else inner

    assert '"' not in inner.replace("\\\\", "").replace('\\"', "")
    if not several:
        assert pattern == values[0]


def test_links_take_choice_row_and_time_along() -> None:
    url = "/d/x?var-node=${node}&${training_job:queryparam}&rank=${__data.fields.Rank}&v=${__value.raw}&from=${__from}&to=${__to}"
    filled = link(url, [ONE, TWO], SPAN, {"__data.fields.Rank": "7", "__value.raw": "0.5"})

    asked = urllib.parse.parse_qs(urllib.parse.urlsplit(filled).query)
    assert asked == {
        "var-node": ["{a.b:1,c}"],
        "var-training_job": ["resnet"],
        "rank": ["7"],
        "v": ["0.5"],
        "from": ["1700000000000"],
        "to": ["1700021600000"],
    }
    assert link("/d/x?${node:queryparam}", [EVERY], SPAN) == "/d/x?var-node=All"
    assert link("/d/x?var-node=${node}", [EVERY], SPAN) == "/d/x?var-node=.%2A"
    assert link('/d/x?n=${__data.fields["Node name"]}', [], SPAN, {"__data.fields.Node name": "a&b"}) == "/d/x?n=a%26b"


def test_of_a_column_that_a_table_does_not_have_a_link_takes_nothing_along() -> None:
    url = "/d/x?var-cluster=${__data.fields.Cluster}&v=${__value.raw}"

    assert link(url, [], SPAN, {"__value.raw": "1"}) == "/d/x?var-cluster=&v=1"


@given(st.text())
def test_no_value_can_lead_a_link_elsewhere(value: str) -> None:
    found = link("/d/x?rank=${__data.fields.Rank}#top", [], SPAN, {"__data.fields.Rank": value})
    assert urllib.parse.urlsplit(found)._replace(query="") == urllib.parse.urlsplit("/d/x#top")


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//evil.example.com/", "/\\evil.example.com", "d/x", ""]
)
def test_what_leads_to_no_page_is_no_link(url: str) -> None:
    assert safe(url) == ""


def test_words_name_what_is_chosen() -> None:
    assert plain("Job $training_job on ${node}, $5", [ONE, TWO]) == "Job resnet on a.b:1 + c, $5"
    assert plain("on $node", [EVERY]) == "on All"
