"""The form of LogQL."""

from __future__ import annotations

import pytest

from tachoscope_dashboards.lint.logql import fault, fixed_ranges


@pytest.mark.parametrize(
    "query",
    [
        '{app="x"}',
        '{app=~"a|b", pod!=""} |= "text with } and ]" | json | line_format `{{.x}} "`',
        'sum by (level) (rate({app="x"}[$__auto]))',
        r'{app="say \"}\""}',
    ],
)
def test_what_may_be_right_is_let_be(query: str) -> None:
    assert fault(query) == ""


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "no selector"),
        ("{}", "no selector"),
        ("rate(up[5m])", "no selector"),
        ('{app="x"', "'{' is not closed"),
        ('sum(rate({app="x"}[5m])', "'(' is not closed"),
        ('{app="x"})', "')' closes nothing"),
        ('({app="x"]}', "']' closes nothing"),
        ('{app="x} |= "y"', "a text does not end"),
    ],
)
def test_what_cannot_be_right_is_said(query: str, said: str) -> None:
    assert said in fault(query)


def test_ranges_that_are_always_the_same_are_listed_and_those_in_texts_are_none() -> None:
    assert fixed_ranges('rate({a="[1h]"} |= `[2h]` [5m]) / rate({a="b"}[$__auto]) / rate({a="b"}[$__interval])') == [
        "5m",
        "$__interval",
    ]
