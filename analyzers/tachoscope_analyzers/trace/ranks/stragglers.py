"""Which rank the others wait for: how often, how long, and whether chance would do the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tachoscope_analyzers.data.thresholds import threshold

if TYPE_CHECKING:
    import pandas as pd

FEW_STEPS = 4
"""With fewer steps than that, single collectives are counted instead."""
MOST_BY_CHANCE_RATIO = 0.05
LEAST_OF_COLLECTIVES_RATIO = 0.5
_GROUP = ["group", "group_description", "group_number"]
COLUMNS = [
    *_GROUP,
    "rank",
    "ranks",
    "collectives",
    "late_collectives",
    "last_collectives",
    "shortest_collectives",
    "steps",
    "last_steps",
    "delay_ns",
    "waited_ns",
    "waited_at_first_ns",
    "waited_per_step_ns",
    "waited_of_step_ratio",
    "coverage_ratio",
    "chance_ratio",
    "straggler",
]


def stragglers(collectives: pd.DataFrame, ranks_of: dict[int, int], step_mean_ns: float) -> pd.DataFrame:
    """Return one row for each process group and rank that anybody waited for, in each group the one that costs most first.

    Args:
        collectives: `lateness.collective_table` of all groups.
        ranks_of: how many ranks each group number has here.
        step_mean_ns: mean length of a step, NaN where there are none.

    Columns:
        group, group_description, group_number, rank, ranks.
        collectives: how many were compared; late_collectives: those in which somebody waited for longer than the clocks' error;
            last_collectives: those of them in which this rank came last; shortest_collectives: those of these in which its own
            collective was also the shortest, which tells the same without any clock.
        steps: that were compared, 1 where steps are not known; last_steps: in which this rank delayed the group most, and by a
            quarter of its mean at least.
        delay_ns: what would be gained if this rank came when the next to last does; waited_ns: mean wait of the others for it, of
            which waited_at_first_ns in the first collective of the recording, where a recording that began late looks the same;
            waited_per_step_ns; waited_of_step_ratio (NaN without steps). coverage_ratio: its part of the delays of all ranks.
        chance_ratio: at most so probable is it that some rank is last so often when all are equally likely to be.
        straggler: the others wait for it for at least 10 % of the step, it has 80 % of the delay and is late in 80 % of the steps
            (with fewer than `FEW_STEPS` in half of the late collectives), and chance would do that in less than 5 %.
    """
    import pandas as pd  # a third of a second, which a report on one rank does not need

    rows = []
    for key, table in collectives.groupby(_GROUP, sort=True):
        late = table[table["delay_ns"] > 0]
        facts = {
            **dict(zip(_GROUP, key, strict=True)),
            "ranks": ranks_of[int(table["group_number"].iloc[0])],
            "collectives": len(table),
            "late_collectives": len(late),
            "steps": table["step"].nunique(),
            "first": table["start_ns"].min(),
        }
        by_step = late.groupby(["step", "last_rank"])["added_delay_ns"].sum().unstack(fill_value=0)
        for rank, mine in late.groupby("last_rank"):
            own = by_step[rank]
            most = (own == by_step.max(axis=1)) & (own >= own.mean() / 4)
            rows.append(
                _row(facts | {"rank": rank, "last_steps": int(most.sum())}, mine, int(late["added_delay_ns"].sum()), step_mean_ns)
            )
    found = pd.DataFrame(rows, columns=COLUMNS).astype({"straggler": bool})  # without a row it would select columns
    return found.sort_values(["group_number", "waited_ns"], ascending=[True, False], kind="stable", ignore_index=True)


def _row(facts: dict[str, object], mine: pd.DataFrame, delay_of_all_ns: int, step_mean_ns: float) -> dict[str, object]:
    steps, ranks = int(str(facts["steps"])), int(str(facts["ranks"]))
    waited = int(mine["added_wait_ns"].sum())
    delay = int(mine["added_delay_ns"].sum())
    few = steps < FEW_STEPS
    hits, trials = (len(mine), int(str(facts["late_collectives"]))) if few else (int(str(facts["last_steps"])), steps)
    row = {
        **facts,
        "last_collectives": len(mine),
        "shortest_collectives": int((mine["shortest_rank"] == mine["last_rank"]).sum()),
        "delay_ns": delay,
        "waited_ns": waited,
        "waited_at_first_ns": int(mine.loc[mine["start_ns"] == facts["first"], "added_wait_ns"].sum()),
        "waited_per_step_ns": waited / steps,
        "waited_of_step_ratio": waited / steps / step_mean_ns,
        "coverage_ratio": delay / delay_of_all_ns,
        "chance_ratio": by_chance(trials, hits, ranks),
    }
    often = hits / trials >= (LEAST_OF_COLLECTIVES_RATIO if few else threshold("straggler_steps"))
    large = waited / steps >= threshold("warning_share") * step_mean_ns and delay / delay_of_all_ns >= threshold("culprit_coverage")
    return row | {"straggler": bool(often and large and by_chance(trials, hits, ranks) < MOST_BY_CHANCE_RATIO)}


def by_chance(trials: int, hits: int, ranks: int) -> float:
    """Return a bound on the probability that any of some ranks is last in `hits` of `trials`, if each is with the same probability.

    Chernoff's bound of the binomial tail, exp(-n KL(k/n, p)), https://doi.org/10.1214/aoms/1177729330, times the number of ranks.
    """
    observed, expected = hits / trials, 1 / ranks
    if observed <= expected:
        return 1.0
    divergence = observed * math.log(observed / expected)
    if observed < 1:
        divergence += (1 - observed) * math.log((1 - observed) / (1 - expected))
    return min(1.0, ranks * math.exp(-trials * divergence))
