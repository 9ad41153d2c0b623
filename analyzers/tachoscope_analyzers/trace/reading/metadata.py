"""What a trace says about itself, from the keys beside its events and from the names of its tracks."""

from __future__ import annotations

from typing import Any

from tachoscope_analyzers.trace.reading.columns import ColumnBuilder
from tachoscope_analyzers.trace.reading.event_kinds import Kind, kind_of
from tachoscope_analyzers.trace.reading.string_codes import clean
from tachoscope_analyzers.trace.reading.trace import Device, Group, Meta, ReadQuality
from tachoscope_analyzers.trace.reading.track import Track


def meta_of(builder: ColumnBuilder, *, outside: dict[str, Any], digest: str, text_bytes: int, quality: ReadQuality) -> Meta:
    """Return the description of a JSON trace; fields of other types than expected count as absent."""
    told = outside.get("distributedInfo")
    distributed: dict[str, Any] = told if isinstance(told, dict) else {}
    return Meta(
        digest=digest,
        writer=_writer(builder, outside),
        text_bytes=text_bytes,
        tracks=_tracks(builder),
        categories=[clean(category) for category in builder.categories],
        quality=quality,
        rank=_as_integer(distributed.get("rank")),
        world_size=_as_integer(distributed.get("world_size")),
        backend=_text(distributed.get("backend")),
        base_nanoseconds=_as_integer(outside.get("baseTimeNanoseconds")) or 0,
        devices=[_device(entry) for entry in _dicts(outside.get("deviceProperties"))],
        groups=[_group(entry) for entry in _dicts(distributed.get("pg_config"))],
    )


def _tracks(builder: ColumnBuilder) -> list[Track]:
    names, labels, threads = builder.process_names, builder.process_labels, builder.thread_names
    return [
        Track(*map(clean, (process, thread, names.get(process, ""), labels.get(process, ""), threads.get((process, thread), ""))))
        for process, thread in builder.tracks.texts
    ]


def _writer(builder: ColumnBuilder, outside: dict[str, Any]) -> str:
    if any(kind_of(category) != Kind.OTHER for category in builder.categories) or "schemaVersion" in outside:
        return "kineto"
    names = builder.process_names.values()
    if any("/device:" in name or name.startswith("/host:") for name in names):
        return "tensorflow"
    if any(text.startswith("NEGOTIATE_") for text in builder.strings):
        return "horovod"
    return "chrome"


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _as_integer(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    try:
        number = int(value)
    except ValueError:
        return None
    return number if 0 <= number < 1 << 62 else None


def _text(value: Any) -> str:
    return clean(str(value)) if isinstance(value, str | int) else ""


def _device(entry: dict[str, Any]) -> Device:
    major, minor = _as_integer(entry.get("computeMajor")), _as_integer(entry.get("computeMinor"))
    return Device(
        id=_as_integer(entry.get("id")) or 0,
        name=_text(entry.get("name")),
        memory_bytes=_as_integer(entry.get("totalGlobalMem")) or 0,
        multiprocessors=_as_integer(entry.get("numSms")) or 0,
        compute_capability=f"{major}.{minor}" if major is not None and minor is not None else "",
    )


def _group(entry: dict[str, Any]) -> Group:
    ranks = entry.get("ranks")
    return Group(
        name=_text(entry.get("pg_name")),
        description=_text(entry.get("pg_desc")),
        ranks=[rank for rank in ranks if _as_integer(rank) == rank] if isinstance(ranks, list) else [],
    )
