"""The load client: its arrivals are those that were planned, its quantiles those of the definition, its outcomes what happened."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from serving_load import Answer, arrivals, drive, lengths, plan_of, quantile, row, summary


@pytest.mark.parametrize("burstiness", [1.0, 0.25])
def test_requests_come_at_the_rate_and_with_the_burstiness_that_were_asked_for(burstiness: float) -> None:
    times = list(arrivals(20.0, 1000.0, burstiness, random.Random(3)))
    gaps = [after - before for before, after in pairwise(times)]
    variation = statistics.variance(gaps) / statistics.mean(gaps) ** 2

    assert len(times) == pytest.approx(20_000, abs=4 * (20_000 / burstiness) ** 0.5)  # four standard deviations of the count
    assert variation == pytest.approx(1 / burstiness, rel=0.1)
    assert times[0] >= 0
    assert times[-1] < 1000
    assert times == sorted(times)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.integers(1, 100))
def test_a_quantile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    assert quantile(values, percent / 100) == np.quantile(values, percent / 100, method="inverted_cdf")


def test_a_plan_is_the_same_for_the_same_seed_and_mixes_long_prompts_in_by_their_share(tmp_path: Path) -> None:
    options = argparse.Namespace(
        seed=5, seconds=500.0, burstiness=1.0, lengths=None, prompt=32, output=16, long_prompt=900, long_share=0.2
    )
    plan = plan_of(options, 4.0)
    long = sum(prompt == 900 for _, (prompt, _) in plan)

    assert plan == plan_of(options, 4.0)
    assert {output for _, (_, output) in plan} == {16}
    assert long / len(plan) == pytest.approx(0.2, abs=4 * (0.2 * 0.8 / len(plan)) ** 0.5)


def test_lengths_of_a_trace_are_scaled_and_fit_together(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,374,44\n1,3,1\n2,14000,5000\n")

    assert lengths(trace, 0.1, 1000) == [(37, 4), (1, 1), (998, 1)]


TOKEN = b'data: {"choices":[{"text":" 1"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"
ANSWERS: dict[str, tuple[int, bytes, str, int]] = {
    "a stream to its end": (200, TOKEN * 3 + DONE, "ok", 3),
    "chunks of several tokens": (200, TOKEN * 3 + USAGE + DONE, "ok", 5),
    "a stream without its end": (200, TOKEN * 2, "cut", 2),
    "an error in the stream": (200, TOKEN + b'data: {"error":{"message":"out of memory"}}\n\n', "server_error", 1),
    "no JSON": (200, TOKEN + b"data: <html>\n\n", "server_error", 1),
    "no such model": (404, b"", "client_error", 0),
    "malformed": (400, b"", "client_error", 0),
    "took too long": (408, b"", "timeout", 0),
    "gateway": (504, b"", "timeout", 0),
    "too many": (429, b"", "shed", 0),
    "overloaded": (503, b"", "shed", 0),
    "broken": (500, b"", "server_error", 0),
}


def against_a_fake_server(status: int, body: bytes) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    async def ask() -> Answer:
        app = web.Application()
        app.router.add_post("/v1/completions", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        (found,) = await drive(f"http://127.0.0.1:{runner.addresses[0][1]}", "tiny", [(0.0, (4, 4))])
        await runner.cleanup()
        return found

    return asyncio.run(ask())


@pytest.mark.parametrize("case", ANSWERS)
def test_the_outcome_is_what_happened(case: str) -> None:
    status, body, outcome, tokens = ANSWERS[case]
    answer = against_a_fake_server(status, body)

    assert (answer.outcome, answer.status, answer.tokens) == (outcome, status, tokens)
    assert len(answer.gaps) == max(body.count(TOKEN) - 1, 0)


def test_a_summary_counts_what_ended_how_and_the_tokens_of_what_is_complete_up_to_the_last_end() -> None:
    answers = [
        Answer(due=0.0, prompt_tokens=4, first_token=0.5, end=1.0, tokens=60, gaps=[0.1], outcome="ok"),
        Answer(due=9.0, prompt_tokens=4, first_token=1.5, end=3.0, tokens=60, gaps=[0.3], outcome="ok"),
        Answer(due=9.5, prompt_tokens=4, end=0.1, tokens=7, outcome="cut"),
        Answer(due=9.9, prompt_tokens=4, tokens=7),
    ]
    said = summary(answers, 10.0)

    assert said.startswith("4 requests in 10 s: 2 ok, 1 cut, 1 unfinished; 10 tokens a second")  # 120 in 12 s
    assert "first token   p50 500.0 ms, p95 1500.0 ms, p99 1500.0 ms" in said
    assert row(4.0, answers, 10.0).split() == ["4", "4", "2", "10", "500.0", "1500.0", "100.0", "300.0"]
