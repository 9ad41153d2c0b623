"""Which recording, rank and window the page Trace shows: by its address, and by what is chosen on it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from tachoscope_analyzers.trace.ranks.rank_sampling import outstanding, spread
from tachoscope_analyzers.trace.reading.trace_files import stem
from tachoscope_explorer.page.context import Context, look_at
from tachoscope_explorer.page.view import View
from tachoscope_explorer.page.widgets import escape_markdown, nothing
from tachoscope_explorer.screens.traces import breakdown as trace_work
from tachoscope_explorer.screens.traces.breakdown import FileExtent, Ranks, ranks
from tachoscope_explorer.sources import traces as trace_sources
from tachoscope_explorer.sources.traces import Recording, recordings

MOST_RANKS = 64
ALL = "all"
_WORDS = {trace_sources.GIVEN: "traces named on the command line", trace_sources.UPLOADED: "uploaded traces"}
_HOW = (
    "Put some into the store with `tachoscope store add-traces JOB PATH`, name files with `tachoscope explore traces/`, "
    "or open one on the page *Open a trace*."
)


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """A stretch of a recording, ns: Unix time, or the traces' own clock where they do not tell it. `origin`: its first event."""

    start: int
    end: int
    origin: int

    def milliseconds(self) -> tuple[float, float]:
        """Return the window on the figures' axis."""
        return (self.start - self.origin) / 1e6, (self.end - self.origin) / 1e6


def recording(context: Context) -> Recording | None:
    """Let somebody choose a recording; None, said with its reason, where there is none."""
    settings, view = context.settings, context.view
    left, right = st.columns(2)
    jobs = trace_sources.jobs(settings)
    wanted = view.job or next((job for job in jobs if job in _WORDS), "")
    if wanted and wanted not in jobs:
        jobs = [wanted, *jobs]  # what a part of the explorer beside the store offers, or what is gone: `recordings` knows
    if not jobs:
        nothing(f"The store contains no job, and no trace is given. {_HOW}")
        return None
    job = left.selectbox(
        "Job", jobs, index=jobs.index(wanted) if wanted else None, key=f"trace-job-{wanted}", format_func=_job_name
    )
    if job is None:
        nothing("Choose a job.")
        return None
    found = recordings(settings, job)
    if not found:
        nothing(f"No trace of {escape_markdown(_job_name(job))} was found. {_HOW}")
        return None
    names = [one.name for one in found]
    if view.trace and view.trace not in names and job == wanted:
        st.warning(f"The job has no recording {escape_markdown(view.trace)}; the newest is shown.")
    place = names.index(view.trace) if view.trace in names else 0
    name = right.selectbox("Recording", names, index=place, key=f"trace-name-{job}-{place}", format_func=_of(found))
    if job != wanted or (view.trace and name != view.trace):
        look_at(View(job=job, trace=name if name != names[0] else "", part=view.part))
        st.rerun()
    return found[names.index(name)]


def _job_name(job: str) -> str:
    return _WORDS.get(job, job)


def _of(found: list[Recording]) -> Callable[[str], str]:
    count = {one.name: len(one.files) for one in found}
    return lambda name: f"{name} ({count[name]} file{'' if count[name] == 1 else 's'})"


def files_of(recording: Recording, rank: int | None) -> tuple[list[Path], str]:
    """Return which files of a recording are looked at, and what is said of those that are not.

    Of very many files an even sample is read, and the one whose name ends with the wanted rank.
    """
    files = list(recording.files)
    if len(files) <= MOST_RANKS:
        return files, ""
    wanted = [path for path in files if rank is not None and _number_of(path) == rank][:1]
    sample = spread(range(len(files)), MOST_RANKS - len(wanted))
    chosen = sorted({*(files[place] for place in sample), *wanted}, key=files.index)
    return chosen, f"{len(chosen)} of {len(files)} ranks are shown, evenly spaced."


