"""The page What if: what it answers of steps, of traces and of other settings, and what it says where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from course_making import late
from exploring import open_page, words
from exploring_compare import SCRIPT, given_traces, planted_store, put
from making import job
from tachoscope_analyzers.trace.graph.removals import KERNEL, OPERATOR, REMOVALS
from tachoscope_core.storage.store import Store
from tachoscope_explorer.screens.what_if.traces import REMOVAL_WORDS
from tachoscope_explorer.sources.traces import GIVEN


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_store(tmp_path_factory.mktemp("runs") / "store", "run-1", "run-2")


def metric(shown: AppTest, label: str) -> str:
    return next(str(one.value) for one in shown.metric if one.label == label)


def shorter(shown: AppTest, before: str) -> bool:
    """Return whether the step then is shorter than another number of milliseconds on the page."""
    then, now = (metric(shown, label).removesuffix(" ms") for label in ("Step then", before))
    return float(then) < float(now)


def other_settings(shown: AppTest) -> AppTest:
    """Return the page with its other settings open."""
    return shown.segmented_control[0].set_value("Other settings").run()


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    shown = open_page("what-if", tmp_path / "store")

    assert not shown.exception
    assert "contains no job yet" in words(shown)


def test_without_a_job_one_is_asked_for(store: Path) -> None:
    assert "Choose a run" in words(open_page("what-if", store))


def test_with_nothing_ticked_the_step_is_the_measured_one(store: Path) -> None:
    shown = open_page("what-if", store, job="run-2")

    assert not shown.exception
    assert metric(shown, "Step then") == metric(shown, "Step now")
    assert metric(shown, "Speed-up") == "1.00x"


def test_what_is_ticked_is_gone_and_stands_in_the_address(store: Path) -> None:
    shown = open_page("what-if", store, job="run-2", baseline="run-1")
    shown.checkbox(key="what-if data_wait@2").check().run()

    assert shown.query_params["without"] == "data_wait@2"
    assert shorter(shown, "Step now")
    assert "differs from it by" in words(shown)


def test_an_address_ticks_and_unticking_stays(store: Path) -> None:
    shown = open_page("what-if", store, job="run-2", without="data_wait@2,communication")
    assert shown.checkbox(key="what-if data_wait@2").value
    assert shown.checkbox(key="what-if communication").value

    shown.checkbox(key="what-if communication").uncheck().run()

    assert shown.query_params["without"] == "data_wait@2"
    assert not shown.checkbox(key="what-if communication").value


def test_the_class_of_a_finding_ticks_its_state_and_rank_and_both_answers_are_shown(store: Path) -> None:
    shown = open_page("what-if", store, job="run-2", class_="input_straggler")

    assert shown.checkbox(key="what-if data_wait@2").value
    claims = shown.dataframe[0].value
    assert "data wait, rank 2" in claims["taken out here"].tolist()
    assert "they agree" in claims["why they differ"].tolist()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"class_": "nonsense"}, "the class 'nonsense', which does not exist"),
        ({"class_": SCRIPT}, "which does not exist"),
        ({"class_": "hang"}, "was not found in this run"),
        ({"without": "data_wait@99"}, "take out 'data_wait@99', which this run does not have"),
        ({"without": SCRIPT}, "which this run does not have"),
    ],
)
def test_what_an_address_asks_for_and_is_not_there_is_said(store: Path, asked: dict[str, str], said: str) -> None:
    shown = open_page("what-if", store, job="run-2", **asked)

    assert not shown.exception
    assert said in words(shown).replace("\\", "")
    assert "<script>" not in words(shown)


def test_a_job_that_is_gone_is_named(store: Path) -> None:
    assert "the store has no job" in words(open_page("what-if", store, job="gone"))


def test_where_nothing_is_lost_there_is_nothing_to_tick(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    lines = job([[{"forward": 0.1, "backward": 0.1}]] * 30)
    writer = "00000000-0000-4000-8000-000000000000"
    store.write("planted", host="node-1", writer=writer, attempt=0, offset=0, time=1.7e9, lines=lines)
    shown = open_page("what-if", tmp_path / "store", job="planted")

    assert "Nothing is lost that could be taken out" in words(shown)
    assert not shown.checkbox


def test_one_rank_is_late_for_nobody(tmp_path: Path) -> None:
    shown = open_page("what-if", put(tmp_path / "store", "alone", ranks=1), job="alone")

    assert not shown.exception
    assert "No rank is later than the others" in words(shown)
    assert shown.selectbox(key="what-if-baseline").options == []


@pytest.mark.bar  # of a thousand ranks test_job.py has a page
def test_of_a_thousand_ranks_those_that_cost_most_are_offered(tmp_path: Path) -> None:
    folder = put(tmp_path / "store", "many", late(700, 1, 12, 0.05), steps=12, ranks=1000)
    shown = open_page("what-if", folder, job="many", class_="input_straggler")

    assert not shown.exception
    assert shown.checkbox(key="what-if data_wait@700").value
    assert len(shown.checkbox) < 25
    assert shorter(shown, "Step now")


def test_other_settings_begin_with_what_was_measured_and_say_what_was_not(store: Path) -> None:
    shown = other_settings(open_page("what-if", store, job="run-2"))
    asked = {one.label: one.value for one in shown.number_input}

    assert not shown.exception
    assert asked["Making a step's input in one process, ms (measured)"] == pytest.approx(31, abs=1)
    assert asked["Training stands still for a save, s (not measured: type it)"] == 0
    assert asked["Time between failures, h (not measured: assumed)"] == 24
    assert asked["of it exposed exchange, ms (measured)"] == pytest.approx(2, abs=0.1)
    assert "No checkpoint was seen" in words(shown)
    assert len(shown.get("plotly_chart")) == 4


def test_other_settings_stand_in_the_address_and_are_opened_by_it(store: Path) -> None:
    asked = other_settings(open_page("what-if", store, job="run-2")).query_params["part"]
    opened = open_page("what-if", store, job="run-2", part=asked[0] if isinstance(asked, list) else asked)

    assert opened.segmented_control[0].value == "Other settings"
    opened.segmented_control[0].set_value("Causes gone").run()
    assert "part" not in opened.query_params


def test_every_removal_of_a_trace_has_its_words() -> None:
    assert set(REMOVAL_WORDS) | {KERNEL, OPERATOR} == set(REMOVALS)


def test_a_trace_is_run_again_without_what_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = given_traces(tmp_path, monkeypatch)
    shown = open_page("what-if", tmp_path / "store", started=started, job=GIVEN, trace="command-line/b.json", without="host")

    assert not shown.exception
    assert shown.selectbox(key="what-if-file command-line").value == "b.json"
    assert shorter(shown, "Step as recorded")
    assert "that is the error" in words(shown)

    shown.multiselect(key="what-if-removals").set_value([]).run()
    assert metric(shown, "Speed-up") == "1.00x"
    assert "without" not in shown.query_params


def test_a_recording_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = given_traces(tmp_path, monkeypatch)
    shown = open_page("what-if", tmp_path / "store", started=started, job=GIVEN, trace="gone")

    assert not shown.exception
    assert "was not found" in words(shown)
