"""Between two cycles a watch looks for hangs alone: what began to hang or hangs no more is told, the rest stays as it was."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tachoscope_watch import service
from tachoscope_watch.cycle import Failed
from tachoscope_watch.service import Settings, Watch
from tachoscope_watch.view import JobView
from test_profiles import Told
from watched_jobs import slow_input, standing, well


def views_of(watch: Watch) -> dict[str, JobView]:
    return {view.job: view for view in watch.round.views}


def as_if(watch: Watch, **states: str) -> None:
    """Have the watch remember other states of jobs than it found."""
    changed = [msgspec.structs.replace(view, state=states.get(view.job, view.state)) for view in watch.round.views]
    watch.round = watch.round.__class__(watch.round.number, tuple(changed), ended=watch.round.ended, seconds=watch.round.seconds)


def test_what_changed_is_told_and_nothing_else_is_judged_again(tmp_path: Path) -> None:
    standing(tmp_path, "stuck", phases={0: "backward", 1: "forward", 2: "backward", 3: "backward"})
    well(tmp_path, "again", phases=slow_input(2))
    well(tmp_path, "calm")
    watch = Watch(Settings(str(tmp_path), port=0), Told())  # type: ignore[arg-type]
    try:
        with ThreadPoolExecutor(1) as pool:
            watch.run_cycle(pool)
            as_if(watch, stuck="running", again="hung")
            before, number = views_of(watch), watch.round.number
            time.sleep(0.01)

            watch.check_hangs(pool)

            after = views_of(watch)
            assert {job: view.state for job, view in after.items()} == {"stuck": "hung", "again": "running", "calm": "running"}
            assert after["stuck"].report is not None and after["stuck"].report.findings[0].ranks == [1]
            assert after["calm"] is before["calm"]
            assert watch.round.number == number + 1, "metrics are made again"
            (ended,) = (family.points for family in watch.round.families if "last_cycle" in family.metric.name)
            assert [value for _, value in ended] == [watch.round.ended], "a glance is not a cycle"

            told = watch.round
            watch.check_hangs(pool)
            assert watch.round is told, "nothing changed"
    finally:
        watch.web.stop()


def test_what_nodes_say_is_told_while_a_long_cycle_judges_and_never_older_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_GLANCE_SECONDS", 0.0)
    job = well(tmp_path, "job")
    goes_on = standing(tmp_path, "goes-on", phases={0: "backward", 1: "forward", 2: "backward", 3: "backward"})
    watch = Watch(Settings(str(tmp_path), port=0), Told())  # type: ignore[arg-type]
    judge, during = watch._looks.cycle, list[dict[str, JobView]]()

    def judge_long(*words: Any) -> Iterator[JobView | Failed]:
        for one in (job, goes_on):
            one.now += 10
            one.steps(one.now - 10, one.now)
            one.ship()
        standing(tmp_path, "new", phases={0: "backward", 1: "forward", 2: "backward", 3: "backward"})
        yield from judge(*words)
        during.append(views_of(watch))

    try:
        with ThreadPoolExecutor(1) as pool:
            watch.run_cycle(pool)
            first = views_of(watch)
            monkeypatch.setattr(watch._looks, "cycle", judge_long)
            watch.run_cycle(pool)
    finally:
        watch.web.stop()
    assert {name: view.state for name, view in first.items()} == {"job": "running", "goes-on": "hung"}
    for views in (during[0], views_of(watch)):
        assert {name: view.state for name, view in views.items()} == {"job": "running", "goes-on": "running", "new": "hung"}
        assert views["job"].report is not None and views["goes-on"].hang is None
        assert sum(views["job"].state_seconds.values()) == pytest.approx(sum(first["job"].state_seconds.values()) + 40, abs=5)
        assert views["new"].hang is not None and views["new"].hang.ranks == [1]
