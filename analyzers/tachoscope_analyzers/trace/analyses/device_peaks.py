"""What an accelerator can do at most, by its name."""

from __future__ import annotations

import re
from functools import cache
from math import nan
from typing import Any

import msgspec

from tachoscope_analyzers.data.package_data import shipped

_PRECISIONS = {
    "double": "fp64",
    "float64": "fp64",
    "float": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2fnuz": "fp8",
    "signed char": "int8",
    "int8": "int8",
}


class Peaks(msgspec.Struct, frozen=True):
    """Peaks of a device: TFLOP/s (dense) by precision, and memory in GB/s, NaN where not known."""

    name: str = ""
    tflops: tuple[tuple[str, float], ...] = ()
    memory_gb_per_s: float = nan

    def tflops_of(self, precision: str) -> float:
        """Return the TFLOP/s of a precision, NaN if the vendor states none."""
        return dict(self.tflops).get(precision, nan)


@cache
def _entries() -> list[tuple[re.Pattern[str], Peaks]]:
    rows: list[dict[str, Any]] = shipped("trace/analyses/devices.yaml")
    return [
        (
            re.compile(row["pattern"], re.IGNORECASE),
            Peaks(row["name"], tuple((key, float(value)) for key, value in row["tflops"].items()), float(row["memory_gb_per_s"])),
        )
        for row in rows
    ]


def peaks_of(device: str) -> Peaks:
    """Return the peaks of a device by the name that the trace gives to it; nothing is known of others."""
    return next((peaks for pattern, peaks in _entries() if device and pattern.search(device)), Peaks())


def precision_of_type(dtype: str) -> str:
    """Return the precision in which an operator on this type computes (fp32, bf16, ...), empty where it is not known."""
    return _PRECISIONS.get(dtype.rsplit("::", 1)[-1].lower(), "")
