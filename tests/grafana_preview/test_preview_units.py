"""Values read as Grafana writes them."""

from __future__ import annotations

import math
from typing import get_args

import pytest

from grafana_preview.units import digits, text
from tachoscope_dashboards.parts.panels import Unit
from trying import each

NOW = 1.7e9

# What Grafana 10 writes, by its own tests and documentation; three digits where it is not told how many decimals.
WRITTEN = [
    ("none", 0.0, "0"),
    ("none", 1234.0, "1234"),
    ("none", 0.123456, "0.123"),
    ("none", -12.345, "-12.3"),
    ("short", 1500.0, "1.50 K"),
    ("short", 9_876_543.0, "9.88 Mil"),
    ("percentunit", 0.1234, "12.3%"),
    ("percentunit", 1.0, "100%"),
    ("percent", 12.5, "12.5%"),
    ("s", 0.0, "0 s"),
    ("s", 2.5e-7, "250 ns"),
    ("s", 0.00025, "250 µs"),
    ("s", 0.25, "250 ms"),
    ("s", 45.0, "45 s"),
    ("s", 90.0, "1.50 min"),
    ("s", 9000.0, "2.50 hour"),
    ("s", 2.0 * 86_400, "2 day"),
    ("s", 10.0 * 86_400, "1.43 week"),
    ("ms", 1250.0, "1.25 s"),
    ("bytes", 1023.0, "1023 B"),
    ("bytes", 1536.0, "1.50 KiB"),
    ("bytes", 80.0 * 2**30, "80 GiB"),
    ("decbytes", 1500.0, "1.50 kB"),
    ("Bps", 2.5e9, "2.50 GB/s"),
    ("binBps", 2.0**20, "1 MiB/s"),
    ("ops", 1234.0, "1.23K ops/s"),
    ("reqps", 3.0, "3 req/s"),
    ("watt", 700.0, "700 W"),
    ("watth", 4930.0, "4.93 kWh"),
    ("kwatth", 4930.0, "4.93 MWh"),
    ("watt", 1.2e6, "1.20 MW"),
    ("hertz", 1.98e9, "1.98 GHz"),
    ("celsius", 62.5, "62.5 °C"),
    ("currencyUSD", 1532.82, "$1.53K"),
    ("currencyUSD", -2.0, "-$2"),
    ("bool", 1.0, "True"),
    ("bool", 0.0, "False"),
    ("tokens", 7.0, "7 tokens"),
    ("s", math.inf, "+Inf"),
    ("s", -math.inf, "-Inf"),
    ("s", math.nan, "NaN"),
]


@each(("unit", "value", "written"), WRITTEN)
def test_a_value_is_written_with_three_digits_in_the_unit_that_reads_best(unit: str, value: float, written: str) -> None:
    assert text(value, unit) == written


def test_all_units_that_boards_may_use_are_known() -> None:
    assert [unit for unit in get_args(Unit) if text(90.0, unit) == f"90 {unit}"] == []


def test_decimals_that_are_given_hold() -> None:
    assert text(0.123456, "percentunit", 2) == "12.35%"
    assert digits(3.0, 1) == "3.0"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5.0, "5 seconds ago"),
        (-65.0, "1 minute ago"),
        (-7200.0, "2 hours ago"),
        (-7 * 86_400, "7 days ago"),
        (70.0, "in 1 minute"),
    ],
)
def test_a_time_is_written_as_how_long_ago_it_is(seconds: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grafana_preview.units.time.time", lambda: NOW)

    assert text((NOW + seconds) * 1000, "dateTimeFromNow") == words


def test_a_time_far_ago_is_written_in_years() -> None:
    assert text(0.0, "dateTimeFromNow").endswith(" years ago")
