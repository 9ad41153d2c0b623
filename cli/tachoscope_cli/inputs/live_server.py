"""`tachoscope serving`: samples a live inference server for a while, and judges what was seen."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import TextColumn, TimeRemainingColumn

from tachoscope_alerts.measure.from_totals import of_service
from tachoscope_analyzers.records.load import JobRecords
from tachoscope_analyzers.serving.records.from_records import last_seconds
from tachoscope_analyzers.serving.records.traffic import Traffic, traffic
from tachoscope_analyzers.serving.report import from_service as service
from tachoscope_analyzers.serving.report.report import analyze_traffic
from tachoscope_analyzers.trace.analyses.device_peaks import peaks_of
from tachoscope_cli.common.options import print_notice
from tachoscope_cli.common.output import progress
from tachoscope_cli.inputs.serving_options import ServingOptions
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.net.http_client import HttpError
from tachoscope_core.report.report import Report, Source
from tachoscope_core.report.serving import ObjectiveResult
from tachoscope_core.servers import metrics_page
from tachoscope_core.servers import recording as serving_recording
from tachoscope_core.servers.snapshot import Snapshot, size_bytes
from tachoscope_service.common.http_get import get
from tachoscope_show.text.units import seconds_of

_LONG, _FAR_BACK = "60s", "1h"
_SHORTEST_SECONDS = 1.0
_MOST_LOOKS_SECONDS = 1.0
_LOOKS_OF_A_SHORT_LOOK = 40
_PATIENCE_SECONDS = 5.0
_MOST_BYTES = 8 << 20
"""Upper limit of a page. A server of vLLM 0.32 has 50 KB for each engine."""
_MOST_KEPT_BYTES = 80 << 20
"""Of all samples together, in memory: almost an hour and a half of one engine of vLLM at a sample a second."""
_HEAD_BYTES = 400
"""What a recording has in addition to the page of a sample."""

Sample = tuple[Snapshot, str]
"""What was seen, and the page that it was read from."""


def analyze(options: ServingOptions, console: Console) -> Report:
    """Sample a server and analyze it. An interrupt ends the sampling early; what was seen until then is judged.

    Raises:
        TachoscopeError: the server never answered, its page is not understood, or nothing happened on it.
    """
    seconds = seconds_of(options.for_ or (_FAR_BACK if options.prometheus else _LONG))
    if seconds < _SHORTEST_SECONDS:
        raise TachoscopeError(f"--for {options.for_} is too short to observe any requests", fix="--for 60s")
    if options.prometheus:
        return _of_prometheus(options, seconds)
    _peak(options.device)  # what is wrong with the words is said before the sampling, not after
    if options.save is not None and not os.access(options.save.absolute().parent, os.W_OK):
        raise TachoscopeError(f"could not write {options.save}: its folder does not exist or is not writable")
    url = page_url(options.server)
    every = seconds_of(options.every) if options.every else min(_MOST_LOOKS_SECONDS, seconds / _LOOKS_OF_A_SHORT_LOOK)
    snapshots: list[Snapshot] = []
    passing = _kept(_watched(url, seconds, every, console), snapshots, url, every)
    if options.save is not None:
        serving_recording.write(options.save, passing)
    else:
        deque(passing, maxlen=0)
    if all(one.fault for one in snapshots):
        why = snapshots[-1].fault if snapshots else "it was interrupted before the first sample"
        raise TachoscopeError(f"{url} could not be read: {why}", fix="is this the server's address, and its metrics page?")
    if options.save is not None:
        print_notice(f"kept in {options.save}: tachoscope serving {options.save}")
    return judge_snapshots(snapshots, url, options.name or urlsplit(url).netloc.rpartition("@")[2], options.device)


def _kept(watched: Iterable[Sample], snapshots: list[Snapshot], url: str, every: float) -> Iterator[Sample]:
    """Pass on samples and keep them; stop when they become too large."""
    kept = pages = 0
    for snapshot, page in watched:
        snapshots.append(snapshot)
        kept += size_bytes(snapshot)
        pages += len(page) + _HEAD_BYTES
        yield snapshot, page
        full = next((most for size, most in ((kept, _MOST_KEPT_BYTES), (pages, serving_recording.MAX_BYTES)) if size > most), 0)
        if full:
            print_notice(
                f"{url}: {len(snapshots)} samples of it take more than {full >> 20} MiB: analyzing the samples so far"
                f" (to sample for longer: --every {4 * every:g}s)"
            )
            return


def _of_prometheus(options: ServingOptions, seconds: float) -> Report:
    from tachoscope_cli.sources.prometheus import read

    if options.save is not None or options.every:
        raise TachoscopeError("--save and --every apply to live servers: with --prometheus its own scrapes are used")
    snapshots = read(str(options.prometheus), options.server, seconds)
    return judge_snapshots(snapshots, f"{options.prometheus} {options.server}", options.name or options.server, options.device)


def analyze_recording(path: Path, name: str, device: str) -> Report:
    """Judge what was kept of a server.

    Raises:
        TachoscopeError: as `analyze`, or the file cannot be read.
    """
    return judge_snapshots(
        serving_recording.read(path), str(path), name or path.name.removesuffix(serving_recording.SUFFIX), device
    )


def analyze_service(job: JobRecords, options: ServingOptions) -> Report:
    """Judge a service by the last records of its processes; where only its clients left records, by those.

    Raises:
        TachoscopeError: nothing happened, or the device is not known.
    """
    recent = last_seconds(job, seconds_of(options.for_ or _FAR_BACK))
    peak = _peak(options.device)
    seen, side = service.observed_traffic(recent)
    return service.judged(recent, seen, side, peak_bytes_per_second=peak, objectives=_objectives(job.job, seen))


def _objectives(name: str, seen: Traffic) -> list[ObjectiveResult]:
    return of_service(name, seen.models, seen.totals, seen.outcomes)


def judge_snapshots(snapshots: list[Snapshot], source: str, name: str, device: str) -> Report:
    """Return the report on what was seen.

    Raises:
        TachoscopeError: there are too few snapshots, nothing happened between them, or the device is not known.
    """
    peak = _peak(device)
    try:
        seen = traffic(snapshots)
    except ValueError:
        raise TachoscopeError(f"{source}: too few samples were answered", fix="sample for longer: --for 60s") from None
    sources = [Source(path=source, records=len(snapshots), unit="looks")]
    return analyze_traffic(seen, job=name, sources=sources, peak_bytes_per_second=peak, objectives=_objectives(name, seen))


def _peak(device: str) -> float:
    """Return a device's peak memory bandwidth in bytes a second; 0: no device is named."""
    peak = peaks_of(device).memory_gb_per_s * 1e9 if device else 0.0
    if math.isnan(peak):
        raise TachoscopeError(f"the memory bandwidth of {device!r} is unknown", fix="name it as nvidia-smi -L does")
    return peak


