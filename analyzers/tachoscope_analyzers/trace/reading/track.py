"""A line of a trace on which events lie one after another."""

from __future__ import annotations

import msgspec


class Track(msgspec.Struct, frozen=True):
    """A thread of the host or a stream of a device, with the names that the trace gives to them."""

    process: str
    thread: str
    process_name: str = ""
    process_labels: str = ""
    thread_name: str = ""
