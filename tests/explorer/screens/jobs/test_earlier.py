"""The page of a long job: the newest part is judged, and what came before is shown and can be looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exploring import open_page, words
from hourly_making import HOURS, STEPS_AN_HOUR, hourly_store
from tachoscope_analyzers.records import judged_part


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(hourly_store(tmp_path_factory.mktemp("long")).url)


@pytest.fixture(autouse=True)
def long_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_part, "MOST_RECORDS", STEPS_AN_HOUR)


def milliseconds(unix: float) -> str:
    return str(round(unix * 1e3))


def test_what_came_before_is_a_table_with_a_link_to_the_hour_of_the_fault(store: Path) -> None:
    shown = open_page("job", store, job="planted")

    assert not shown.exception
    assert "were not read" in words(shown)
    (intervals,) = [one.label for one in shown.expander if "interval" in one.label]
    assert intervals.startswith("All "), "the table is made when it is opened"
    links = [link.proto for link in shown.get("page_link")]
    (hour,) = [link.query_string for link in links if "input" in link.label]
    assert "from=" in hour and "to=" in hour


def test_the_whole_life_of_a_long_job_is_read_once_it_is_asked_for(store: Path) -> None:
    shown = open_page("job", store, job="planted", part="life")
    assert "of its whole life" not in words(shown)

    shown.button(key="read-life").click().run()

    assert not shown.exception
    assert f"{HOURS * STEPS_AN_HOUR} steps" in words(shown) and "of its whole life" in words(shown)


def test_a_window_before_the_judged_part_is_read_for_it(store: Path) -> None:
    begin = 1.7e9 + STEPS_AN_HOUR * 20.0
    window = {"from": milliseconds(begin + 600), "to": milliseconds(begin + 2400)}
    shown = open_page("job", store, job="planted", part="zoom", **window)

    assert not shown.exception
    assert "Rank 1 is late with the data" in words(shown)
    assert len(shown.get("plotly_chart")) == 1, "the ledger of another part of the run says nothing of this window"
    slider = shown.slider(key="window")
    assert slider.value == (slider.min, slider.max), "the steps that can be chosen are those of the window"

    slider.set_value((slider.min, slider.min + 10)).run()

    assert not shown.exception
    assert shown.slider(key="window").max == slider.min + 10


def test_any_earlier_hour_can_be_chosen_without_a_mouse(store: Path) -> None:
    shown = open_page("job", store, job="planted", part="zoom")
    (hours,) = [one for one in shown.selectbox if one.label == "Earlier hour, UTC"]

    hours.select_index(1).run()

    assert not shown.exception and not shown.error
    (window,) = re.findall(r"\*\*Window\*\*: steps .*", words(shown))
    assert hours.options[1].removesuffix("00") in window
    assert {"from", "to", "part"} <= set(shown.query_params)
    shown.button(key="whole-run").click().run()
    assert "**Window**" not in words(shown), "what was chosen does not come back"


def test_its_line_in_the_list_has_its_last_step_and_no_goodput_of_a_life(store: Path) -> None:
    shown = open_page("jobs", store)

    (row,) = shown.dataframe[0].value.to_dict("records")
    assert not shown.exception
    assert str(HOURS * STEPS_AN_HOUR) in map(str, row.values())
