"""The figures of a trace by the plainest means: json, whole nanoseconds in Python, and a sweep; nothing of the engine."""

import gzip
import json
from decimal import Decimal
from pathlib import Path

DEVICE = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "mtia_ccp_events": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "fill",
    "memset": "fill",
}
OF_MTIA = {"dma_request": "copy", "event_wait": None, "event_record": None}
"""What MTIA's devices do besides kernels; None where they only wait."""
Span = tuple[int, int]


def events(path: Path) -> list[dict]:
    found = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, strict=False)
    return found["traceEvents"]


def nanoseconds(microseconds: str | int) -> int:
    return int((Decimal(str(microseconds)) * 1000).to_integral_value())


def device_spans(found: list[dict]) -> dict[int, list[tuple[str, str, Span]]]:
    """Return (what, name, span) of the device events by device."""
    devices: dict[int, list[tuple[str, str, Span]]] = {}
    for event in found:
        what = DEVICE.get(str(event.get("cat")).lower())
        what = OF_MTIA.get(event["name"], what) if event.get("cat") == "mtia_ccp_events" else what
        if event.get("ph") == "X" and what:
            start = nanoseconds(event["ts"])
            device = event.get("args", {}).get("device", -1)
            devices.setdefault(device, []).append((what, event["name"], (start, start + nanoseconds(event["dur"]))))
    return devices


def length(*sets: list[Span], minus: tuple[list[Span], ...] = ()) -> int:
    """Return for how long at least one span of each of the sets runs, and none of those in `minus`."""
    marks = []
    for number, spans in enumerate((*sets, *minus)):
        for start, end in spans:
            if end > start:
                marks += [(start, number, 1), (end, number, -1)]
    marks.sort()
    open_spans = [0] * (len(sets) + len(minus))
    total, last = 0, 0
    for time, number, change in marks:
        if all(open_spans[: len(sets)]) and not any(open_spans[len(sets) :]):
            total += time - last
        last = time
        open_spans[number] += change
    return total
