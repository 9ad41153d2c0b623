from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report import report


def minimal() -> report.Report:
    return report.Report(
        job="x",
        window=report.Window(start=0.0, end=1.0, steps=1),
        ranks=1,
        sources=[],
        step_seconds=report.StepSeconds(mean=1.0, p50=1.0, p95=1.0, p99=1.0),
        ledgers=[report.Ledger(unit="rank", wall_seconds=1.0, states={"compute": 1.0})],
        goodput=1.0,
        findings=[],
        not_measured=[],
    )


def test_a_report_survives_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(report.dump(minimal()))

    assert report.load(path) == minimal()


def test_a_report_of_a_newer_schema_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(minimal(), schema=2)))

    with pytest.raises(TachoscopeError, match="schema 2, newer than the schema 1.*upgrade"):
        report.load(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1}', '{"schema": "x"}', "\x00"])
def test_a_file_that_is_no_report_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)

    with pytest.raises(TachoscopeError, match=r"report\.json is not a"):
        report.load(path)


@given(st.lists(st.floats(min_value=0.001, max_value=1e6), min_size=1, max_size=9), st.floats(min_value=0.02, max_value=0.5))
def test_a_ledger_whose_states_do_not_sum_to_the_wall_time_cannot_be_made(seconds: list[float], error: float) -> None:
    states = {f"state{index}": value for index, value in enumerate(seconds)}

    report.Ledger(unit="rank", wall_seconds=sum(seconds), states=states)
    with pytest.raises(ValueError, match="ledger states sum to"):
        report.Ledger(unit="rank", wall_seconds=sum(seconds) * (1 + error), states=states)
