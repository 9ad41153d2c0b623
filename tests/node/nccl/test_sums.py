"""Sums of operations: nothing is lost, and there are never more series than allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trees import points

from inspecting import histograms, line
from tachoscope_core.metrics.nccl import BUS_BYTES, COLLECTIVE_SECONDS, SECONDS_BUCKETS
from tachoscope_node.nccl.line import KINDS, bus_bytes, parse
from tachoscope_node.nccl.sums import FORGET_SECONDS, MAX_KEYS, NcclSums
from tachoscope_service.metrics.family import Histogram


def add(sums: NcclSums, job: str = "job", group: str = "all", now: float = 0.0, **fields: Any) -> None:
    operation = parse(json.dumps(line(**fields)).encode())
    sums.add(job, group, operation, bus_bytes(operation), now)


def test_an_operation_is_in_the_bucket_of_its_seconds_and_the_class_of_its_message() -> None:
    sums = NcclSums()
    for microseconds in (100, 101, 50_000, 3_000_000):
        add(sums, microseconds=microseconds, size=1 << 20)
    (family, carried) = sums.families()

    assert family.metric is COLLECTIVE_SECONDS
    ((labels, histogram),) = family.points
    assert labels == ("job", "all", "all_reduce", "<=1MiB")
    assert isinstance(histogram, Histogram)
    assert histogram.counts == (1, 1, 0, 1, 0, 1)
    assert len(histogram.counts) == len(SECONDS_BUCKETS) + 1
    assert histogram.sum == pytest.approx(3.050201)
    assert points([carried], BUS_BYTES) == {labels: 4 * 1.5 * (1 << 20)}


def test_however_many_jobs_and_groups_there_are_the_series_are_bounded_and_no_operation_is_lost() -> None:
    sums, added = NcclSums(), 0
    for number in range(40):
        for coll in KINDS:
            for size in (1, 1 << 17, 1 << 22, 1 << 27):
                add(sums, job=f"job{number}", group=f"of_{number}", coll=coll, size=size)
                added += 1
    found = histograms(sums.families())

    assert len(found) <= MAX_KEYS + 11 * 4
    assert sum(sum(histogram.counts) for histogram in found.values()) == added


def test_sums_of_a_job_that_is_long_over_go() -> None:
    sums = NcclSums()
    add(sums, job="old", now=0.0)
    add(sums, job="new", now=FORGET_SECONDS)
    sums.drop_old(FORGET_SECONDS + 1)

    assert {labels[0] for labels in histograms(sums.families())} == {"new"}
