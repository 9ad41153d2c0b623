"""The page Compare: what it says of two runs and of two traces, and what it says where there is nothing to compare."""

from __future__ import annotations

from pathlib import Path

import pytest

from exploring import open_page, words
from exploring_compare import SCRIPT, given_traces, planted_store, put
from tachoscope_explorer.page.settings import Settings
from tachoscope_explorer.sources.traces import GIVEN


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_store(tmp_path_factory.mktemp("runs") / "store")


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return given_traces(tmp_path, monkeypatch)


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    shown = open_page("compare", tmp_path / "store")

    assert not shown.exception
    assert "contains no job yet" in words(shown)


def test_without_a_job_one_is_asked_for(store: Path) -> None:
    shown = open_page("compare", store)

    assert "Choose the run that is in question" in words(shown)
    assert set(shown.selectbox(key="compare-job").options) == {"run-1", "run-2", "other"}


def test_the_only_run_has_nothing_to_be_held_against(tmp_path: Path) -> None:
    shown = open_page("compare", planted_store(tmp_path / "store", "run-1"), job="run-1")

    assert "only run in the store" in words(shown)
    assert shown.selectbox(key="compare-baseline").options == []


def test_a_baseline_is_suggested_and_not_taken(store: Path) -> None:
    shown = open_page("compare", store, job="run-2")

    assert shown.selectbox(key="compare-baseline").options[0] == "run-1 (similar name)"
    assert "with a similar name and without a warning is **run\\-1**" in words(shown)
    assert not shown.metric
    assert "baseline" not in shown.query_params


def test_where_no_run_is_named_alike_none_is_suggested(store: Path) -> None:
    assert "no other run has a similar name" in words(open_page("compare", store, job="other"))


def test_the_verdict_the_states_the_steps_and_the_pace_are_told(store: Path) -> None:
    shown = open_page("compare", store, job="run-2", baseline="run-1")
    said = words(shown)

    assert not shown.exception
    assert "Slower: the step takes" in shown.error[0].value.replace("\\", "")
    assert "Ranks with changed own time rank 2" in said
    assert shown.dataframe[0].value["a step"].tolist()[:2] == ["step", "data_wait"]
    assert shown.dataframe[0].value["noise"].tolist()[:2] == ["beyond", "beyond"]
    assert "not known" in shown.dataframe[1].value["baseline"].tolist()
    assert len(shown.get("plotly_chart")) == 2


def test_the_faster_run_is_no_alarm(store: Path) -> None:
    shown = open_page("compare", store, job="run-1", baseline="run-2")

    assert "Faster" in shown.success[0].value
    assert not shown.error
    assert not shown.warning


def test_a_choice_goes_to_the_address(store: Path) -> None:
    shown = open_page("compare", store, job="run-2")
    shown.selectbox(key="compare-baseline").set_value("other").run()

    assert shown.query_params["baseline"] == "other"
    assert "Compared with other" in words(shown).replace("\\", "")


def test_a_job_is_not_its_own_baseline(store: Path) -> None:
    assert "job 'run-1' is its own baseline" in words(open_page("compare", store, job="run-1", baseline="run-1")).replace("\\", "")


@pytest.mark.parametrize("asked", [{"job": "gone", "baseline": "run-1"}, {"job": "run-1", "baseline": "gone"}])
def test_a_job_that_is_gone_is_named(store: Path, asked: dict[str, str]) -> None:
    shown = open_page("compare", store, **asked)

    assert not shown.exception
    assert "the store has no job 'gone'" in words(shown).replace("\\", "")


def test_a_job_named_as_a_script_is_text(store: Path) -> None:
    shown = open_page("compare", store, job="run-1", baseline=SCRIPT)

    assert not shown.exception
    assert "in the address is not a name" in words(shown)
    assert "<script>" not in words(shown)


def test_one_rank_against_four_is_said(store: Path, tmp_path: Path) -> None:
    put(planted_store(tmp_path / "store", "run-1"), "alone", ranks=1)
    shown = open_page("compare", tmp_path / "store", job="alone", baseline="run-1")

    assert not shown.exception
    assert "4 ranks in the baseline, 1 now" in words(shown).replace("\\", "")


@pytest.mark.bar  # of a thousand ranks test_job.py has a page
def test_a_thousand_ranks_are_compared(tmp_path: Path) -> None:
    folder = put(planted_store(tmp_path / "store", "run-1"), "many", steps=12, ranks=1000)
    shown = open_page("compare", folder, job="many", baseline="run-1")

    assert not shown.exception
    assert "4 ranks in the baseline, 1000 now" in words(shown).replace("\\", "")
    assert len(str(shown.get("plotly_chart")[0].proto.spec)) < 100_000


def test_two_traces_are_compared_by_state_operator_and_kernel(tmp_path: Path, traces: Settings) -> None:
    names = [Path(one).name for one in traces.traces]
    asked = {"trace": f"command-line/{names[1]}", "baseline_trace": f"command-line/{names[0]}"}
    shown = open_page("compare", tmp_path / "store", started=traces, job=GIVEN, **asked)
    said = words(shown)

    assert not shown.exception
    assert "A step takes" in said
    assert "do not tell its noise" in said
    assert "kernel_b" in shown.dataframe[2].value["kernel"].tolist()
    assert len(shown.get("plotly_chart")) >= 2


def test_of_traces_the_baseline_is_asked_for(tmp_path: Path, traces: Settings) -> None:
    shown = open_page("compare", tmp_path / "store", started=traces, job=GIVEN)

    assert "Choose the two traces" in words(shown)


def test_a_trace_that_is_gone_is_named(tmp_path: Path, traces: Settings) -> None:
    shown = open_page("compare", tmp_path / "store", started=traces, job=GIVEN, trace="command-line", baseline_trace="gone")

    assert not shown.exception
    assert "no longer exists" in words(shown)
    assert "<b>" not in words(shown)
