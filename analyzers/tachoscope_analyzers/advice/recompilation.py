"""What to do where code is compiled again for each size of an input: let the size vary, or pad it to a few lengths.

With k lengths L1 < ... < Lk each size is padded to the next of them. Those are chosen that add least: over all ways to divide the
sorted sizes into k runs, the least sum of (length - size), by dynamic programming. Lengths are multiples of what tensor cores want.
How frequent a size is, guards do not tell: each counts once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tachoscope_analyzers.advice.number_text import percent
from tachoscope_analyzers.data.thresholds import threshold

_MISMATCH = re.compile(
    r"tensor '(?P<tensor>.+?)' size mismatch at index (?P<dimension>\d+)\. expected (?P<old>\d+), actual (?P<new>\d+)"
)
_MOST_SIZES = 256


@dataclass(frozen=True, slots=True)
class VaryingSize:
    """A dimension of a tensor that guards failed for; `sizes`: those that were seen, ascending. `failures`: how often."""

    tensor: str
    dimension: int
    sizes: tuple[int, ...]
    failures: int


@dataclass(frozen=True, slots=True)
class PaddedLengths:
    """Lengths to pad to, and the ratio of numbers that this adds where each size is as frequent as the others."""

    lengths: tuple[int, ...]
    padding_ratio: float


def varying_sizes(reasons: Iterable[str]) -> list[VaryingSize]:
    """Return the dimensions that guards failed for, those with most failures first.

    Args:
        reasons: guards that failed, in torch's words.
    """
    sizes: dict[tuple[str, int], set[int]] = defaultdict(set)
    failures: dict[tuple[str, int], int] = defaultdict(int)
    for reason in reasons:
        if (found := _MISMATCH.search(reason)) is not None:
            key = found["tensor"], int(found["dimension"])
            sizes[key] |= {int(found["old"]), int(found["new"])}
            failures[key] += 1
    made = [VaryingSize(*key, tuple(sorted(seen)), failures[key]) for key, seen in sizes.items()]
    return sorted(made, key=lambda one: -one.failures)


def padded_lengths(sizes: Sequence[int]) -> PaddedLengths:
    """Return the lengths to pad ascending sizes to, as few as the threshold `padded_lengths` says."""
    multiple, most = int(threshold("padded_length_multiple")), int(threshold("padded_lengths"))
    known = [size for size in sizes if size > 0][-_MOST_SIZES:]
    tops = [-(-size // multiple) * multiple for size in known]
    if not known:
        return PaddedLengths((), 0.0)
    # least[n]: padding of the first n sizes, and where their last run begins, with one more length in each round.
    least = [(0, 0)] + [(sum(tops[end - 1] - size for size in known[:end]), 0) for end in range(1, len(known) + 1)]
    runs = [least]
    for _ in range(1, min(most, len(known))):
        least = [(0, 0)] + [min(_with_last_run(runs[-1], known, tops, end)) for end in range(1, len(known) + 1)]
        runs.append(least)
    end, lengths = len(known), set()
    for table in reversed(runs):
        if end:
            lengths.add(tops[end - 1])
            end = table[end][1]
    return PaddedLengths(tuple(sorted(lengths)), runs[-1][len(known)][0] / sum(known))


def _with_last_run(
    before: Sequence[tuple[int, int]], sizes: Sequence[int], tops: Sequence[int], end: int
) -> Iterable[tuple[int, int]]:
    """Yield the padding of the first `end` sizes for each begin of their last run, with that begin."""
    added = 0
    for begin in range(end - 1, -1, -1):
        added += tops[end - 1] - sizes[begin]
        yield before[begin][0] + added, begin


def advice(varying: VaryingSize | None, limit: str, *, forgotten: bool = False) -> str:
    """Return what to do; empty where nothing below is known.

    Args:
        limit: that was hit, with its value, such as `recompile_limit (8)`; empty: none. forgotten: torch was reset.
    """
    parts = []
    if forgotten:
        parts.append("call torch._dynamo.reset (torch.compiler.reset) no more than once, before the training")
    if varying is not None:
        mark = f"torch._dynamo.mark_dynamic({varying.tensor}, {varying.dimension})"
        parts.append(f"let the size vary: {mark} before the call, with torch.compile(dynamic=None), or dynamic=True")
        padded = padded_lengths(varying.sizes)
        if 0 < len(padded.lengths) < len(varying.sizes):
            lengths = ", ".join(map(str, padded.lengths))
            words = f"{len(padded.lengths)} lengths in place of {len(varying.sizes)}"
            parts.append(f"or pad to {lengths}: {words}, and {percent(padded.padding_ratio)} more numbers if all are as frequent")
    if limit:
        name = limit.partition(" ")[0]
        then = "once the inputs vary no more than it allows" if varying is not None else "for all kinds of input"
        parts.append(f"{limit} was hit, and torch runs the code uncompiled since: raise torch._dynamo.config.{name} {then}")
    return "; ".join(parts)
