"""Verdicts of preflights: against the fleet's own results, nominal rates, and the pairs of one run."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from tachoscope_analyzers.preflight import clocks
from tachoscope_analyzers.preflight.exchange import measurements
from tachoscope_analyzers.preflight.nodes import Fleet, judge, judge_nodes
from tachoscope_analyzers.preflight.pairs import blame, marked
from tachoscope_analyzers.preflight.report import report
from tachoscope_core.report.preflight import Exchange
from tachoscope_core.storage.preflights import Measurement, NodeResult

NAME = "memory_copy_bytes_per_second"


def result(host: str, rate: float, *, like: str = "EPYC") -> NodeResult:
    return NodeResult(host=host, time=0.0, measurements=[Measurement(name=NAME, comparable_with=like, median=rate)])


def verdict(rate: float, others: list[float], nominal: float | None = None, like: str = "EPYC") -> str:
    fleet = Fleet(result(f"h{index}", other) for index, other in enumerate(others))
    return judge(Measurement(name=NAME, comparable_with=like, median=rate), "me", fleet, nominal).verdict


def test_a_rate_is_judged_by_five_other_hosts_of_its_hardware_and_never_fit_without_anything_to_compare_with() -> None:
    alike = [100.0, 101.0, 99.0, 100.0, 102.0]

    assert verdict(98.0, alike) == "fit"
    assert verdict(60.0, alike) == "unfit"
    assert verdict(98.0, alike[:4]) == "not judged"
    assert verdict(98.0, alike, like="another CPU") == "not judged"
    assert verdict(98.0, [1.0, 10.0, 100.0, 1000.0, 10000.0]) == "not judged"  # the others differ too much


def test_a_nominal_rate_refuses_beside_the_fleet_and_judges_without_one() -> None:
    assert verdict(98.0, [100.0] * 5, nominal=99.0) == "unfit"
    assert verdict(98.0, [], nominal=99.0) == "unfit"
    assert verdict(98.0, [], nominal=90.0) == "fit"


def test_a_hosts_own_earlier_results_are_not_what_it_is_compared_with() -> None:
    slow_for_long = Fleet([*(result("me", 50.0) for _ in range(20)), *(result(f"h{index}", 100.0) for index in range(5))])

    assert judge(Measurement(name=NAME, comparable_with="EPYC", median=50.0), "me", slow_for_long, None).verdict == "unfit"


def test_of_healthy_results_with_noise_none_of_two_thousand_is_refused_and_a_third_less_is() -> None:
    draw = random.Random(5)
    noisy = [[100.0 * draw.lognormvariate(0.0, 0.04) for _ in range(5)] for _ in range(20)]
    fleet = Fleet(result(f"h{host}", rate) for host, rates in enumerate(noisy) for rate in rates)

    def of(rate: float) -> str:
        return judge(Measurement(name=NAME, comparable_with="EPYC", median=rate), "me", fleet, None).verdict

    assert {of(100.0 * draw.lognormvariate(0.0, 0.04)) for _ in range(2000)} == {"fit"}
    assert of(66.0) == "unfit"


def test_hosts_that_are_all_slow_at_one_time_are_not_judged_and_the_slowest_of_them_is_refused() -> None:
    history = [result(f"h{index}", 100.0) for index in range(6)]

    def verdicts(*rates: float, nominal: float = 1.0) -> str:
        found = judge_nodes([result(f"n{index}", rate) for index, rate in enumerate(rates)], history, {NAME: nominal})
        return " ".join({"fit": "+", "unfit": "-", "not judged": "?"}[one.verdict] for one in found)

    assert verdicts(50.0, 52.0, 51.0, 49.0) == "? ? ? ?"
    assert verdicts(50.0, 52.0, 51.0, 20.0) == "? ? ? -"
    assert verdicts(100.0, 99.0, 101.0, 50.0) == "+ + + -"
    assert verdicts(100.0, 99.0, 50.0, 50.0) == "+ + - -"
    assert verdicts(50.0, 50.0) == "- -"  # one other host is not enough to say so
    assert verdicts(50.0, 52.0, 51.0, nominal=60.0) == "- - -"


def test_a_clock_that_certainly_differs_from_most_is_unfit_and_of_two_nobody_can_say_which() -> None:
    def wrong(*offsets: tuple[float, float]) -> str:
        return " ".join(
            f"{one.host}:{one.verdict}:{one.why}" for one in clocks.judge({"abcd"[i]: one for i, one in enumerate(offsets)})
        )

    assert wrong((0, 0), (-0.3, 0.4), (-0.2, 0.2)) == ""
    assert wrong((0, 0), (-0.1, 0.1), (6.9, 7.1)) == "c:unfit:at least 6.9 s ahead of the other hosts"
    assert wrong((0, 0), (4.9, 5.1), (4.9, 5.1)) == "a:unfit:at least 5.0 s behind the other hosts"
    assert wrong((0, 0), (-0.1, 0.1), (-3.0, 3.0)) == ""  # it took long to answer
    assert wrong((0, 0), (4.9, 5.1)).count("not judged") == 2


def test_what_broke_is_unfit_and_what_could_not_be_tried_is_not_judged() -> None:
    def of(*, broken: bool) -> str:
        return judge(Measurement(name=NAME, error="no space", broken=broken), "me", Fleet(), None).verdict

    assert (of(broken=True), of(broken=False)) == ("unfit", "not judged")


def exchanges(hosts: str, slow: set[str] = frozenset(), failed: set[str] = frozenset()) -> list[Exchange]:  # type: ignore[assignment]
    """Return the exchanges of hosts of one letter; `slow` and `failed` have directed pairs such as `ab`."""
    return [
        Exchange(sender=one, receiver=other, error="timed out")
        if one + other in failed
        else Exchange(sender=one, receiver=other, bytes_per_second=1e8 if one + other in slow else 1e9, round_trips_per_second=1e4)
        for one, other in itertools.permutations(hosts, 2)
    ]


@pytest.mark.parametrize(
    ("hosts", "slow", "failed", "named", "links"),
    [
        ("abcd", set(), set(), (), []),
        ("abcd", {"ab", "ac", "ad"}, set(), ("a",), []),  # sends slowly
        ("abcd", {"bd", "cd", "ad"}, set(), ("d",), []),  # receives slowly
        ("abcd", {"bc"}, set(), (), ["bc"]),
        ("abcd", set(), {"bc", "cb"}, (), ["bc"]),
        ("abcdef", {"ab", "ac", "ad", "ae", "af"}, {"de", "ed"}, ("a",), ["de"]),
        ("abcdef", {"ba", "ca", "da", "ea", "fa", "fb", "fc", "fd", "fe"}, set(), ("a", "f"), []),
        ("abc", set(), {"ab", "ac"}, ("a",), []),
        ("ab", set(), {"ab"}, (), ["ab"]),  # of two nobody can say which
    ],
)
def test_a_host_that_is_bad_with_most_partners_is_named_else_the_link(
    hosts: str, slow: set[str], failed: set[str], named: tuple[str, ...], links: list[str]
) -> None:
    found = blame(marked(exchanges(hosts, slow, failed), {}))

    assert (found.hosts, ["".join(sorted(link)) for link in found.links], found.shared) == (named, links, False)


def test_where_all_pairs_are_bad_it_is_what_they_share_and_no_host_is_named() -> None:
    slow = marked(exchanges("abcd"), {"exchange_bytes_per_second": 2e9})

    assert blame(slow).shared
    found = report([result(host, 1.0) for host in "abcd"], [], {NAME: 0.5, "exchange_bytes_per_second": 2e9}, exchanges=slow)
    assert found.verdict == "unfit"
    assert {one.why.partition(": ")[2] for one in found.hosts} == {
        "bad between most hosts: what they share, such as a switch or the network's settings"
    }


def test_pairs_that_are_all_slower_than_usual_are_not_judged_and_one_that_is_slower_still_is_bad() -> None:
    usual = [msgspec.structs.replace(one, bytes_per_second=3e9) for one in exchanges("efghij")]
    history = [NodeResult(host=host, time=0.0, measurements=measurements(usual, host, "gloo")) for host in "efghij"]
    now = exchanges("abcd")

    def named(seen: list[Exchange]) -> tuple[list[str], list[str]]:
        found = report([result(host, 1.0) for host in "abcd"], history, {NAME: 0.5}, exchanges=seen, exchanges_like="gloo")
        return [one.verdict for one in found.hosts], [f"{link.one}{link.other}" for link in found.links]

    assert named(now) == (["not judged"] * 4, [])
    assert named(exchanges("abcd", {"bc"})) == (["not judged"] * 4, ["bc"])
    assert named([msgspec.structs.replace(one, bytes_per_second=3e9) for one in now]) == (["fit"] * 4, [])


def test_a_host_that_is_unfit_by_its_own_tests_explains_its_bad_pairs() -> None:
    results = [result(host, 0.1 if host == "a" else 1.0) for host in "abcd"]
    limits = {NAME: 0.5, "exchange_bytes_per_second": 1e6, "exchange_round_trips_per_second": 1.0}

    found = report(results, [], limits, exchanges=exchanges("abcd", {"ac"}))

    assert ({one.host: one.verdict for one in found.hosts}, found.links) == ({"a": "unfit", "b": "fit", "c": "fit", "d": "fit"}, [])


def test_a_report_is_fit_only_if_every_rate_of_every_host_is() -> None:
    nominal = {NAME: 0.5}

    assert report([result("a", 1.0)], [], nominal).verdict == "fit"
    assert report([result("a", 1.0), result("b", 1.0, like="another")], [], {}).verdict == "not judged"
    assert report([], [], nominal).verdict == "not judged"
    assert report([result("a", 1.0)], [], nominal, ring_error="no answer").verdict == "not judged"
    assert report([result("a", 1.0)], [], nominal, absent={"b": "did not come within 60 s"}).verdict == "unfit"
