"""What is noted within torchrun of the ranks that it started: nothing of those that all end in order."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tachoscope.failures import torchrun
from tachoscope_core.records import records
from tachoscope_core.storage import spool


class Context:
    """As torchelastic's `SubprocessContext`: polls its ranks, and ends those that are left once one failed."""

    def __init__(self, ranks: int) -> None:
        self.envs = {rank: {"RANK": str(rank + 4), "TORCHELASTIC_RESTART_COUNT": "2"} for rank in range(ranks)}
        self.subprocess_handlers = {rank: SimpleNamespace(proc=Process(100 + rank)) for rank in range(ranks)}
        self.stderrs: dict[int, str] = {}

    def _poll(self) -> str:
        return "polled"

    def _close(self, death_sig: int, timeout: int = 30) -> None:
        for handler in self.subprocess_handlers.values():
            handler.proc.returncode = -death_sig if handler.proc.returncode is None else handler.proc.returncode


class Process:
    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> None:
        return None


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("TACHOSCOPE_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("TACHOSCOPE_JOB", "j")
    kind = type("Followed", (Context,), {"_poll": Context._poll, "_close": Context._close})
    torchrun.follow(SimpleNamespace(SubprocessContext=kind))  # type: ignore[arg-type]
    return kind(3)


def written(folder: Path) -> list[Any]:
    return [records.decode(line) for path in spool.segments(folder) for line in path.read_bytes().splitlines()]


def test_ranks_that_all_end_in_order_leave_nothing(context: Any, tmp_path: Path) -> None:
    for handler in context.subprocess_handlers.values():
        handler.proc.returncode = 0
        assert context._poll() == "polled"
    context._close(15)

    assert written(tmp_path) == []


def test_of_a_failed_attempt_each_end_is_written_once_with_who_was_terminated(context: Any, tmp_path: Path) -> None:
    context.subprocess_handlers[1].proc.returncode = 0
    context._poll()
    context.subprocess_handlers[2].proc.returncode = -9
    (tmp_path / f"{spool.FAULT_PREFIX}102").write_text(
        'Current thread 0x1 (most recent call first):\n  File "/a/t.py", line 7 in <module>\n'
    )
    context._close(15, timeout=3)
    context._close(15)

    rows = sorted(written(tmp_path), key=lambda row: row.exited_rank)
    assert [(row.exited_rank, row.exit_code, row.terminated) for row in rows] == [(4, -15, True), (5, 0, False), (6, -9, False)]
    assert {(row.attempt, row.job, row.rank) for row in rows} == {(2, "j", records.LAUNCHER_RANK)}
    assert rows[2].location == "t.py:7" and rows[1].time < rows[2].time < rows[0].time


def test_a_version_of_torch_with_other_names_is_left_alone() -> None:
    torchrun.follow(SimpleNamespace())  # type: ignore[arg-type]
