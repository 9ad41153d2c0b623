"""Metric samples as Parquet: what was decoded once is kept, so that a second report opens no object of the store again.

A file holds a row for each sample: `metric`, `labels` (JSON), `series` (a number), `time_ms` (Unix milliseconds) and `value`, null
where the series was gone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tachoscope_alerts.measure.stored_samples import Samples, Series, Wanted, of_host
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.storage import cache_dir
from tachoscope_core.storage.store import Store, StoredSamples

VERSION = 1
"""Raised whenever what is written changes."""
LIMIT_BYTES = 2 << 30
_COUNTS = b"tachoscope"


def folder() -> Path:
    """Return the folder of decoded samples in the user's cache, of this version of their format."""
    return cache_dir.folder("samples") / f"v{VERSION}"


def write(path: Path, samples: Samples) -> None:
    """Write samples, whole or not at all.

    Raises:
        OSError: there is no room for them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".unfinished-", dir=path.parent)
    os.close(handle)
    try:
        pq.write_table(_table(samples), temporary, compression="zstd")
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read(path: Path) -> Samples:
    """Return what was written.

    Raises:
        TachoscopeError: the file cannot be read, or holds something else.
    """
    try:
        table = pq.read_table(path)
        counts = json.loads(table.schema.metadata[_COUNTS])
        number, times = (table.column(name).to_numpy() for name in ("series", "time_ms"))
        values, gone = table.column("value").fill_null(0.0).to_numpy(), table.column("value").is_null(nan_is_null=False).to_numpy()
        metrics, labels = table.column("metric"), table.column("labels")
        edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(number)] if len(number) else [0]
        found: dict[str, list[Series]] = defaultdict(list)
        for begin, end in itertools.pairwise(edges):
            is_end = gone[begin:end]
            metric = metrics[begin].as_py()
            own, at = json.loads(labels[begin].as_py()), times[begin:end]
            found[metric].append(Series(metric, own, at[~is_end], values[begin:end][~is_end], at[is_end]))
        return Samples(dict(found), counts["lines"], counts["garbage"])
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise TachoscopeError(f"{path} contains no metric samples: {error}", fix="remove the file") from None


def _table(samples: Samples) -> pa.Table:
    series = list(samples.series())
    lengths = [len(one.times_ms) + len(one.ends_ms) for one in series]
    number = np.repeat(np.arange(len(series), dtype=np.int32), np.array(lengths, dtype=np.int64))
    times = [part for one in series for part in (one.times_ms, one.ends_ms)]
    values = [part for one in series for part in (one.values, np.zeros(len(one.ends_ms)))]
    gone = [part for one in series for part in (np.zeros(len(one.times_ms), bool), np.ones(len(one.ends_ms), bool))]
    names = {
        "metric": [one.metric for one in series],
        "labels": [json.dumps(one.labels, sort_keys=True) for one in series],
    }
    columns = {name: pa.DictionaryArray.from_arrays(number, pa.array(texts, pa.string())) for name, texts in names.items()}
    columns |= {"series": pa.array(number), "time_ms": pa.array(_joined(times, np.int64))}
    columns["value"] = pa.array(_joined(values, np.float64), mask=_joined(gone, np.bool_), from_pandas=False)
    counts = json.dumps({"lines": samples.lines, "garbage": samples.garbage})
    return pa.table(columns).replace_schema_metadata({_COUNTS: counts.encode()})


def _joined(parts: Sequence[Any], kind: type[Any]) -> Any:
    return np.concatenate(parts).astype(kind) if parts else np.empty(0, dtype=kind)


# --- the cache ----------------------------------------------------------------------------------------------------------------


def cached(store: Store, host: str, wanted: Wanted, *, start: float, end: float, cache: Path | None) -> Samples:
    """Return the samples of a node, from the cache if just these objects were read before.

    An object never changes once it is written, and its name is unique: names stand for the content. What could not be read whole
    is not kept.

    Args:
        cache: a folder; None: nothing is kept.
    """
    objects = store.samples(host, start=start, end=end)
    if not objects:
        return Samples()
    place = cache / _key(store, objects, wanted, start, end) if cache is not None else None
    if place is not None and place.is_file():
        with suppress(TachoscopeError, OSError):
            found = read(place)
            os.utime(place)  # for `prune`: used just now
            return found
    samples = of_host(store, objects, host, wanted, start=start, end=end)
    if place is not None and not samples.unread:
        with suppress(OSError):  # a home that is full or cannot be written: only slower
            write(place, samples)
    return samples


def _key(store: Store, objects: Sequence[StoredSamples], wanted: Wanted, start: float, end: float) -> str:
    asked = sorted((name, sorted(bounds)) for name, bounds in wanted.items())
    what = json.dumps([store.url, [one.path for one in objects], asked, start, end])
    return f"{hashlib.sha256(what.encode()).hexdigest()}.parquet"


def prune(cache: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
    """Remove the files that were used longest ago until all are within the limit."""
    entries = []
    with suppress(OSError):
        for path in cache.iterdir():
            with suppress(OSError):
                entries.append((path.stat().st_mtime, path.stat().st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit_bytes:
            break
        with suppress(OSError):
            path.unlink()
            total -= size
