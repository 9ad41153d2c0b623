"""The curve that never falls and is nearest to what was counted: pool adjacent violators, with a prior where little was counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

ANCHORS = tuple(number / 20 for number in range(21))
_ANCHOR_WEIGHT = 1e-6
"""Where nothing was counted the prior is kept, as far as the curve can rise with it; where something was, it gives way."""


def pool_adjacent_violators(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the values that never fall and have the least weighted squared distance from those given (Ayer et al. 1955,
    https://doi.org/10.1214/aoms/1177728423).

    Raises:
        ValueError: there are more weights than values or fewer, or one is not positive.
    """
    if len(values) != len(weights) or any(weight <= 0 for weight in weights):
        raise ValueError("each value needs a positive weight")
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of values
    for value, weight in zip(values, weights, strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, heavy, many), (other, more, further) = blocks[-2:]
            blocks[-2:] = [((mean * heavy + other * more) / (heavy + more), heavy + more, many + further)]
    return [mean for mean, _, many in blocks for _ in range(many)]


def fit(
    scores: Sequence[float], right: Sequence[bool], prior: Callable[[float], float], prior_cases: float
) -> list[tuple[float, float]]:
    """Return points of the curve from score to the probability of being right.

    Args:
        prior: what is believed without any case. prior_cases: with as many cases its weight is that of what was counted; they are
            spread over the scores as the cases are.
    """
    cases = sorted(zip(scores, right, strict=True))
    each = prior_cases / len(cases) if cases else 0.0
    counted = [(score, (hit + each * prior(score)) / (1 + each), 1 + each) for score, hit in cases]
    told = _same_score(counted)
    anchors = [(score, prior(score), _ANCHOR_WEIGHT) for score in ANCHORS if score not in {one for one, *_ in told}]
    points = sorted([*told, *anchors])
    fitted = pool_adjacent_violators([value for _, value, _ in points], [weight for *_, weight in points])
    return _corners([(score, value) for (score, *_), value in zip(points, fitted, strict=True)])


def _same_score(counted: Sequence[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    """Return one point for each score: its mean and weight. Cases of the same score have the same probability."""
    by_score: dict[float, tuple[float, float]] = {}
    for score, value, weight in counted:
        total, heavy = by_score.get(score, (0.0, 0.0))
        by_score[score] = (total + value * weight, heavy + weight)
    return [(score, total / heavy, heavy) for score, (total, heavy) in by_score.items()]


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points without those that lie on the line between their neighbours."""
    kept: list[tuple[float, float]] = []
    for score, value in points:
        while len(kept) > 1 and abs(_between(kept[-2], (score, value), kept[-1][0]) - kept[-1][1]) < 1e-9:
            kept.pop()
        kept.append((score, value))
    return kept


def _between(left: tuple[float, float], right: tuple[float, float], score: float) -> float:
    return left[1] + (right[1] - left[1]) * (score - left[0]) / (right[0] - left[0])
