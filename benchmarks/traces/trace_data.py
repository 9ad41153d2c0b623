"""Makes large traces out of a real one: its events again and again, later each time, with correlation ids of their own.

python benchmarks/traces/trace_data.py SOURCE.json.gz EVENTS OUT.json.gz [--rank R --world-size N]
"""

from __future__ import annotations

import argparse
import gzip
import re
import zlib
from pathlib import Path

_SHIFTED = re.compile(rb'("ts": |"correlation": |"External id": )(\d+)')
_IDS_A_COPY = 10_000_000


def repeated(source: Path, events: int, out: Path, *, rank: int | None = None, world_size: int = 1) -> int:
    """Write a trace of at least `events` events and return how many it has; Kineto's text layout stays as it is."""
    text = gzip.decompress(source.read_bytes())
    begin = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = text.rindex(b"\n  }\n  ]") + len(b"\n  }")
    head, body, tail = text[:begin], text[begin:end], text[end:]
    if rank is not None:
        head = re.sub(rb'"rank": \d+', b'"rank": %d' % rank, head)
        head = re.sub(rb'"world_size": \d+', b'"world_size": %d' % world_size, head)
    times = [int(value) for value in re.findall(rb'"ts": (\d+)', body)]
    latest = max(times)
    times = [value for value in times if value > latest // 2]
    span = max(times) - min(times) + 1000
    count = body.count(b'"ph": ')
    copies = -(-events // count)

    def later(copy: int) -> bytes:
        shifts = {b'"ts": ': copy * span}
        return _SHIFTED.sub(lambda m: m[1] + b"%d" % (int(m[2]) + shifts.get(m[1], copy * _IDS_A_COPY)), body)

    pack = zlib.compressobj(6, wbits=31)
    unfinished = out.with_suffix(".part")
    with unfinished.open("wb") as file:
        file.write(pack.compress(head))
        for copy in range(copies):
            file.write(pack.compress(b"," * (copy > 0) + later(copy)))
        file.write(pack.compress(tail))
        file.write(pack.flush())
    unfinished.rename(out)
    return count * copies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("events", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--world-size", type=int, default=1)
    options = parser.parse_args()
    count = repeated(options.source, options.events, options.out, rank=options.rank, world_size=options.world_size)
    print(f"{count:,} events in {options.out}")


if __name__ == "__main__":
    main()
