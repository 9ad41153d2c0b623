"""`tachoscope store failures`: which hosts, jobs and data shards fail, over the jobs of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.progress import track
from rich.table import Table
from rich.text import Text

from tachoscope_analyzers.life import suspects
from tachoscope_analyzers.life.report import analyze_life
from tachoscope_analyzers.records.life_records import LifeRecords, with_life
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.report.job_life import Life
from tachoscope_core.storage.store import Store
from tachoscope_show.life import words as life_words


def of_store(store: Store, jobs: Sequence[str]) -> suspects.Failures:
    """Return the failures of the jobs; one of which nothing can be read or judged is left out.

    Raises:
        TachoscopeError: none of the jobs can be judged.
    """
    lives: dict[str, Life] = {}
    reads: dict[str, Counter[str]] = {}
    why = "it holds no job"
    err = Console(stderr=True)
    for job in track(jobs, "reading jobs", console=err, transient=True, disable=not err.is_terminal):
        try:
            found, life = with_life(store, job, _judged)
        except TachoscopeError as error:
            why = str(error)
            continue
        if life is not None:
            lives[job] = life
            reads[job] = Counter(row.shard for row in found.shard_reads) + Counter(row.shard for row in found.shard_failures)
    if not lives:
        raise TachoscopeError(f"failures cannot be counted in store {store.url}: {why}", fix="tachoscope store ls")
    return suspects.over_jobs(lives, shard_reads=reads)


def _judged(read: LifeRecords) -> tuple[JobRecords, Life | None]:
    return read.job, analyze_life(read).life


def rendered(found: suspects.Failures) -> RenderableType:
    """Return the counts, and who fails more than the others."""
    if not (found.by_job or found.by_shard):
        return Text("no failure")
    parts: list[RenderableType] = []
    for title, counts in (("host", found.by_host), ("job", found.by_job), ("data shard", found.by_shard)):
        if counts:
            table = Table(title, "failures", box=None, padding=(0, 2, 0, 0))
            for name, count in counts.items():
                table.add_row(name, str(count))
            parts += [table, Text()]
    lines = [life_words.suspect(one) for one in found.suspects]
    return Group(
        *parts,
        Text("failed more than others?", style="bold"),
        *(Text(f"  {line}") for line in lines or ["cannot be determined"]),
    )
