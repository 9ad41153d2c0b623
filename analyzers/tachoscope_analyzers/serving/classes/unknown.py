"""`unknown`: time of requests that no phase explains, and time of engines in which the server did not answer."""

from __future__ import annotations

import math

from tachoscope_analyzers.findings.evidence import measured
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.serving.classes.states import SecondsByState, tells_phases
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.report.report import Evidence

_LOOK = "look at the front end (CPU of the API server's process, tokeniser), then at the engine: py-spy dump --pid PID"
_GONE = "see whether the process lives, what its log ends with, and whether its metrics page answers from the machine itself"


def candidates(traffic: Traffic, spent: SecondsByState) -> list[Candidate]:
    """Return the time of requests that is in no phase: before and after the engine, or in an engine that gives no tokens.

    None where the server says no phases: then nothing is known to be lost.
    """
    lost = spent.requests["unexplained"]
    if not lost.any() or not tells_phases(traffic):
        return []
    evidence = []
    running = traffic.gauges.get("requests_running")
    if running is not None:
        evidence.append(Evidence(signal="requests running, mean", value=float(running.mean()), source="running gauge"))
    if ended := traffic.count("request_seconds"):
        phases = sum(traffic.total(name) for name in ("queue_seconds", "prefill_seconds", "decode_seconds"))
        outside = (traffic.total("request_seconds") - phases) / ended
        evidence.append(measured("outside of queue, prefill and decode, each request", outside, "seconds", "request histograms"))
    return [Candidate("unknown", lost, "all", evidence, certainty=0.8, action=_LOOK)]


def no_answer(traffic: Traffic, spent: SecondsByState) -> list[Candidate]:
    """Return the time in which the server did not answer and was not started again."""
    lost = spent.engines["unexplained"]
    if not lost.any() or not traffic.faults:
        return []
    time, why = traffic.faults[-1]
    evidence = [
        Evidence(signal="looks without an answer", value=float(len(traffic.faults)), source=f"the last: {why}"),
        measured("last look without an answer, before the end", traffic.end - time, "seconds", "looks"),
    ]
    return [Candidate("unknown", lost, "all", evidence, certainty=0.8, action=_GONE, speedup=math.inf)]
