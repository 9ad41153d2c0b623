"""Looks at all jobs of a store with every analyzer, or at pages of the explorer, in this process. For `test_attack`.

Prints how many jobs had a report, or what the explorer shows of one job.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from test_odd_records import shown

from tachoscope_analyzers.job.report import analyze
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records import load
from tachoscope_analyzers.serving.report.from_service import analyze_service
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage.store import Store


def reports(store: Store) -> int:
    """Judge every job in every way; return how many reports came of it. What an analyzer refuses, it refuses in words."""
    count = 0
    for name in store.jobs():
        try:
            job = load.from_store(store, name)
        except TachoscopeError:
            continue
        for analyzer in (analyze, lambda job: analyze_life(job, now=time.time()), analyze_service):
            try:
                shown(analyzer(job))
                count += 1
            except TachoscopeError:
                continue
            except Exception as error:
                raise AssertionError(f"job {name}") from error
    return count


def show_pages(place: Path, *, job: str) -> None:
    """Open pages of the explorer and print their words."""
    from exploring import open_page, words  # brings Streamlit, whose memory is not the analyzers'

    for page, more in (("jobs", {}), ("job", {"job": job}), ("job", {"job": "mutated1"})):
        opened = open_page(page, place, **more)
        assert not opened.exception, [one.value for one in opened.exception]
        sys.stdout.write(f"--- {page} {more}\n{words(opened)}\n")


if __name__ == "__main__":
    what, place = sys.argv[1], Path(sys.argv[2])
    if what == "reports":
        sys.stdout.write(f"{reports(Store(str(place)))} reports\n")
    else:
        show_pages(place, job=sys.argv[3])
