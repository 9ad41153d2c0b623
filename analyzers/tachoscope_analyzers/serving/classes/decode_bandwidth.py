"""`decode_bandwidth`: decoding reads all weights for each token of a batch, and is as fast as the memory is."""

from __future__ import annotations

import numpy as np

from tachoscope_analyzers.data.thresholds import threshold
from tachoscope_analyzers.findings.make import Candidate
from tachoscope_analyzers.serving.classes.states import SecondsByState
from tachoscope_analyzers.serving.records.traffic import Traffic
from tachoscope_core.report.report import Evidence


def candidates(traffic: Traffic, spent: SecondsByState, peak_bytes_per_second: float) -> list[Candidate]:
    """Return decoding as bound by memory bandwidth, if the server counts the bytes and they come near to the peak.

    Args:
        peak_bytes_per_second: of one device's memory; 0: not known.
    """
    read, busy = traffic.total("read_bytes_total"), float(spent.engines["busy"].sum())
    if not read or not peak_bytes_per_second or not busy:
        return []
    share = read / busy / peak_bytes_per_second
    limit = threshold("memory_bandwidth_bound_ratio")
    if share < limit:
        return []
    running = traffic.gauges.get("requests_running", np.zeros(1))
    evidence = [
        Evidence(
            signal="bytes read from device memory, share of the peak rate",
            value=share,
            threshold=limit,
            comparison=">=",
            unit="ratio",
            source="the server's estimate, over the time in which it is busy",
        ),
        Evidence(signal="requests in a batch, mean", value=float(running.mean()), source="running gauge"),
    ]
    return [Candidate("decode_bandwidth", spent.requests["decode"], "all", evidence, certainty=0.8, level="info")]
