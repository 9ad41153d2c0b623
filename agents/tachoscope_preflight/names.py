"""The names of all rates that a preflight measures."""

from __future__ import annotations

from tachoscope_analyzers.preflight.pairs import RATES
from tachoscope_preflight import compute, loopback, node, storage

NAMES = (
    *(compute.MATMUL, compute.MEMORY, compute.TO_DEVICE, compute.FROM_DEVICE),
    *(loopback.BANDWIDTH, loopback.ROUND_TRIPS, node.LINK),
    *(storage.WRITE, storage.READ, storage.FSYNC),
    *RATES,
)
