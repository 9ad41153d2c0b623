"""The verdict on a real vLLM under real load; each case as often as `make bars` asks for, of which nine in ten must be right."""

import bisect
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import real_vllm
from real_vllm import Server, azure, fixed, quantile, serving, watched
from tachoscope_core.report.report import Report
from tachoscope_core.report.serving import LatencySeconds

pytestmark = [
    pytest.mark.bar,
    pytest.mark.alone,
    pytest.mark.skipif(not real_vllm.SCRIPT.exists(), reason=f"{real_vllm.SCRIPT} is not here"),
]
SECONDS = 20.0


@pytest.fixture(scope="module", autouse=True)
def vllm_is_installed() -> None:
    real_vllm.installed()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("vllm")) as server:
        yield server


@pytest.fixture(scope="module")
def small_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("vllm"), "--num-gpu-blocks-override", "24") as server:
        yield server


@pytest.fixture
def runs(pytestconfig: pytest.Config) -> int:
    return int(pytestconfig.getoption("--bar-runs"))


def first(report: Report) -> str:
    return next((finding.class_ for finding in report.findings if finding.severity != "info"), "nothing")


def nine_in_ten(expected: str, runs: int, one: Callable[[int], Report]) -> None:
    found = Counter(first(one(seed)) for seed in range(runs))
    print(f"{expected}: {dict(found)}")

    assert found[expected] >= 0.9 * runs, found


def test_light_load_gives_no_warning(large: Server, runs: int, tmp_path: Path) -> None:
    nine_in_ten("nothing", runs, lambda seed: watched(large, azure(4, SECONDS, seed=seed), SECONDS, tmp_path)[0])


def test_long_prompts_mixed_into_short_ones_are_prefill_interference(large: Server, runs: int, tmp_path: Path) -> None:
    def one(seed: int) -> Report:
        plan = fixed(12, SECONDS, (16, 48), long_prompt=900, long_share=0.35, seed=seed)
        return watched(large, plan, SECONDS, tmp_path)[0]

    nine_in_ten("prefill_interference", runs, one)


@pytest.mark.parametrize("burstiness", [1.0, 0.25], ids=["poisson", "bursts"])
def test_a_rate_above_capacity_is_queue_saturation(large: Server, runs: int, burstiness: float, tmp_path: Path) -> None:
    def one(seed: int) -> Report:
        return watched(large, azure(130, SECONDS, burstiness=burstiness, seed=seed), SECONDS, tmp_path)[0]

    nine_in_ten("queue_saturation", runs, one)


def test_long_outputs_in_a_small_cache_are_kv_pressure(small_cache: Server, runs: int, tmp_path: Path) -> None:
    nine_in_ten(
        "kv_pressure",
        runs,
        lambda seed: watched(small_cache, fixed(5, SECONDS, (32, 600), seed=seed), SECONDS, tmp_path)[0],
    )


def first_token(answer: real_vllm.serving_load.Answer) -> float:
    """Return the seconds from when it was sent, which is later than when it was due where the client was busy."""
    return answer.first_token - answer.sent


def buckets_apart(row: LatencySeconds, share: float, seen: float, bounds: tuple[float, ...]) -> int:
    """Return how many buckets lie between where the server and where the clients have a quantile."""
    said = {0.5: row.p50, 0.95: row.p95, 0.99: row.p99}[share]
    assert said is not None
    return abs(bisect.bisect_left(bounds, seen) - bisect.bisect_left(bounds, said[1] or math.inf))


@pytest.mark.parametrize("rate", [8.0, 90.0], ids=["below capacity", "above capacity"])
def test_what_clients_see_agrees_with_the_servers_histograms_within_a_bucket(large: Server, rate: float, tmp_path: Path) -> None:
    """A client does not see the queue: it is what the first token takes longer than for such a prompt on the idle server.

    Looks are far apart: this process answers them too, and on two crowded cores a client waits for that.
    """
    _, calm = watched(large, azure(2, SECONDS, seed=1), SECONDS, tmp_path, to_the_end=True)
    prompts, times = np.array([(one.prompt_tokens, first_token(one)) for one in calm]).T
    per_token, base = np.polyfit(prompts, times, 1)
    plan = azure(rate, SECONDS, seed=2)
    report, answers = watched(large, plan, SECONDS + 40, tmp_path, to_the_end=True, every="30s")  # long enough that all of them end
    assert report.serving is not None
    done = [one for one in answers if one.outcome == "ok"]
    assert len(done) == len(answers) == len(plan)

    seen = {
        "first_token": [first_token(one) for one in done],
        "inter_token": [gap for one in done for gap in one.gaps],
        "output_token": [sum(one.gaps) / len(one.gaps) for one in done if one.gaps],
        "queue": [max(0.0, first_token(one) - base - per_token * one.prompt_tokens) for one in done],
    }
    bounds = real_vllm.bounds_of(large)
    rows = {row.name: row for row in report.serving.latencies}
    apart = {
        (name, share): buckets_apart(rows[name], share, quantile(values, share), bounds[name])
        for name, values in seen.items()
        for share in (0.5, 0.95, 0.99)
    }
    print({key: value for key, value in apart.items() if value})

    assert all(value <= 1 for value in apart.values()), apart


def test_a_restart_under_load_is_cold_start(large: Server, runs: int, tmp_path: Path) -> None:
    def restart() -> None:
        time.sleep(10)
        large.stop(signal.SIGKILL)
        large.start()

    def one(seed: int) -> Report:
        thread = threading.Thread(target=restart)
        thread.start()
        report, _ = watched(large, azure(4, 65, seed=seed), 65, tmp_path)
        thread.join()
        large.wait()
        return report

    nine_in_ten("cold_start", runs, one)