def standing_out(found: Ranks, rank: int | None) -> tuple[Ranks, str]:
    """Return the ranks that compute for the smallest and the largest part of their time, some others, and that in words."""
    bar, computing = st.empty(), dict[int, float]()
    for number, (each, one) in enumerate(found.extents.items(), start=1):
        rows = trace_work.file_rows(one, one.start_ns - one.base_ns, one.end_ns - one.base_ns, 1)
        computing[each] = min((row.computing for row in rows), default=float("nan"))
        bar.progress(number / len(found.extents), text="Looking for the ranks that stand out …")
    bar.empty()
    told = {each: share for each, share in computing.items() if not math.isnan(share)}
    shown, extreme = outstanding(told or dict.fromkeys(computing, 0.0), MOST_RANKS)
    kept = {*shown, rank} if rank in computing else {*shown}
    text = f"{len(kept)} of {len(computing)} ranks are shown: the {len(extreme)} that compute least or most, and some between."
    return replace(found, extents={each: one for each, one in found.extents.items() if each in kept}), text if extreme else ""


def _number_of(path: Path) -> int | None:
    """Return the last number in a file's name before its endings, which is the rank wherever anything is."""
    numbers = re.findall(r"\d{1,7}(?!\d)", stem(path))
    return int(numbers[-1]) if numbers else None


def read_ranks(files: list[Path]) -> Ranks:
    """Read what files there are, with a bar where that takes long; say which cannot be read."""
    bar = st.empty()

    def progress(done: float) -> None:
        if len(files) > 1:
            bar.progress(done, text=f"Reading {len(files)} traces …")

    with st.spinner("Reading the trace …"):
        found = ranks(files, progress)
    bar.empty()
    if found.failed:
        reasons = "\n".join(f"- {escape_markdown(str(error))}" for error in list(found.failed.values())[:5])
        more = f"\n- and {len(found.failed) - 5} more" if len(found.failed) > 5 else ""
        st.error(f"{len(found.failed)} of {len(files)} files cannot be read:\n{reasons}{more}", icon=":material/error:")
    if found.doubtful:
        st.caption(escape_markdown(found.doubtful))
    return found


def rank(context: Context, found: Ranks) -> int | None:
    """Let somebody choose a rank; None stands for all of them."""
    view, known = context.view, list(found.extents)
    if len(known) == 1 and view.rank in (None, known[0]):
        return known[0]
    if view.rank is not None and view.rank not in known:
        st.warning(f"No trace of rank {view.rank} was found, only of {_several(known)}.")
    options: list[int | str] = [ALL, *known]
    if len(known) == 1:
        return known[0]
    chosen = st.selectbox(
        "Rank",
        options,
        index=options.index(view.rank) if view.rank in known else 0,
        format_func=lambda one: f"all {len(known)} ranks" if one == ALL else f"rank {one}",
        key=f"trace-rank-{view.rank}",
    )
    picked = None if chosen == ALL else int(chosen)
    if picked != (view.rank if view.rank in known else None):
        look_at(replace(view, rank=picked))
        st.rerun()
    return picked


def _several(known: list[int]) -> str:
    text = ", ".join(map(str, known[:12]))
    return f"rank {text}" if len(known) == 1 else f"{text}{' …' if len(known) > 12 else ''}"


def window(view: View, shown: list[FileExtent]) -> tuple[TraceWindow, bool, bool]:
    """Return the window that an address asks for, whether that is a part of the recording, and whether the ranks share their time.

    Ranks whose clocks have no moment in common are each taken to begin at the same one.
    """
    together = max(one.start_ns for one in shown) <= min(one.end_ns for one in shown)
    origin = min(one.start_ns for one in shown)
    last = max(one.end_ns for one in shown) if together else origin + max(one.end_ns - one.start_ns for one in shown)
    whole = TraceWindow(origin, max(last, origin + 1), origin)
    start = whole.start if view.start is None else max(_nanoseconds(view.start), whole.start)
    end = whole.end if view.end is None else min(_nanoseconds(view.end), whole.end)
    if start >= end:
        st.warning("The window in the address lies outside this recording; all of it is shown.")
        return whole, False, together
    return TraceWindow(start, end, origin), (start, end) != (whole.start, whole.end), together


def _nanoseconds(seconds: float) -> int:
    """Return a moment of an address, which tells microseconds; digits beyond them are those of a float."""
    return round(seconds * 1e6) * 1000


def shift(one: FileExtent, origin: int, *, together: bool) -> int:
    """Return what to take from a moment of a recording for the same moment on the trace's own clock, ns."""
    return one.base_ns if together else origin - (one.start_ns - one.base_ns)
