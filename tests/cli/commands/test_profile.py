"""What `tachoscope profile` says while it waits, and what it says of how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from tachoscope_cli.commands import profile as command
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import profile_requests
from tachoscope_core.storage import profile_status as profile_stage
from tachoscope_core.storage.profile_requests import (
    EXPIRY_SECONDS,
    HostState,
    Pass,
    Plan,
    RankState,
    RequestAnswers,
    State,
    new_request,
)
from tachoscope_core.storage.store import Store

NOW = 1_800_000_000.0
REQUEST = new_request("resnet", 5, now=NOW, asked_by="somebody")
LOOK = Plan(passes=(Pass(NOW + 16, 2.0),))
FINAL = Plan(passes=LOOK.passes, final=True, step_seconds=0.1)


def answers(plan: Plan | None, *states: State, world_size: int = 2, steps: int = 5) -> RequestAnswers:
    ranks = tuple(
        RankState(rank=rank, world_size=world_size, state=state, steps=steps, reason="it fell over" if state == "failed" else "")
        for rank, state in enumerate(states)
    )
    return RequestAnswers(plan, (HostState(host="node-1", updated=NOW, ranks=ranks),) if ranks else ())


def stage(after: float, found: RequestAnswers) -> profile_stage.Stage:
    return profile_stage.stage(REQUEST, found, NOW + after)


def test_each_stage_is_told_with_how_much_of_it_is_over() -> None:
    assert stage(1, answers(None)).text == "waiting for an agent"
    begin = stage(6, answers(LOOK, "waiting", "told"))
    assert (begin.text, begin.done, begin.total) == ("all ranks begin in 10 s: a first short look", 6.0, 16.0)
    assert stage(17, answers(LOOK, "told", "told")).done == 1.0
    collecting = stage(19, answers(FINAL, "stored", "recorded"))
    assert (collecting.text, collecting.done, collecting.total, collecting.over) == ("collecting the traces", 1, 2, False)


def test_it_is_over_when_all_ranks_of_the_job_have_ended_in_order_or_not() -> None:
    assert stage(19, answers(FINAL, "stored", "failed")).over
    assert not stage(19, answers(LOOK, "stored", "stored")).over, "another pass may follow"
    assert not stage(19, answers(FINAL, "stored")).over, "the other node may be slower"
    assert stage(19 + EXPIRY_SECONDS, answers(FINAL, "stored")).over
    assert stage(2000, answers(LOOK, "told", "told")).over, "an agent was killed"


def test_a_request_that_nobody_takes_ends_with_what_to_look_at() -> None:
    with pytest.raises(TachoscopeError, match=r"no agent took the request to profile job resnet .*with KINETO_USE_DAEMON=1"):
        stage(EXPIRY_SECONDS + 1, answers(None))
    with pytest.raises(TachoscopeError, match="no agent has rank 0"):
        stage(EXPIRY_SECONDS + 1, answers(None, "waiting"))


def test_a_refusal_ends_it_with_its_reason() -> None:
    with pytest.raises(TachoscopeError, match="does not profile job resnet: not so soon"):
        stage(1, answers(Plan(refused="not so soon", final=True)))


def test_ranks_without_a_trace_are_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    kept = command._outcome(REQUEST, answers(FINAL, "stored", "failed", world_size=4))

    assert [rank.rank for rank in kept] == [0]
    told = capsys.readouterr().err
    assert "rank 1: it fell over" in told
    assert "2 more of its 4 ranks are not served by an agent" in told


def test_too_few_steps_are_said_and_none_at_all_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    command._outcome(REQUEST, answers(FINAL, "stored", "stored", steps=3))
    assert "have 3 whole steps, 5 were requested" in capsys.readouterr().err
    command._outcome(REQUEST, answers(FINAL, "stored", "stored", steps=0))
    assert "the traces do not mark steps" in capsys.readouterr().err
    with pytest.raises(TachoscopeError, match=r"no trace of job resnet was recorded: rank 0: it fell over"):
        command._outcome(REQUEST, answers(FINAL, "failed", "failed"))


def test_waiting_in_a_pipe_says_each_stage_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_LOOK_SECONDS", 0.0)
    store = Store(str(tmp_path))
    profile_requests.write_request(store, REQUEST)
    seconds = iter(range(100))

    def clock() -> float:
        after = next(seconds)
        if after == 3:
            profile_requests.write_plan(store, REQUEST, FINAL)
        if after == 20:
            for host in answers(FINAL, "stored", "stored").hosts:
                profile_requests.write_host(store, REQUEST, host)
        return NOW + after

    found = command.waited(store, REQUEST, Console(stderr=True), clock=clock)

    assert [rank.state for rank in found.ranks] == ["stored", "stored"]
    lines = [line.partition(": ")[2].partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["waiting for an agent", "all ranks begin in 12 s: 5 steps", "recording 5 steps", "collecting the traces"]