def page_url(server: str) -> str:
    """Return the URL of the metrics page: `http://` and `/metrics` are added where they are left out.

    Raises:
        TachoscopeError: it is not the address of a server.
    """
    parts = urlsplit(server if "://" in server else f"http://{server}")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise TachoscopeError(f"{server!r} is not the address of a server", fix="tachoscope serving http://HOST:PORT/metrics")
    return parts._replace(path=parts.path if parts.path not in {"", "/"} else "/metrics").geturl()


def _watched(url: str, seconds: float, every: float, console: Console) -> Iterator[Sample]:
    """Yield samples, with a progress bar on a terminal, until the end or an interrupt."""
    if not console.is_terminal:
        print_notice(f"sampling {url} for {seconds:.0f} s, every {every:g} s")
    with progress(TimeRemainingColumn(), TextColumn("Ctrl-C: judge now"), on=console) as bar:
        task = bar.add_task(f"sampling {url}", total=seconds)
        began = time.monotonic()
        try:
            for sample in _samples(url, seconds, every):
                bar.update(task, completed=min(time.monotonic() - began, seconds))
                yield sample
        except KeyboardInterrupt:
            print_notice(f"interrupted after {time.monotonic() - began:.0f} s: analyzing the samples so far")


def _samples(url: str, seconds: float, every: float) -> Iterator[Sample]:
    """Yield samples at regular times; a slow sample skips those that it overlaps."""
    began = time.monotonic()
    due = 0.0
    while due <= seconds + every / 2:
        time.sleep(max(0.0, began + due - time.monotonic()))
        yield _sample(url)
        due = max(due + every, -(-(time.monotonic() - began) // every) * every)


def _sample(url: str) -> Sample:
    """Sample the server. A page that is not understood is an error, no answer is not."""
    at, began = time.time(), time.monotonic()
    try:
        page = get(url, seconds=_PATIENCE_SECONDS, most_bytes=_MOST_BYTES).decode("utf-8", "replace")
    except HttpError as error:
        return Snapshot(time=at, seconds=time.monotonic() - began, fault=str(error)), ""
    took = time.monotonic() - began
    try:
        return replace(metrics_page.read(page, at), seconds=took), page
    except TachoscopeError as error:
        raise TachoscopeError(f"{url}: {error}") from None
