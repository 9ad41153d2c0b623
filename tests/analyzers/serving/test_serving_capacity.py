"""Capacity from pages that a server with planted costs would have served: costs and knee are found from one recording."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from tachoscope_analyzers.serving.capacity import capacity, engine_model
from tachoscope_analyzers.serving.capacity import engine_intervals as intervals
from tachoscope_analyzers.serving.capacity.engine_simulator import Engine, IterationCost, Load, replay
from tachoscope_analyzers.serving.capacity.objectives import DEFAULTS, Objective, objective
from tachoscope_analyzers.serving.capacity.workload import Workload
from tachoscope_analyzers.serving.records.traffic import Traffic, traffic
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.records.records import EngineWindow, RequestDone
from tachoscope_core.servers.snapshot import Buckets, EngineState, Snapshot
from tachoscope_show.capacity import text as capacity_text

PLANTED = Engine(IterationCost(0.004, 70e-6, 300e-6), max_running=128, front_seconds=0.004)
OBJECTIVES = (Objective("ttft", 95, 0.5), Objective("itl", 95, 0.1))
TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0)


def workload(shape: float = 1.0) -> Workload:
    randomly = np.random.default_rng(5)
    prompts = np.clip(np.rint(randomly.lognormal(4.3, 0.9, 4000)), 1, 800).astype(np.int64)
    outputs = np.clip(np.rint(randomly.lognormal(2.8, 0.8, 4000)), 1, 150).astype(np.int64)
    return Workload(0.0, shape, prompts, outputs, together=True, measured=(), assumed=())


def buckets(values: np.ndarray, bounds: tuple[float, ...], weights: np.ndarray | None = None) -> Buckets:
    weights = np.ones(len(values)) if weights is None else weights
    each = np.bincount(np.searchsorted(bounds, values), weights, minlength=len(bounds) + 1)
    return Buckets(bounds, tuple(each.cumsum().tolist()), float(values @ weights))


def recorded(
    engine: Engine, traffic_of: float | Load, *, shape: float = 1.0, seconds: float = 40.0, every: float = 1.0, seed: int = 11
) -> Traffic:
    """Return what a server with this engine would have said of itself under a load, or so many requests a second, look after look:
    as vLLM counts.
    """
    load = traffic_of if isinstance(traffic_of, Load) else workload(shape).load(traffic_of, int(traffic_of * seconds), seed)
    done = replay(load, engine)
    each = done.iterations.one_by_one()
    ends = each.starts + each.seconds
    first = load.arrivals + done.first_token_seconds - engine.front_seconds
    end = load.arrivals + done.request_seconds - engine.front_seconds
    # The request waits in the server's inbox until the iteration under way ends; servers do not call that queue.
    under_way = np.searchsorted(each.starts, load.arrivals, side="right") - 1
    inbox = np.clip(ends[np.maximum(under_way, 0)] - load.arrivals, 0.0, None)
    queue = np.maximum(done.queue_seconds - inbox, 0.0)
    looks = []
    for now in np.arange(0.0, seconds, every):
        had, over, past = first <= now, end <= now, ends <= now
        tokens = each.prompt_tokens[past] + each.output_tokens[past]
        histograms = {
            "iteration_tokens": buckets(tokens, TOKENS),
            "inter_token_seconds": buckets(each.seconds[past], SECONDS, each.decoding[past]),
            "first_token_seconds": buckets(done.first_token_seconds[had], SECONDS),
            "prefill_seconds": buckets(done.prefill_seconds[over], SECONDS),
            "queue_seconds": buckets(queue[over], SECONDS),
            "prompt_tokens": buckets(load.prompt_tokens[over].astype(float), TOKENS),
            "generation_tokens": buckets(load.output_tokens[over].astype(float), TOKENS),
        }
        inside = (load.arrivals <= now) & ~over
        waiting = float((inside & (load.arrivals + done.queue_seconds > now)).sum())
        state = EngineState(
            model="m",
            engine="0",
            gauges={"requests_running": float(inside.sum()) - waiting, "requests_waiting": waiting},
            counters={"generation_tokens_total": float(each.output_tokens[past].sum())},
            histograms=histograms,
        )
        looks.append(Snapshot(time=1e9 + float(now), engines=(state,), server="vllm"))
    return traffic(looks)


@pytest.fixture(scope="module")
def truth() -> float:
    """The knee of the planted engine by brute force: every rate, many other requests."""
    requests = workload()
    rates = np.arange(50.0, 80.0, 1.0)
    too_many = next(rate for rate in rates if not capacity.point(PLANTED, requests, rate, OBJECTIVES, seeds=range(50, 53)).met)
    assert too_many > 50.0
    return float(too_many - 0.5)


@pytest.mark.parametrize("rate", [25.0, pytest.param(40.0, marks=pytest.mark.bar), pytest.param(50.0, marks=pytest.mark.bar)])
def test_the_knee_of_a_planted_engine_is_found_from_one_recording_of_moderate_load(rate: float, truth: float):
    model = engine_model.of_traffic(recorded(PLANTED, rate, seconds=80.0), max_running=128)

    knee = capacity.knee(model.engine, model.workload, OBJECTIVES)
    assert knee == pytest.approx(truth, rel=0.1)
    assert model.engine.front_seconds == pytest.approx(0.004, abs=0.004)
    for seen, replayed in model.checks.values():
        assert replayed == pytest.approx(seen, rel=0.1)


@pytest.mark.bar  # of many engines
def test_the_interval_holds_the_true_knee(truth: float):
    found = capacity.capacity(engine_model.of_traffic(recorded(PLANTED, 45.0), max_running=128), OBJECTIVES)

    assert found.knee_interval[0] <= truth <= found.knee_interval[1]


def test_the_knee_is_not_yet_known_from_a_load_far_below_it():
    model = engine_model.of_traffic(recorded(PLANTED, 15.0), max_running=128)
    found = capacity.capacity(model, OBJECTIVES)

    assert found.knee == 0.0
    assert not found.curve
    assert 0.15 < found.light_load < 0.4
    assert "not yet known: the load was" in capacity_text.verdict(found)
    assert capacity_text.facts(found)["knee_requests_per_second"] is None


def test_the_limit_of_running_requests_is_seen_where_others_wait():
    engine = Engine(PLANTED.cost, max_running=12)

    assert engine_model.of_traffic(recorded(engine, 38.0, seconds=60.0)).engine.max_running == 12
    unseen = engine_model.of_traffic(recorded(PLANTED, 10.0))
    assert unseen.engine.max_running == engine_model.MAX_RUNNING
    assert any("was not reached" in sentence for sentence in unseen.assumed)


@pytest.mark.bar
def test_bursts_are_seen_and_lower_the_knee():
    even = engine_model.of_traffic(recorded(PLANTED, 30.0, seconds=120.0), max_running=128)
    bursty = engine_model.of_traffic(recorded(PLANTED, 30.0, shape=0.15, seconds=120.0), max_running=128)

    assert even.workload.shape == 1.0
    assert 0.08 < bursty.workload.shape < 0.4
    of = [capacity.knee(PLANTED, model.workload, OBJECTIVES) for model in (even, bursty)]
    assert of[1] < 0.9 * of[0]


@pytest.mark.bar
def test_requests_that_are_held_up_and_then_come_together_are_no_bursts():
    plain = workload().load(30.0, 3600, 11)
    held_up = np.floor(plain.arrivals) % 3 == 0  # one second in three, all of which come at its end
    late = replace(plain, arrivals=np.where(held_up, np.ceil(plain.arrivals), plain.arrivals))
    counts = np.histogram(late.arrivals, np.arange(0.0, 121.0, 0.5))[0]

    assert counts.var() > 4 * counts.mean()
    assert engine_model.of_traffic(recorded(PLANTED, late, seconds=120.0), max_running=128).workload.shape == 1.0


def changing(rate_of: Callable[[float], float], most: float, *, longer: float = 1.0) -> Load:
    """Return two minutes of requests at a rate that changes, and in the second minute so many times as long."""
    whole = workload().load(most, int(most * 130), 3)
    chance = np.random.default_rng(3).random(len(whole.arrivals))
    kept = (chance < [rate_of(float(at)) / most for at in whole.arrivals]) & (whole.arrivals < 120.0)
    times = np.where(whole.arrivals[kept] < 60.0, 1.0, longer)
    prompts, outputs = ((tokens[kept] * times).astype(np.int64) for tokens in (whole.prompt_tokens, whole.output_tokens))
    return Load(whole.arrivals[kept], prompts, outputs)


@pytest.mark.parametrize(
    ("load", "what"),
    [
        (changing(lambda at: 10.0 if at < 60.0 else 50.0, 50.0), "requests came at"),
        (changing(lambda at: 5.0 + 50.0 * at / 120.0, 55.0), "requests came at"),
        (changing(lambda _: 30.0, 30.0, longer=2.5), "tokens on average"),
    ],
)
def test_the_knee_of_a_load_that_changed_is_not_known(load: Load, what: str):
    with pytest.raises(engine_model.NotMeasuredError, match=f"not known: the load changed .*{what}"):
        engine_model.of_traffic(recorded(PLANTED, load, seconds=120.0), max_running=128)


def test_lengths_inside_buckets_keep_their_mean():
    found = engine_model.of_traffic(recorded(PLANTED, 30.0)).workload

    assert found.prompt_tokens.mean() == pytest.approx(workload().prompt_tokens.mean(), rel=0.12)
    assert found.output_tokens.mean() == pytest.approx(workload().output_tokens.mean(), rel=0.12)


def records_of(engine: Engine, rate: float) -> tuple[list[RequestDone], list[EngineWindow]]:
    load = workload().load(rate, int(rate * 40), 3)
    done = replay(load, engine)
    envelope = {"job": "chat", "attempt": 0, "writer": "w", "rank": -1, "local_rank": 0, "host": "h", "monotonic_ns": 0}
    requests = [
        RequestDone(
            **envelope,
            seq=number,
            time=1e9 + float(load.arrivals[number] + done.request_seconds[number]),
            request=str(number),
            wall_seconds=float(done.request_seconds[number]),
            phase_seconds={},
            outcome="ok",
            tokens_in=int(load.prompt_tokens[number]),
            tokens_out=int(load.output_tokens[number]),
            first_token_seconds=float(done.first_token_seconds[number]),
        )
        for number in range(len(load.arrivals))
    ]
    each = done.iterations.one_by_one()
    window = (each.starts + each.seconds).astype(int)
    windows = [
        EngineWindow(
            **envelope,
            seq=10_000 + second,
            time=1e9 + second + 1.0,
            window_seconds=1.0,
            state_seconds={"busy": 1.0},
            iterations=int((window == second).sum()),
            iteration_seconds=float(each.seconds[window == second].sum()),
            prompt_tokens=int(each.prompt_tokens[window == second].sum()),
            generation_tokens=int(each.output_tokens[window == second].sum()),
        )
        for second in range(window.max() + 1)
    ]
    return requests, windows


def test_an_engines_own_records_give_its_costs_and_the_knee(truth: float):
    model = engine_model.of_records(*records_of(PLANTED, 30.0), max_running=128)

    assert model.engine.cost.base_seconds == pytest.approx(PLANTED.cost.base_seconds, rel=0.02)
    assert model.engine.cost.prompt_token_seconds == pytest.approx(PLANTED.cost.prompt_token_seconds, rel=0.02)
    assert model.engine.cost.output_token_seconds == pytest.approx(PLANTED.cost.output_token_seconds, rel=0.02)
    assert model.engine.front_seconds == pytest.approx(0.004, abs=0.001)
    assert capacity.knee(model.engine, model.workload, OBJECTIVES) == pytest.approx(truth, rel=0.06)


def test_the_capacity_that_an_engine_reports_is_its_limit():
    requests, windows = records_of(PLANTED, 30.0)
    told = [structs.replace(window, capacity=48) for window in windows]

    assert engine_model.of_records(requests, told).engine.max_running == 48
    assert engine_model.of_records(requests, told, max_running=12).engine.max_running == 12


def test_the_interval_of_the_knee_contains_it_where_all_other_draws_are_on_one_side():
    slower = IterationCost(0.008, 140e-6, 600e-6)
    model = replace(model_of(PLANTED), draws=(slower,) * 12)
    found = capacity.knee(PLANTED, model.workload, OBJECTIVES, seeds=(0,))

    low, high = capacity._interval(model, OBJECTIVES, found, lambda: None)
    assert low < found == high


def test_what_the_recording_cannot_tell_is_refused_with_what_to_record():
    full = recorded(PLANTED, 30.0, seconds=10.0)
    without = {name: row for name, row in full.counts.items() if name != "iteration_tokens"}

    with pytest.raises(engine_model.NotMeasuredError, match="does not count iterations") as error:
        engine_model.of_traffic(replace(full, counts=without))
    assert "--save" in str(error.value)
    with pytest.raises(engine_model.NotMeasuredError, match="does not determine|no request"):
        engine_model.of_traffic(recorded(PLANTED, 1.0, seconds=3.0))
    with pytest.raises(engine_model.NotMeasuredError, match="about 12 output tokens"):
        engine_model.of_traffic(recorded(Engine(PLANTED.cost, max_running=12), 90.0))
    requests, windows = records_of(PLANTED, 10.0)
    with pytest.raises(engine_model.NotMeasuredError, match="iterations"):
        engine_model.of_records(requests, [])
    with pytest.raises(engine_model.NotMeasuredError, match="tokens"):
        engine_model.of_records([], windows)


def model_of(engine: Engine) -> engine_model.Model:
    return engine_model.Model(engine, (engine.cost,), workload(), 1, 100.0, {}, (), ())


def test_what_moves_the_knee_of_an_engine_short_of_places_is_more_places():
    found = capacity.capacity(model_of(Engine(PLANTED.cost, max_running=8)), OBJECTIVES)

    ratios = {lever.what: lever.ratio for lever in found.levers}
    assert ratios["at most 16 requests at a time, for 8"] > 1.3
    assert ratios["at most 4 requests at a time, for 8"] < 0.8
    assert 1.95 < ratios["two replicas for each"] < 2.4
    assert ratios["weights of half the bytes"] > 1.2
    assert found.limit == "ttft_p95"


@pytest.fixture(scope="module")
def planted() -> capacity.Capacity:
    """What is found of the planted engine, with a forecast of 300 requests a second."""
    return capacity.capacity(model_of(PLANTED), OBJECTIVES, forecast_rate=300.0)


def test_refusing_some_requests_keeps_the_others_in_time_above_the_knee(planted: capacity.Capacity):
    admission = planted.admission

    assert admission is not None
    assert admission.in_time_with > admission.in_time_without + 0.2


def test_replicas_for_a_forecast_are_the_fewest_that_meet_the_objectives(planted: capacity.Capacity):
    assert planted.forecast_replicas is not None
    count = planted.forecast_replicas[0]
    assert planted.knee * (count - 1) < 300 * 1.1
    assert planted.knee * (count + 1) > 300


def test_objectives_that_one_request_alone_breaks_have_no_knee():
    found = capacity.capacity(model_of(PLANTED), [Objective("itl", 50, 0.001)])

    assert found.knee == 0
    assert found.limit == "itl_p50"
    assert found.levers == ()


def test_the_knee_is_below_saturation_and_the_curve_rises_towards_it(planted: capacity.Capacity):
    assert 0.7 * planted.saturation < planted.knee < planted.saturation
    latencies = [point.seconds["ttft_p95"] for point in planted.curve]
    assert latencies == sorted(latencies)
    assert [point.met for point in planted.curve] == sorted((point.met for point in planted.curve), reverse=True)


@pytest.mark.parametrize("text", ["ttft=1", "ttft_p95=fast", "speed_p95=1", "ttft_p0=1", "ttft_p95=-1", "ttft_p95=inf"])
def test_an_objective_that_is_none_is_refused_with_the_form(text: str):
    with pytest.raises(TachoscopeError, match="objective"):
        objective(text)


def test_an_objective_reads_as_it_is_written():
    assert objective("ttft_p99.9=0.25") == Objective("ttft", 99.9, 0.25)
    assert {objective(f"{one.name}={one.seconds}") for one in DEFAULTS} == set(DEFAULTS)


def test_a_replay_is_counted_as_a_server_counts():
    load = Load(np.array([0.0, 0.1, 0.6]), np.array([50, 50, 50]), np.array([4, 4, 4]))
    done = replay(load, PLANTED)
    like = intervals.of_traffic(recorded(PLANTED, 20.0, seconds=3.0))
    assert like is not None

    seen = intervals.of_replay(load, done, like)
    assert seen.prompt_tokens.sum() == 150
    assert seen.output_tokens.sum() == 12
    assert seen.gap_counts.sum() == 9
    assert seen.prefill_counts.sum() == 3
