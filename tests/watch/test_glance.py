"""Between two cycles a watch looks for hangs alone: what began to hang or hangs no more is told, the rest stays as it was."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

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
