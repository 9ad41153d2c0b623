"""Whether somebody said that this process will be ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tachoscope.preemption import poll as notices
from tachoscope_core.storage.spool import ASKS, NOTICE


def test_without_a_run_there_is_never_a_notice_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert not notices.NoticePoll().ask_for_job()
    assert not list(tmp_path.iterdir())


def test_a_job_that_asks_is_known_to_ask_and_gets_the_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(notices, "LOOK_SECONDS", 0.0)
    asking = notices.NoticePoll()

    assert not asking.ask_for_job()
    assert (tmp_path / ASKS).exists()
    (tmp_path / NOTICE).write_text("{}")
    assert asking.ask_for_job()
    (tmp_path / NOTICE).unlink()
    assert asking.ask_for_job(), "what was announced stays announced"


def test_a_save_that_looks_for_the_notice_does_not_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_RUN_DIR", str(tmp_path))
    looking = notices.NoticePoll()
    (tmp_path / NOTICE).write_text("{}")

    assert looking.poll()
    assert not (tmp_path / ASKS).exists()


def test_it_looks_at_the_directory_only_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(notices, "LOOK_SECONDS", 1000.0)
    asking = notices.NoticePoll()
    asking.ask_for_job()
    (tmp_path / NOTICE).write_text("{}")

    assert not asking.ask_for_job()


def test_a_run_directory_that_is_gone_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACHOSCOPE_RUN_DIR", str(tmp_path / "gone"))

    assert not notices.NoticePoll().ask_for_job()
