"""What `tachoscope preflight` answers: each host, what was measured, and what it was compared with."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Verdict = Literal["fit", "unfit", "not judged"]


class JudgedMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that a host measured; more is better."""

    host: Annotated[str, Meta(description="The host.")]
    name: Annotated[str, Meta(description="What was measured, with its unit.")]
    device: Annotated[str, Meta(description="The accelerator, folder or interface; empty: the host.")] = ""
    verdict: Annotated[Verdict, Meta(description="Of this rate.")]
    why: Annotated[str, Meta(description="What the verdict is based on, in words.")]
    median: Annotated[float | None, Meta(description="Of the repetitions; null: it could not be measured.")] = None
    spread_ratio: Annotated[float, Meta(description="Robust standard deviation of the repetitions over their median.")] = 0.0
    repetitions: Annotated[int, Meta(description="How many there were.")] = 0
    rounds: Annotated[int, Meta(description="How often it was measured; the best round counts.")] = 1
    least: Annotated[float | None, Meta(description="A lower rate is unfit; null: there is nothing to compare with.")] = None
    usual: Annotated[float | None, Meta(description="Median of the other hosts; null: they are too few.")] = None
    compared_hosts: Annotated[int, Meta(description="Other hosts with comparable results.")] = 0


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """What one host sent to another."""

    sender: Annotated[str, Meta(description="The host that sent.")]
    receiver: Annotated[str, Meta(description="The host that received.")]
    bytes_per_second: Annotated[float | None, Meta(description="Median of the repetitions; null: it failed.")] = None
    round_trips_per_second: Annotated[float | None, Meta(description="Of one small message; null: it failed.")] = None
    error: Annotated[str, Meta(description="Why it failed; empty: it did not.")] = ""
    rounds: Annotated[int, Meta(description="How often the pair was measured; the best round counts.")] = 1
    bad: Annotated[list[str], Meta(description="`error` if it failed, and the rates that are too low; empty: none.")] = []


class JudgedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host."""

    host: Annotated[str, Meta(description="Its name.")]
    verdict: Annotated[Verdict, Meta(description="Of the host.")]
    why: Annotated[str, Meta(description="Its faults, or what could not be judged; empty: it is fit.")] = ""


class BadLink(msgspec.Struct, frozen=True, kw_only=True):
    """Two hosts whose exchange is bad, while neither is bad with enough others to be named."""

    one: Annotated[str, Meta(description="A host.")]
    other: Annotated[str, Meta(description="The other host.")]


class PreflightReport(msgspec.Struct, frozen=True, kw_only=True):
    """`tachoscope preflight`."""

    schema: Annotated[int, Meta(description="1.")] = 1
    verdict: Annotated[Verdict, Meta(description="`unfit` if a host or link is; the exit codes are 0, 3 and 1.")]
    hosts: list[JudgedHost]
    links: list[BadLink]
    measurements: list[JudgedMeasurement]
    exchanges: list[Exchange]
    decided_by: Annotated[str, Meta(description="How bad pairs were distinguished from bad hosts; empty: there was one host.")] = ""
    ring_bytes_per_second: Annotated[
        float | None, Meta(description="All-reduce around all hosts that are not named; null: it was not made, or failed.")
    ] = None
    notes: Annotated[list[str], Meta(description="What was not tested, and objects of the store that could not be read.")]
