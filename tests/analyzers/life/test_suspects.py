"""Who fails more often than the others: planted culprits are found, and clean fleets accuse nobody."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tachoscope_analyzers.life.suspects import HostFailure, ShardFailure, at_least, holm, hosts, over_jobs, shards
from tachoscope_core.report.job_life import Attempt, Life, Recovery, Suspect

FLEET = {f"host-{number:03}": 1000.0 for number in range(200)}
NAMES = list(FLEET)


def fleet_failures(count: int, weights: dict[str, float], seed: int) -> list[HostFailure]:
    chances = np.array([weights.get(name, 1.0) for name in NAMES])
    drawn = np.random.default_rng(seed).choice(NAMES, size=count, p=chances / chances.sum())
    return [HostFailure(str(name), attempt=number) for number, name in enumerate(drawn)]


def needed(times: float, power: float) -> int:
    """Return after how many failures theory finds a host that fails so many times as often: the least with this power."""
    for count in range(10, 5000, 10):
        accused = next(k for k in range(1, count) if len(FLEET) * at_least(k, [(count, 1 / len(FLEET))]) <= 0.05)
        if at_least(accused, [(count, times / (len(FLEET) - 1 + times))]) >= power:
            return count
    raise AssertionError("never")


def test_a_host_that_fails_five_times_as_often_is_found_after_as_many_failures_as_theory_needs() -> None:
    count = needed(5.0, 0.95)

    firsts = [hosts(fleet_failures(count, {"host-042": 5.0}, seed), FLEET)[0] for seed in range(100)]
    found = [first for first in firsts if first.name == "host-042" and first.confidence >= 0.95]

    assert len(found) >= 88, "95 of 100 are expected; below 88 only once in 400 such tests"
    assert "drain the host now" in found[0].action
    assert all(first.expected == pytest.approx(count / 200) for first in firsts)


def test_it_is_not_found_from_a_tenth_of_them() -> None:
    count = needed(5.0, 0.95) // 10

    firsts = [hosts(fleet_failures(count, {"host-042": 5.0}, seed), FLEET)[0] for seed in range(50)]

    assert sum(first.confidence >= 0.95 for first in firsts) <= 5


@pytest.mark.parametrize(("count", "fleets"), [(3, 300), (40, 200), (600, 60)])
def test_at_most_one_clean_fleet_in_twenty_accuses_anybody(count: int, fleets: int) -> None:
    accusing = sum(hosts(fleet_failures(count, {}, seed), FLEET)[0].confidence >= 0.95 for seed in range(fleets))

    assert accusing <= 0.05 * fleets + 3 * math.sqrt(0.05 * 0.95 * fleets)


def test_a_host_that_was_in_use_ten_times_as_long_may_fail_ten_times_as_often() -> None:
    exposure = FLEET | {"host-007": 10_000.0}
    failures = [HostFailure("host-007")] * 10 + [HostFailure(name) for name in NAMES[50:150]]

    assert hosts(failures, exposure)[0].confidence < 0.5
    assert hosts(failures, FLEET)[0].confidence > 0.99, "in use as long as the others it would be suspect"


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_failures_accuse_nobody(count: int) -> None:
    (suspect,) = hosts([HostFailure("host-001")] * count, dict.fromkeys(NAMES[:4], 1.0))

    assert suspect.confidence < 0.8
    assert suspect.action == "none: so many failures can be chance"


def test_the_only_host_of_a_job_cannot_fail_more_than_the_others() -> None:
    (suspect,) = hosts([HostFailure("alone")] * 9, {"alone": 5.0})

    assert suspect.confidence == 0.0
    assert suspect.expected == 9.0


def test_a_host_whose_use_is_not_known_is_named_and_neither_accused_nor_counted_against_the_others() -> None:
    failures = [HostFailure("stranger")] * 20 + [HostFailure("host-001")] * 2 + [HostFailure("")]

    found = {suspect.name: suspect for suspect in hosts(failures, FLEET)}

    assert set(found) == {"stranger", "host-001"}
    assert found["stranger"].confidence == 0.0
    assert "not known" in found["stranger"].action
    assert found["host-001"].expected == pytest.approx(2 / 200)


def test_a_shard_that_fails_on_rank_after_rank_is_found_and_one_that_a_single_rank_stumbles_over_is_not() -> None:
    reads = {f"shard-{number:02}.tar": 8.0 for number in range(64)}
    bad = [ShardFailure("shard-03.tar", attempt=attempt, rank=rank) for attempt in range(2) for rank in range(2)]
    stumbling = [ShardFailure("shard-05.tar", attempt=0, rank=3)] * 9

    first, second = shards([*bad, *stumbling], reads, quarantined={"shard-03.tar"})

    assert (first.name, first.failures, first.quarantined) == ("shard-03.tar", 4, True)
    assert first.confidence > 0.95
    assert "write the shard again" in first.action
    assert (second.name, second.failures) == ("shard-05.tar", 1)
    assert second.confidence < 0.8


def life(*failed_on: str, names: list[str], kind: str = "failed", listed: list[Suspect] | None = None) -> Life:
    attempts = [
        Attempt(attempt=number, start=0.0, end=1.0, ranks=len(names), hosts=names, ended="failed")
        for number in range(len(failed_on))
    ]
    recoveries = [Recovery(attempt=number, kind=kind, host=host, failed_at=0.0) for number, host in enumerate(failed_on)]  # type: ignore[arg-type]
    return Life(denominator="launcher", allocated_seconds=1.0, attempts=attempts, recoveries=recoveries, suspects=listed or [])


def test_over_jobs_a_host_that_jobs_without_much_in_common_die_on_is_found() -> None:
    lives = {f"job-{number}": life("bad", names=["bad", *NAMES[number * 7 : number * 7 + 7]]) for number in range(5)}

    found = over_jobs(lives)

    assert found.suspects[0].name == "bad"
    assert found.suspects[0].confidence > 0.95
    assert found.by_host == {"bad": 5}
    assert found.by_job == dict.fromkeys(lives, 1)


def test_a_job_that_fails_on_all_its_hosts_in_turn_is_not_their_fault() -> None:
    mine = NAMES[:4]
    broken = life(*(mine * 10), names=mine)
    sound = {f"job-{number}": life(names=NAMES[4:]) for number in range(3)}

    found = over_jobs({"broken": broken} | sound)

    assert found.by_job == {"broken": 40}
    assert max(suspect.confidence for suspect in found.suspects) < 0.5


def test_preemptions_are_nobodys_failures() -> None:
    assert over_jobs({"job": life("a", "a", "a", names=["a", *NAMES], kind="preempted")}).by_host == {}


def test_interrupts_and_hangs_that_passed_are_nobodys_failures() -> None:
    stopped = life("a", names=["a", *NAMES], kind="interrupted")
    assert over_jobs({"stopped": stopped, "hung": life("a", names=["a", *NAMES], kind="hung")}).by_job == {}


def test_a_host_that_was_always_alone_is_counted_and_not_suspected() -> None:
    found = over_jobs({"job": life("a", "a", names=["a"])})

    assert found.by_host == {"a": 2}
    assert found.suspects == []


def test_shards_are_compared_over_the_jobs_whose_reads_are_known() -> None:
    listed = [Suspect(kind="shard", name="s3", failures=2, expected=0.0, confidence=0.0, quarantined=True)]
    lives = {name: life(names=["a"], listed=listed) for name in ("first", "second")}
    reads = {f"s{number}": 5.0 for number in range(50)}

    (told,) = over_jobs(lives, shard_reads={"first": reads, "second": reads}).suspects
    (untold,) = over_jobs(lives).suspects

    assert over_jobs(lives).by_shard == {"s3": 4}
    assert told.confidence > 0.95
    assert told.quarantined
    assert untold.confidence == 0.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 1)), max_size=5), st.integers(0, 8))
def test_the_tail_is_that_of_a_sum_of_binomials(groups: list[tuple[int, float]], count: int) -> None:
    probabilities = {0: 1.0}
    for trials, share in groups:
        for _ in range(trials):
            after: Counter[int] = Counter()
            for successes, probability in probabilities.items():
                after[successes] += probability * (1 - share)  # type: ignore[assignment]
                after[successes + 1] += probability * share  # type: ignore[assignment]
            probabilities = dict(after)

    assert at_least(count, groups) == pytest.approx(sum(p for k, p in probabilities.items() if k >= count), abs=1e-9)


def test_holm_corrects_the_smallest_for_all_tests_and_the_next_for_the_rest_in_order() -> None:
    assert holm({"b": 0.02, "a": 0.01, "c": 0.015}, 10) == pytest.approx({"a": 0.1, "c": 0.135, "b": 0.16})
    assert holm({"a": 0.05, "b": 0.051}, 2) == pytest.approx({"a": 0.1, "b": 0.1}), "never in another order than before"
    assert holm({"a": 0.5}, 10) == {"a": 1.0}
