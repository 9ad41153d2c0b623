"""Where an engine's seconds go, with a clock that stands still between the calls."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_clock import SECOND, FakeClock
from tachoscope.serving.engine import Engine
from tachoscope_core.metrics.serving import ENGINE_STATES


def test_an_engine_is_cold_while_it_loads_busy_in_a_batch_starved_while_requests_wait_and_else_idle() -> None:
    clock = FakeClock()
    engine = Engine("0", capacity=8, clock=clock)
    with engine.loading():
        engine.update(waiting=2)
        clock.passes(1)
    clock.passes(2)
    with engine.batch(prefill_tokens=120, decode_tokens=7, running=8, waiting=3, kv_used=0.7):
        clock.passes(4)
    with engine.batch(decode_tokens=7, running=4, waiting=0, preempted=1):
        clock.passes(1)
    clock.passes(8)
    window = engine.cut_window()

    assert window["state_seconds"] == {"cold_start": 1, "starved": 2, "busy": 5, "idle": 8}
    assert (window["window_seconds"], window["iterations"], window["iteration_seconds"]) == (16, 2, 5)
    assert (window["prompt_tokens"], window["generation_tokens"], window["preemptions"]) == (120, 14, 1)
    assert window["running_mean"] == (4 * 8 + 1 * 4) / 16
    assert window["waiting_mean"] == (3 * 2 + 4 * 3) / 16
    assert (window["kv_cache_usage_ratio"], window["capacity"]) == (0.7, 8)


def test_what_nobody_said_is_not_zero() -> None:
    clock = FakeClock()
    engine = Engine("0", clock=clock)
    with engine.batch():
        clock.passes(1)
    window = engine.cut_window()

    assert (window["running_mean"], window["waiting_mean"], window["kv_cache_usage_ratio"]) == (None, None, None)


def test_of_a_batch_that_raises_the_time_counts_and_the_tokens_do_not() -> None:
    clock = FakeClock()
    engine = Engine("0", clock=clock)
    with pytest.raises(ValueError, match="in the forward pass"), engine.batch(prefill_tokens=10, decode_tokens=2):
        clock.passes(1)
        raise ValueError("in the forward pass")
    clock.passes(1)
    window = engine.cut_window()

    assert window["state_seconds"] == {"busy": 1, "idle": 1}
    assert (window["iterations"], window["prompt_tokens"], window["generation_tokens"]) == (1, 0, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["batch", "loading", "leave", "wait", "none", "cut"]), st.integers(0, 3 * SECOND)), max_size=40
)


@given(steps)
def test_windows_join_and_their_states_sum_to_them_whatever_overlaps(rows: list[tuple[str, int]]) -> None:
    clock = FakeClock()
    engine = Engine("0", clock=clock)
    began = clock.now
    inside: list[AbstractContextManager[None]] = []
    windows = []
    entered = 0
    for what, nanoseconds in rows:
        if what in {"batch", "loading"}:
            context = engine.batch(running=2) if what == "batch" else engine.loading()
            entered += what == "batch"
            context.__enter__()
            inside.append(context)
        elif what == "leave" and inside:
            inside.pop().__exit__(None, None, None)
        elif what in {"wait", "none"}:
            engine.update(waiting=3 if what == "wait" else 0)
        elif what == "cut":
            windows.append(engine.cut_window())
        clock.now += nanoseconds
    while inside:
        inside.pop().__exit__(None, None, None)
    windows.append(engine.cut_window())

    assert sum(window["window_seconds"] for window in windows) == pytest.approx((clock.now - began) / 1e9)
    assert sum(window["iterations"] for window in windows) == entered
    for window in windows:
        assert set(window["state_seconds"]) <= set(ENGINE_STATES)
        assert all(seconds > 0 for seconds in window["state_seconds"].values())
        assert sum(window["state_seconds"].values()) == pytest.approx(window["window_seconds"], abs=1e-9)
        if window["running_mean"] is not None:
            busy = window["state_seconds"].get("busy", 0.0)
            assert window["running_mean"] * window["window_seconds"] == pytest.approx(2 * busy, abs=1e-6)
