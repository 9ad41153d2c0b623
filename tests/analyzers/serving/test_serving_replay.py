"""The replay of an engine, where the truth is known: by hand, by queueing theory, and by what must always hold."""

import numpy as np
import pytest

from tachoscope_analyzers.serving.capacity.engine_simulator import Engine, IterationCost, Load, replay

COST = IterationCost(0.004, 70e-6, 300e-6)


def made(rate: float, count: int, *, prompt: int = 1, output: int = 1, seed: int = 0) -> Load:
    gaps = np.random.default_rng(seed).exponential(1 / rate, count)
    return Load(np.cumsum(gaps), np.full(count, prompt), np.full(count, output))


def varied(rate: float, count: int, seed: int = 0) -> Load:
    randomly = np.random.default_rng(seed)
    gaps = randomly.exponential(1 / rate, count)
    return Load(np.cumsum(gaps), randomly.integers(1, 200, count), randomly.integers(1, 60, count))


def test_a_request_alone_takes_its_prompt_and_then_an_iteration_for_each_token():
    done = replay(Load(np.array([1.0]), np.array([100]), np.array([5])), Engine(COST, 8))

    assert done.first_token_seconds[0] == pytest.approx(0.004 + 100 * 70e-6 + 300e-6)
    assert done.request_seconds[0] == pytest.approx(done.first_token_seconds[0] + 4 * 0.0043)
    assert done.output_token_seconds[0] == pytest.approx(0.0043)
    assert done.gap_counts.sum() == 4


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks():
    done = replay(Load(np.array([0.0]), np.array([1000]), np.array([1])), Engine(COST, 8, max_iteration_tokens=400))

    assert done.iterations.times.sum() == 3
    assert done.iterations.prompt_tokens.tolist() == [400, 400, 200]


def test_one_request_at_a_time_of_one_token_waits_as_the_queue_m_d_1():
    service, use = 0.01, 0.7
    one, four = (replay(made(use / service, 100_000), Engine(IterationCost(service, 0.0, 0.0), places)) for places in (1, 4))

    assert one.queue_seconds.mean() == pytest.approx(use * service / (2 * (1 - use)), rel=0.05)
    assert four.queue_seconds.mean() < one.queue_seconds.mean()  # several share an iteration


def test_with_room_for_all_that_come_the_requests_inside_are_those_of_m_g_infinity():
    rate, output, seconds = 40.0, 50, 0.01
    done = replay(made(rate, 40_000, output=output), Engine(IterationCost(seconds, 0.0, 0.0), 10_000))

    # Little: each stays its tokens times an iteration, and half an iteration until it is let in.
    inside = done.request_seconds.sum() / done.end
    assert inside == pytest.approx(rate * (output + 0.5) * seconds, rel=0.03)


def test_tokens_and_time_are_conserved_whatever_the_engine_runs_short_of():
    load = varied(60, 1500)
    for engine in (Engine(COST, 8), Engine(COST, 64, 100), Engine(COST, 64, 2048, kv_cache_tokens=900)):
        done = replay(load, engine)

        whole = done.iterations.one_by_one()
        ends = whole.starts + whole.seconds
        assert np.isfinite(done.request_seconds).all()
        assert done.gap_counts.sum() == (load.output_tokens - 1).sum()
        assert (whole.starts[1:] >= ends[:-1] - 1e-9).all()
        assert whole.output_tokens.sum() == load.output_tokens.sum()
        assert whole.prompt_tokens.sum() >= load.prompt_tokens.sum()
        assert done.running_peak <= engine.max_running
        assert (done.preemptions > 0) == bool(engine.kv_cache_tokens)
        gaps = float(done.gap_seconds @ done.gap_counts)
        assert gaps == pytest.approx((done.request_seconds - done.first_token_seconds).sum())


def test_a_cache_that_is_never_full_changes_nothing():
    load = varied(30, 800)
    without, with_room = replay(load, Engine(COST, 64)), replay(load, Engine(COST, 64, kv_cache_tokens=1e9))

    assert np.allclose(without.request_seconds, with_room.request_seconds)


def test_who_finds_the_queue_full_is_refused_and_the_others_wait_no_longer_than_it_lasts():
    load = varied(200, 2000)
    free, limited = replay(load, Engine(COST, 16)), replay(load, Engine(COST, 16, queue_limit=10))

    refused = ~np.isfinite(limited.first_token_seconds)
    assert 0.2 < refused.mean() < 0.9
    assert limited.first_token_seconds[~refused].max() < 0.1 * free.first_token_seconds.max()
    assert limited.output_tokens == load.output_tokens[~refused].sum()
