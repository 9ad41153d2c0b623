"""A preflight of one host: measures, is judged, and measures again what is suspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tachoscope_analyzers.preflight.nodes import judge_nodes
from tachoscope_core.storage.preflights import Measurement, NodeResult
from tachoscope_preflight.node import Wanted, group_of, measure

MOST_ROUNDS = 3
"""A rate is unfit only if it is so in each of these rounds: what disturbs for seconds is not a fault of the node."""


def result(torch: Any, wanted: Wanted, history: Sequence[NodeResult], nominal: Mapping[str, float]) -> NodeResult:
    """Return what this host measured, in as many rounds as it took."""
    found = measure(torch, wanted)
    for _ in range(MOST_ROUNDS - 1):
        groups = suspects([found], history, nominal).get(found.host)
        if not groups:
            break
        found = better(found, measure(torch, wanted, groups))
    return found


def suspects(results: Sequence[NodeResult], history: Sequence[NodeResult], nominal: Mapping[str, float]) -> dict[str, list[str]]:
    """Return by host the groups of tests whose rates are too low by themselves; what failed is not repeated."""
    judged = judge_nodes(results, history, nominal, excuse=False)
    low = [one for one in judged if one.verdict == "unfit" and one.median is not None]
    return {host: sorted({group_of(one.name) for one in low if one.host == host}) for host in {one.host for one in low}}


def better(first: NodeResult, again: NodeResult) -> NodeResult:
    """Return a result with the better of two rounds of each rate."""
    second = {(one.name, one.device): one for one in again.measurements}
    return NodeResult(
        host=first.host,
        time=again.time,
        measurements=[_better(one, second.pop((one.name, one.device), None)) for one in first.measurements] + list(second.values()),
    )


def _better(one: Measurement, other: Measurement | None) -> Measurement:
    if other is None:
        return one
    found = one if one.median is not None and one.median >= (other.median or 0.0) and not other.broken else other
    return msgspec.structs.replace(found, rounds=one.rounds + 1)
