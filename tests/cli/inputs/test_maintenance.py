from pathlib import Path

import pytest

from tachoscope_cli.inputs.maintenance import read
from tachoscope_core.errors import TachoscopeError


def windows(tmp_path: Path, text: str) -> list[tuple[float, float]]:
    path = tmp_path / "maintenance.yaml"
    path.write_text(text)
    return read(path)


def test_times_may_be_unix_seconds_or_iso_with_a_zone(tmp_path: Path) -> None:
    text = """
- {start: 1772330400, end: 1772330400.5, reason: a blink}
- {start: 2026-03-01T02:00:00Z, end: '2026-03-01T05:00:00+02:00'}
"""
    assert windows(tmp_path, text) == [(1772330400.0, 1772330400.5), (1772330400.0, 1772334000.0)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start: 1", "is not a list"),
        ("- 5", "entry 1: 5 is not a window"),
        ("- {start: 1, end: 2}\n- {start: 1}", "entry 2, end is missing"),
        ("- {start: 2026-03-01T02:00:00, end: 2}", "entry 1, start: 2026-03-01T02:00:00 has no time zone"),
        ("- {start: 2026-03-01, end: 2}", "entry 1, start: datetime.date(2026, 3, 1) is not a time"),
        ("- {start: soon, end: 2}", "entry 1, start: 'soon' is not a time"),
        ("- {start: 3, end: 2}", "entry 1: it ends (2) before it starts (3)"),
        ("- {start: 1, end: 2, why: x}", "entry 1: unknown key 'why'"),
        ("- {start: 1", "is not YAML"),
    ],
)
def test_a_fault_names_the_entry(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(TachoscopeError) as caught:
        windows(tmp_path, text)
    assert said in str(caught.value)
    assert "maintenance.yaml" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="nothing.yaml"):
        read(tmp_path / "nothing.yaml")
