"""Expressions of boards: where they stand, and without Grafana's variables."""

from __future__ import annotations

import pytest

from board_making import made, panel, read, variable
from tachoscope_dashboards.lint.expressions import (
    GLOBALS,
    RATE_INTERVAL,
    board_expressions,
    parseable,
    short,
    variables_in,
    without_variables,
)


def test_panels_variables_and_marks_ask() -> None:
    board = read(made())

    assert [(one.kind, one.name) for one in board_expressions(board)] == [
        ("panel", "Nodes"),
        ("panel", "Where time goes"),
        ("panel", "Ranks"),
        ("panel", "Ranks"),
        ("variable", "cluster"),
        ("variable", "namespace"),
        ("variable", "node"),
        ("variable", "training_job"),
        ("annotation", "Alerts"),
        ("annotation", "Restarts"),
    ]


def test_a_variable_asks_for_the_values_of_a_label_or_for_a_query() -> None:
    def expr(query: object) -> list[str]:
        raw = made()
        variable(raw, "node")["query"] = query
        return [one.expr for one in board_expressions(read(raw)) if one.name == "node"]

    assert expr('label_values(up{a="1,2", b=~"$c"}, instance)') == ['group by (instance) (up{a="1,2", b=~"$c"})']
    assert expr({"query": "query_result(sum by (x) (up))", "refId": "A"}) == ["sum by (x) (up)"]
    assert expr("label_values(instance)") == expr("label_names()") == expr("metrics(up.*)") == expr("") == []


def test_what_asks_another_kind_of_source_is_no_promql() -> None:
    raw = made()
    panel(raw, "Nodes")["targets"][0] |= {"datasource": {"type": "loki", "uid": "x"}, "expr": '{app="x"}'}
    panel(raw, "Ranks")["targets"][0] |= {"datasource": {"type": "__expr__", "uid": "__expr__"}, "expr": "$A * 2"}
    panel(raw, "Where time goes")["targets"][0]["datasource"] = "a name of long ago"

    assert [one.name for one in board_expressions(read(raw)) if one.kind == "panel"] == ["Where time goes", "Ranks"]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ('up{a=~"$b"}', 'up{a=~".*"}'),
        ('up{a="$b", c="d"}', 'up{a=~".*", c="d"}'),
        ('up{a=~"${b:csv}|x", c = "[[d]]"}', 'up{a=~".*|x", c =~ ".*"}'),
        ('up{a!="$b", c!~"$d.*"}', 'up{a!="-", c!="-"}'),
        ("rate(up[$__rate_interval]) > $limit", "rate(up[1m]) > 1"),
        ("increase(up[${__range}]) / $__range_s", "increase(up[1h]) / 3600"),
        ('label_replace(up{a="$b"}, "c", "$1", "d", "(.*)")', 'label_replace(up{a=~".*"}, "c", "$1", "d", "(.*)")'),
        (r'up{a="say \"$b\""}', r'up{a=~"say \".*\""}'),
    ],
)
def test_without_variables_matchers_take_whatever_can_be_chosen(expr: str, expected: str) -> None:
    assert without_variables(expr) == expected


def test_windows_can_be_told_apart() -> None:
    assert without_variables("rate(up[$__rate_interval])", GLOBALS | {RATE_INTERVAL: "7s"}) == "rate(up[7s])"


def test_to_take_it_apart_matchers_keep_their_variables() -> None:
    assert parseable('rate(up{a=~"$b"}[$__rate_interval]) > $c') == 'rate(up{a=~"$b"}[1m]) > 1'


def test_all_ways_to_write_a_variable_are_known() -> None:
    assert variables_in("$a ${b} ${c:csv} ${d.text} [[e]] [[f:pipe]] $1 $ {g} US$ 5") == {"a", "b", "c", "d", "e", "f"}


def test_in_a_message_an_expression_is_one_line_and_not_long() -> None:
    assert short("sum(\n  up\n)") == "sum( up )"
    assert len(short("x" * 1000)) == 161
