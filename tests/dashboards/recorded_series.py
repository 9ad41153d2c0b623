"""Series of a Prometheus in a file: taken out of its database, made small, and put into another one with their own times.

The file is OpenMetrics text, compressed. Where a series ended, which Prometheus knows from a scrape that lacked it, it has NaN.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from benchmarks.remote_write import Sender, encoded

from processes import free_port, wait_for

Labels = tuple[tuple[str, str], ...]
Series = dict[Labels, dict[int, float]]
"""Values by Unix milliseconds, of each series by its sorted labels, `__name__` among them; NaN: it ended there."""
RECORDED = Path(__file__).with_name("recorded") / "demo.om.gz"
_STALE = np.frombuffer(np.uint64(0x7FF0000000000002).tobytes(), dtype=np.float64)[0]
"""The NaN that means to Prometheus that a series ended."""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LINE = re.compile(r"(\S+?)\{(.*)\} (\S+) (\S+)")
_DIGITS = 5
_FOR_EVER = "100y"


def dumped(database: Path, matcher: str) -> Series:
    """Return what a database holds whose Prometheus has ended."""
    command = ["promtool", "tsdb", "dump", f"--match={matcher}", str(database)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Series = {}
    for line in done.stdout.splitlines():
        labels, value, time = line.rsplit(" ", 2)
        key = tuple((name, _plain(text)) for name, text in _LABEL.findall(labels))
        found.setdefault(tuple(sorted(key)), {})[int(time)] = float(value)
    return found


def rounded(values: Mapping[int, float]) -> dict[int, float]:
    """Return values with no more digits than a picture shows of how they differ from each other."""
    known = [value for value in values.values() if math.isfinite(value)]
    spread = max(known) - min(known) if known else 0.0
    if spread == 0.0:
        return dict(values)
    places = _DIGITS - 1 - math.floor(math.log10(spread))
    return {time: round(value, places) if math.isfinite(value) else value for time, value in values.items()}


def write(path: Path, series: Series) -> None:
    """Write a file; the same series give the same bytes."""
    lines = []
    for labels in sorted(series, key=lambda one: (dict(one)["__name__"], one)):
        name = dict(labels)["__name__"]
        inner = ",".join(f'{label}="{_quoted(value)}"' for label, value in labels if label != "__name__")
        for time, value in sorted(series[labels].items()):
            lines.append(f"{name}{{{inner}}} {_text(value)} {time / 1000:.3f}".removesuffix("000").removesuffix("."))
    content = "".join(f"{line}\n" for line in [*lines, "# EOF"]).encode()
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def read(path: Path = RECORDED) -> Series:
    """Return the series of a file."""
    found: Series = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines()[:-1]:
        parts = _LINE.fullmatch(line)
        assert parts is not None, line
        name, inner, value, time = parts.groups()
        labels = tuple(sorted([("__name__", name), *((label, _plain(text)) for label, text in _LABEL.findall(inner))]))
        found.setdefault(labels, {})[round(float(time) * 1000)] = float(value)
    return found


def span(series: Series) -> tuple[float, float]:
    """Return when the first and the last sample are, in Unix seconds."""
    times = [time for values in series.values() for time in values]
    return min(times) / 1000, max(times) / 1000


@contextlib.contextmanager
def served(folder: Path, series: Series) -> Iterator[str]:
    """Run a real Prometheus that holds the series; yield its address."""
    port = free_port()
    (folder / "prometheus.yml").write_text("global: {}\n")
    command = [
        *("prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", "--log.level=error"),
        *(f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"),
        f"--storage.tsdb.retention.time={_FOR_EVER}",
    ]
    server = subprocess.Popen(command)
    try:
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready").status == 200)
        _send(series, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _send(series: Series, port: int) -> None:
    sender = Sender(port)
    for labels, values in series.items():
        times = np.array(sorted(values), dtype=np.float64)
        row = np.array([values[int(time)] for time in times])
        row[np.isnan(row)] = _STALE
        sender.add(dict(labels), encoded(times / 1000, row[None, :])[0])
    sender.flush()


def names_in(expressions: Iterable[str]) -> set[str]:
    """Return the names of all series that expressions read."""
    return {name for one in expressions for name in re.findall(r"[a-zA-Z_:][\w:]*", one)}


def of_names(series: Series, names: set[str]) -> Series:
    """Return the series that have one of these names."""
    return {labels: values for labels, values in series.items() if dict(labels)["__name__"] in names}


def _text(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.15g}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)
