"""Counters that are born with a value are shown at 0 first."""

from __future__ import annotations

from tachoscope_core.names import BY_NAME
from tachoscope_node.families import Family
from tachoscope_node.newborn import AT_ZERO_SECONDS, Newborn

SHARDS, STEPS = BY_NAME["tachoscope_shard_failures_total"], BY_NAME["tachoscope_steps_total"]


def shards(**counts: float) -> list[Family]:
    return [Family(SHARDS, [(("job", shard), count) for shard, count in counts.items()]), Family(STEPS, [(("job", "0"), 5.0)])]


def seen(newborn: Newborn, families: list[Family], now: float) -> dict[str, float]:
    first, second = newborn.shown(families, now)
    assert second is families[1], "others are shown as they are"
    return {labels[1]: value for labels, value in first.points}  # type: ignore[misc]


def test_a_series_is_at_zero_for_a_minute_and_then_at_its_value() -> None:
    newborn = Newborn()
    newborn.shown(shards(), 0.0)

    assert seen(newborn, shards(a=3.0), 10.0) == {"a": 0.0}
    assert seen(newborn, shards(a=4.0), 10.0 + AT_ZERO_SECONDS - 1.0) == {"a": 0.0}
    assert seen(newborn, shards(a=4.0, b=1.0), 10.0 + AT_ZERO_SECONDS) == {"a": 4.0, "b": 0.0}


def test_what_a_restarted_agent_finds_is_shown_at_once_for_a_counter_must_not_go_back() -> None:
    assert seen(Newborn(), shards(a=3.0), 10.0) == {"a": 3.0}


def test_a_series_that_went_and_comes_back_is_born_again() -> None:
    newborn = Newborn()
    newborn.shown(shards(a=3.0), 0.0)
    newborn.shown(shards(), 1000.0)

    assert seen(newborn, shards(a=1.0), 2000.0) == {"a": 0.0}
