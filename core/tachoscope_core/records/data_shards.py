"""What is recorded of shards of training data: reads, failures, quarantine."""

from __future__ import annotations

from tachoscope_core.records.base import Count, Record, Seconds, Text


class ShardRead(Record, frozen=True, kw_only=True, tag="ShardRead"):
    """A shard of the data set was read to its end.

    Attributes:
        shard: path or URL, secrets redacted. bytes: 0: not known. seconds: from opening to its end.
    """

    shard: Text
    bytes: Count
    seconds: Seconds


class ShardFailed(Record, frozen=True, kw_only=True, tag="ShardFailed"):
    """Reading a shard of the data set raised: `error` is the type of the exception, its text stays out."""

    shard: Text
    error: Text


class ShardQuarantined(Record, frozen=True, kw_only=True, tag="ShardQuarantined"):
    """A shard of the data set failed on several ranks or attempts and is on the quarantine list: the job needs a review."""

    shard: Text
    failures: Count
    ranks: list[Count] = []
    attempts: list[Count] = []
    error: Text = ""
