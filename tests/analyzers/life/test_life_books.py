"""Random lives: whatever happens in them, every second of every unit is in exactly one state, and the planted losses are found."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from life_making import T0, PlantedLife
from tachoscope_analyzers.attempts import attribution
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_core.records import records
from tachoscope_core.report.report import Report

seconds = st.floats(0.01, 30.0)
step = st.floats(0.05, 2.0)
attempts = st.lists(
    st.fixed_dictionaries(
        {
            "gap": seconds,  # until its processes start
            "start": st.lists(seconds, min_size=3, max_size=3),  # of each rank, until its first step, beside reading
            "read": st.floats(0.01, 5.0),
            "steps": st.lists(step, max_size=8),
            "missed": st.integers(0, 2),  # so many last steps of rank 0 left no record
            "goes_on": st.booleans(),  # from the newest checkpoint
            "saves": st.sets(st.integers(1, 8)),
            "tail": st.floats(0.01, 4.0),
            "new_run": st.booleans(),
        }
    ),
    min_size=1,
    max_size=4,
)
windows = st.lists(st.tuples(st.floats(-10.0, 200.0), st.floats(0.0, 60.0)), max_size=3)


class Planted:
    """A life made of attempts, with what is known of it: all of it in rank-seconds."""

    def __init__(self, plan: list[dict[str, Any]], ranks: int) -> None:
        self.life = PlantedLife()
        self.ranks = ranks
        self.at = self.highest = 0.0
        self.lost = self.restored = self.allocated = 0.0
        self.done = self.new_steps = 0
        self.checkpoint: tuple[str, int] | None = None
        self.launched = 0.0
        self.first = 0
        for attempt, one in enumerate(plan):
            if attempt and one["new_run"]:
                self._end_of_run(code=1)
                self.at += 1000.0
                self.launched, self.first = self.at, attempt
            self._attempt(attempt, one)
        self._end_of_run(code=1)

    def _end_of_run(self, code: int) -> None:
        self.at += 3.0
        self.life.launcher(self.launched, self.at, code=code, attempt=self.first)
        self.allocated += (self.at - self.launched) * self.ranks

    def _attempt(self, attempt: int, one: dict[str, Any]) -> None:
        start = self.at + one["gap"]
        restored = self.checkpoint if one["goes_on"] else None
        base = restored[1] if restored else 0
        begin = start + max(one["start"][: self.ranks]) + (one["read"] if restored else 0.0)
        steps = one["steps"]
        end = begin + sum(steps)
        gone = end + one["tail"]
        saves = {number: f"/ckpt/{attempt}/{number}" for number in one["saves"] if number <= len(steps)}
        for rank in range(self.ranks):
            # The rank whose records are cut short is gone with its last one: what came after is not known of it.
            missed = min(one["missed"], len(steps)) if rank == 0 and self.ranks > 1 else 0
            recorded = steps[: len(steps) - missed]
            self.life.process(
                rank,
                recorded,
                attempt=attempt,
                start=start,
                begin=begin,
                world=self.ranks,
                restored=(restored[0], start + 0.001, one["read"]) if restored else None,
                saves=saves if rank == self.ranks - 1 else None,
            )
            self.life.gone(rank, gone, attempt=attempt, start=start)
            again = [wall for number, wall in enumerate(recorded, start=1) if base + number <= self.done]
            self.lost += sum(again)
            if recorded:
                self.lost += gone - begin - sum(recorded)
            self.restored += one["read"] if restored else 0.0
        self.new_steps += max(base + len(steps) - self.done, 0) if steps else 0
        self.done = max(self.done, base + len(steps))
        if saves:
            newest = max(saves)
            self.checkpoint = (saves[newest], base + newest)
        self.at = gone


def report(planted: Planted, **options: Any) -> Report:
    with TemporaryDirectory() as folder:
        return analyze_life(planted.life.load(Path(folder)), now=T0 + 1e6, **options)


@given(attempts, st.integers(1, 3))
def test_planted_losses_are_found_and_states_sum_to_what_was_allocated(plan: list[dict[str, Any]], ranks: int) -> None:
    planted = Planted(plan, ranks)
    made = report(planted)
    states = made.ledgers[0].states
    assert made.life is not None

    assert made.life.allocated_seconds == pytest.approx(planted.allocated, abs=1e-6)
    assert sum(states.values()) == pytest.approx(planted.allocated, abs=1e-6)
    assert min(states.values()) >= 0
    assert states.get("restore", 0.0) == pytest.approx(planted.restored, abs=1e-5)
    # A tail of several seconds is a hang where steps are short, so what is lost is one or the other.
    assert states.get("lost_work", 0.0) + states.get("hung", 0.0) == pytest.approx(planted.lost, abs=1e-5)
    assert made.life.new_steps == planted.new_steps


@given(attempts, st.integers(1, 3), windows)
def test_maintenance_takes_its_time_out_of_everything(
    plan: list[dict[str, Any]], ranks: int, maintenance: list[tuple[float, float]]
) -> None:
    planted = Planted(plan, ranks)
    times = [(T0 + start, T0 + start + length) for start, length in maintenance]
    made = report(planted, maintenance=times)
    assert made.life is not None

    assert sum(made.ledgers[0].states.values()) == pytest.approx(made.life.allocated_seconds, abs=1e-6)
    assert made.life.allocated_seconds + made.life.excluded_seconds == pytest.approx(planted.allocated, abs=1e-5)


def test_a_life_is_judged_alike_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {
        "gap": 1.0,
        "start": [1.0, 1.0, 1.0],
        "read": 1.0,
        "steps": [0.5] * 1200,
        "missed": 2,
        "goes_on": True,
        "saves": {900},
        "tail": 0.2,
        "new_run": False,
    }
    whole = report(Planted([plan, plan], 2))
    monkeypatch.setattr(attribution, "BLOCK_CELLS", 1)
    parts = report(Planted([plan, plan], 2))

    assert whole.ledgers[0].states["lost_work"] > 300.0
    assert parts.ledgers[0].states == pytest.approx(whole.ledgers[0].states)
    assert parts.step_seconds == whole.step_seconds


def test_hosts_that_were_replaced_are_held_only_while_their_launchers_ran() -> None:
    life = PlantedLife()
    life.launcher(0.0, 60.0, host="node-0")
    life.launcher(0.0, 20.0, host="node-1", code=1)
    life.launcher(30.0, 60.0, host="node-2", attempt=1)
    life.process(0, [1.0] * 10, begin=5.0, start=1.0, left=16.0)
    life.process(1, [1.0] * 10, begin=5.0, start=1.0, host="node-1")
    life.process(0, [1.0] * 10, attempt=1, begin=40.0, start=31.0, left=55.0)
    life.process(1, [1.0] * 10, attempt=1, begin=40.0, start=31.0, left=55.0, host="node-2")
    with TemporaryDirectory() as folder:
        made = analyze_life(life.load(Path(folder)), now=T0 + 1e6)

    assert made.life is not None
    assert made.life.allocated_seconds == pytest.approx(60.0 + 20.0 + 30.0)
    assert made.life.recoveries[0].host == "node-1"


def test_records_of_a_killed_launcher_are_enough_to_know_when_its_ranks_were_held() -> None:
    life = PlantedLife()
    life.launcher(0.0, None)
    end = life.process(0, [1.0] * 10, world=1, begin=5.0, start=1.0)
    life.add(records.Heartbeat, end + 2.0, writer=life.writer(0, 0, 1.0), rank=0, step=10)
    with TemporaryDirectory() as folder:
        made = analyze_life(life.load(Path(folder)), now=T0 + 1e6)

    assert made.life is not None
    assert made.life.allocated_seconds == pytest.approx(end + 2.0)
    assert made.life.attempts[0].ended == "unknown"
