"""Saves have a name in whatever profiler runs, and cost nothing where none does."""

from __future__ import annotations

import torch

from tachoscope.profiling.annotations import CHECKPOINT, Annotations


def test_what_begins_under_a_profiler_is_named_in_its_trace() -> None:
    annotations = Annotations()
    with torch.profiler.profile() as profiler:
        annotations.begin(CHECKPOINT)
        annotations.begin("inner")
        annotations.end()
        annotations.end()
    assert {CHECKPOINT, "inner"} <= {event.name for event in profiler.events()}


def test_a_profiler_that_begins_or_ends_meanwhile_disturbs_nothing() -> None:
    annotations = Annotations()
    annotations.begin(CHECKPOINT)
    profiler = torch.profiler.profile()
    profiler.start()
    annotations.end()
    annotations.begin(CHECKPOINT)
    profiler.stop()
    annotations.end()
    assert not torch.autograd.profiler._is_profiler_enabled
