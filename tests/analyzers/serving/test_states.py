"""The ledgers of inference, compared with servers whose truth is known."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planted_server import Engine, requests, serve
from tachoscope_analyzers.serving.classes.states import SecondsByState, spent, starts
from tachoscope_analyzers.serving.records.traffic import traffic
from tachoscope_core.servers.snapshot import Buckets, EngineState, Snapshot


def judged(engine: Engine, arriving: list, seconds: float = 60.0) -> tuple[SecondsByState, Counter[str]]:
    looks, truth = serve(engine, arriving, seconds)
    return spent(traffic(looks)), truth


def of_requests(found: SecondsByState, state: str) -> float:
    return float(found.requests[state].sum())


@pytest.mark.parametrize(
    ("engine", "load"),
    [
        (Engine(), {"rate": 5, "prompt": 50, "output": 60}),
        (Engine(most_running=4), {"rate": 12, "prompt": 50, "output": 60}),
        (Engine(), {"rate": 10, "prompt": 20, "output": 50, "long_prompt": 900, "long_share": 0.3}),
        (Engine(cache_tokens=3000), {"rate": 3, "prompt": 32, "output": 600}),
    ],
    ids=["light", "above capacity", "long prompts", "small cache"],
)
def test_the_seconds_of_each_state_are_those_that_were_planted(engine: Engine, load: dict) -> None:
    found, truth = judged(engine, requests(seconds=60.0, **load))
    wall = sum(seconds for state, seconds in truth.items() if state != "interference")

    assert float(found.request_seconds.sum()) == pytest.approx(wall, rel=0.1)
    for state in ("queued", "prefill", "decode", "preempted"):
        assert of_requests(found, state) == pytest.approx(truth[state], abs=0.1 * wall), state


def test_an_idle_engine_is_idle_and_one_above_its_capacity_is_busy() -> None:
    light, _ = judged(Engine(), requests(1, 60, 20, 20))
    full, _ = judged(Engine(most_running=4), requests(20, 15, 50, 60), 15.0)

    assert light.engines["idle"].sum() > 0.8 * light.engine_seconds.sum()
    assert full.engines["busy"].sum() > 0.9 * full.engine_seconds.sum()


def stuck(waiting: float, running: float) -> list[Snapshot]:
    """Looks at a server on which nothing moves."""
    gauges = {"requests_running": running, "requests_waiting": waiting}
    nothing = Buckets((1.0,), (0.0, 0.0), 0.0)
    state = EngineState("m", "0", gauges, {"generation_tokens_total": 5.0}, {"inter_token_seconds": nothing})
    return [Snapshot(time=float(second), engines=(state,), server="vllm", started=-50.0) for second in range(61)]


def test_requests_that_run_and_get_no_token_are_unexplained_not_decoding() -> None:
    found = spent(traffic(stuck(0.0, 8.0)))

    assert of_requests(found, "decode") == 0.0
    assert of_requests(found, "unexplained") > 0.8 * 8 * 60


def test_an_engine_that_runs_nothing_while_requests_wait_is_starved_not_idle() -> None:
    found = spent(traffic(stuck(5.0, 0.0)))

    assert found.engines["starved"].sum() == pytest.approx(60.0)
    assert of_requests(found, "queued") == pytest.approx(300.0)


def away(looks: list[Snapshot], first: int, last: int, *, restarts: bool) -> list[Snapshot]:
    """Return the looks with some unanswered, and the counters of a new process from then on."""
    missing = [replace(look, engines=(), fault="refused") if first <= i <= last else look for i, look in enumerate(looks)]
    if not restarts:
        return missing
    began = looks[last].time
    return missing[: last + 1] + [replace(look, started=began) for look in looks_of_a_new_process(missing[last + 1 :])]


def looks_of_a_new_process(looks: list[Snapshot]) -> list[Snapshot]:
    fresh, _ = serve(Engine(), requests(5, 60, 50, 60), 60.0)
    return [replace(fresh[index], time=look.time) for index, look in enumerate(looks)]


def test_a_restart_is_cold_start_from_the_last_answer_of_the_old_process_to_the_first_of_the_new() -> None:
    looks, _ = serve(Engine(), requests(5, 60, 50, 60), 60.0)
    seen = traffic(away(looks, 40, 79, restarts=True))

    assert starts(seen) == [(looks[39].time, looks[80].time)]
    assert spent(seen).engines["cold_start"].sum() == pytest.approx(20.5)


def test_looks_that_are_not_answered_without_a_restart_are_unexplained_not_idle_and_no_start() -> None:
    looks, _ = serve(Engine(), requests(5, 60, 50, 60), 60.0)
    seen = traffic(away(looks, 40, 79, restarts=False))

    assert starts(seen) == []
    assert spent(seen).engines["unexplained"].sum() == pytest.approx(20.5)
    assert spent(seen).engines["cold_start"].sum() == 0.0


@given(
    st.lists(
        st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 1), st.integers(0, 200), st.booleans()), min_size=2, max_size=30
    )
)
def test_states_are_never_negative_and_sum_to_the_wall_time_whatever_a_server_says(rows: list) -> None:
    total, looks = 0.0, []
    for index, (waiting, running, usage, tokens, answered) in enumerate(rows):
        total += tokens
        gauges = {"requests_running": running, "requests_waiting": waiting, "kv_cache_usage_ratio": usage}
        between = Buckets((0.01, 1.0), (total / 2, total, total), total * 0.02)
        state = EngineState("m", "0", gauges, {"preemptions_total": total // 50}, {"inter_token_seconds": between})
        looks.append(
            Snapshot(time=float(index), engines=(state,), started=1.0) if answered else Snapshot(time=float(index), fault="x")
        )
    if not any(not look.fault for look in looks):
        return
    found = spent(traffic(looks))

    for parts in (found.requests, found.engines):
        assert all((seconds >= 0).all() for seconds in parts.values())
    assert found.engine_seconds == pytest.approx(traffic(looks).seconds)
