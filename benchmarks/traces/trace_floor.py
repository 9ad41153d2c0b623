"""The floor of trace reading: one process inflates a Kineto trace, decodes it with msgspec's typed structs chunk by chunk, and
makes numpy columns of the fields that tachoscope keeps, with exact time stamps. No cache, no repair, no other formats.

    python benchmarks/traces/trace_floor.py TRACE.json.gz...
"""

from __future__ import annotations

import gc
import json
import sys
import time
import warnings
import zlib

import msgspec
import numpy as np
from msgspec import Raw, Struct

CHUNK = 8 << 20
NOTHING = Raw(b"")


class Args(Struct, frozen=True, gc=False):
    external: int = msgspec.field(default=-1, name="External id")
    correlation: int = -1
    stream: int | str = -1
    device: int = -1
    bytes: int | str = -1
    grid: Raw = NOTHING
    block: Raw = NOTHING
    occupancy: float = msgspec.field(default=-1.0, name="est. achieved occupancy %")
    blocks_per_sm: float = msgspec.field(default=-1.0, name="blocks per SM")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    in_elements: int = msgspec.field(default=-1, name="In msg nelems")
    out_elements: int = msgspec.field(default=-1, name="Out msg nelems")
    group_size: int = msgspec.field(default=-1, name="Group size")
    group: str | None = msgspec.field(default=None, name="Process Group Name")
    dtype: str | None = None
    shapes: Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: Raw = msgspec.field(default=NOTHING, name="Input type")
    sequence: int = msgspec.field(default=-1, name="Sequence number")
    forward_thread: int = msgspec.field(default=-1, name="Fwd thread id")
    stack: str | None = msgspec.field(default=None, name="Call stack")


class Event(Struct, gc=False):
    ts: Raw = NOTHING
    ph: str = ""
    name: str = ""
    cat: str = ""
    dur: float = -1.0
    pid: int | str = 0
    tid: int | str = 0
    args: Args = Args()


class Codes(dict[object, int]):
    def __missing__(self, key: object) -> int:
        code = self[key] = len(self)
        return code


def chunks(path: str):
    inflate = zlib.decompressobj(wbits=31)
    rest, begun = b"", False
    with open(path, "rb") as file:
        while packed := file.read(1 << 18):
            rest += inflate.decompress(packed)
            if len(rest) >= CHUNK:
                if not begun:
                    rest, begun = rest[rest.index(b'"traceEvents": [') + 16 :], True
                cut = rest.rfind(b"\n  },\n  {")
                yield rest[: cut + 4]
                rest = rest[cut + 5 :]
    if not begun:
        rest = rest[rest.index(b'"traceEvents": [') + 16 :]
    yield rest[: rest.rindex(b"\n  }\n  ]") + 4]


def nanoseconds(values: list[Raw]) -> np.ndarray:
    joined = b",".join(values)
    whole = b"." not in joined
    return np.fromstring(joined.replace(b".", b""), dtype=np.int64, sep=",") * (1000 if whole else 1)


def read(path: str) -> int:
    decoder = msgspec.json.Decoder(list[Event])
    text, threads, categories = Codes(), Codes(), Codes()
    kept = []
    for chunk in chunks(path):
        events = [event for event in decoder.decode(b"[" + chunk + b"]") if event.ph == "X"]
        args = [event.args for event in events]
        count = len(events)

        def codes(table: Codes, values: list[object], count: int = count) -> np.ndarray:
            return np.fromiter(map(table.__getitem__, values), np.int32, count)

        columns = {
            "ts": nanoseconds([event.ts for event in events]),
            "dur": np.rint(np.array([event.dur for event in events]) * 1000).astype(np.int64),
            "name": codes(text, [event.name for event in events]),
            "cat": codes(categories, [event.cat for event in events]),
            "track": codes(threads, [(event.pid, event.tid) for event in events]),
            "external": np.array([one.external for one in args]),
            "correlation": np.array([one.correlation for one in args]),
        }
        device = [one for one in args if one.stream != -1]
        columns |= {
            name: np.array([getattr(one, name) for one in device])
            for name in ("stream", "device", "bytes", "occupancy", "blocks_per_sm")
        }
        columns |= {name: codes(text, [bytes(getattr(one, name)) for one in device], len(device)) for name in ("grid", "block")}
        shaped = [one for one in args if one.shapes is not NOTHING or one.sequence >= 0]
        columns |= {name: codes(text, [bytes(getattr(one, name)) for one in shaped], len(shaped)) for name in ("shapes", "types")}
        columns |= {name: np.array([getattr(one, name) for one in shaped]) for name in ("sequence", "forward_thread")}
        columns["stack"] = codes(
            text, [one.stack for one in args if one.stack is not None], sum(one.stack is not None for one in args)
        )
        kept.append(columns)
    whole = {name: np.concatenate([columns[name] for columns in kept]) for name in kept[0]}
    return len(whole["ts"])


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    gc.disable()
    begin = time.perf_counter()
    events = sum(read(path) for path in sys.argv[1:])
    print(json.dumps({"seconds": {"load": time.perf_counter() - begin}, "events": events}))
