"""Which pairs and groups of hosts exchange: properties of the plan, and whom it finds, with planted truth."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Sequence

from tachoscope_analyzers.preflight.pairs import Blame, blame, marked
from tachoscope_core.report.preflight import Exchange
from tachoscope_preflight.together.rounds import Pair, disjoint, rounds_of, search, tournament, witnessed
from trying import each

SIZES = [2, 3, 4, 5, 7, 8, 16, 41, 200]


@each("count", SIZES)
def test_in_rounds_of_disjoint_pairs_no_two_meet_twice_and_few_rounds_are_needed_for_many_hosts(count: int) -> None:
    for quick in (False, True):
        rounds = tournament(range(count), quick=quick)
        for pairs in rounds:
            assert len({rank for pair in pairs for rank in pair}) == 2 * len(pairs)
        met = [frozenset(pair) for pairs in rounds for pair in pairs]
        partners = [sum(rank in pair for pair in met) for rank in range(count)]
        assert len(set(met)) == len(met)
        assert min(partners) >= rounds_of(count, quick=quick)
        assert len(rounds) <= (4 if quick else 3 + count.bit_length())
    assert [pair for pairs in disjoint([(0, 1), (0, 2), (1, 2), (3, 4)]) for pair in pairs] == [(0, 1), (3, 4), (0, 2), (1, 2)]


def found(count: int, slow: Callable[[int, int], bool], *, quick: bool) -> tuple[Blame, int]:
    """Return whom the exchanges blame, of which `slow` says the truth, and in how many rounds."""
    rates: dict[Pair, float] = {}
    rounds, number = tournament(range(count), quick=quick), 0
    while rounds:
        number += len(rounds)
        for one, other in (pair for pairs in rounds for pair in pairs):
            rates |= {pair: 1e8 if slow(*pair) else 1e9 for pair in ((one, other), (other, one))}
        seen = marked(
            [
                Exchange(sender=f"{a:03}", receiver=f"{b:03}", bytes_per_second=rate, round_trips_per_second=1e4)
                for (a, b), rate in rates.items()
            ],
            {},
        )
        bad = {(min(pair), max(pair)) for pair, one in zip(rates, seen, strict=True) if one.bad}
        more = witnessed(range(count), {(min(pair), max(pair)) for pair in rates}, bad)
        rounds = [more] if more else []
    return blame(seen), number


@each("count", [4, 5, 7, 8, 16, 41, 100])
def test_planted_hosts_and_links_are_named_and_nobody_else_in_a_few_rounds(count: int) -> None:
    draw = random.Random(count)
    for quick, _ in itertools.product((False, True), range(3)):
        hosts = draw.sample(range(count), min(3, (count - 1) // 3))
        link = draw.choice([pair for pairs in tournament(range(count), quick=quick) for pair in pairs])
        sends, _ = found(count, lambda a, b, bad=hosts[0]: a == bad, quick=quick)  # type: ignore[misc]
        several, rounds = found(count, lambda a, b, bad={*hosts}: bool({a, b} & bad), quick=quick)  # type: ignore[misc]
        of_link, _ = found(count, lambda a, b, bad={*link}: {a, b} == bad, quick=quick)  # type: ignore[misc]
        nothing, _ = found(count, lambda a, b: False, quick=quick)
        alike, _ = found(count, lambda a, b: True, quick=quick)

        assert (sends.hosts, sends.links) == ((f"{hosts[0]:03}",), ())
        assert (several.hosts, several.links) == (tuple(sorted(f"{host:03}" for host in hosts)), ())
        assert (of_link.hosts, of_link.links) == ((), (frozenset(f"{rank:03}" for rank in link),))
        assert nothing == alike == Blame((), ())  # without a limit nobody can say that all are slow
        assert rounds <= len(tournament(range(count), quick=quick)) + 3


def searched(count: int, bad: Collection[Pair]) -> tuple[set[Pair], int]:
    """Return which pairs a search finds where a group fails that holds a bad pair, and in how many rounds."""
    searching, rounds = search(range(count)), 0
    failed: Sequence[bool] | None = None
    try:
        while True:
            groups = searching.send(failed)  # type: ignore[arg-type]
            assert len({rank for group in groups for rank in group}) == sum(map(len, groups))
            failed, rounds = [any({*pair} <= {*group} for pair in bad) for group in groups], rounds + 1
    except StopIteration as done:
        return {(min(pair), max(pair)) for pair in done.value}, rounds


@each("count", [*SIZES, 1000])
def test_the_search_of_a_failed_ring_finds_a_bad_link_in_logarithmically_many_rounds(count: int) -> None:
    draw = random.Random(count)
    for _ in range(5):
        one, other = sorted(draw.sample(range(count), 2))
        pairs, rounds = searched(count, {(one, other)})
        assert pairs == {(one, other)}
        assert rounds <= 2 * (count - 1).bit_length()
        bad_host, _ = searched(count, {(one, rank) for rank in range(count) if rank != one})
        assert bad_host
        assert all(one in pair for pair in bad_host)
    assert searched(count, {})[0] == (set() if count > 2 else {(0, 1)})
