"""Which calls of a runtime put a kernel on the device."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from tachoscope_analyzers.trace.reading.trace import Trace

_LAUNCH = re.compile(r"(cuda|cu|hip)\w*Launch\w*Kernel")
"""https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__EXECUTION.html and ROCm's twins. Graph launches, copies and fills
are left out: an empty graph, a copy within the host and a fill of no bytes put nothing on the device."""

_GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")


def is_kernel_launch(trace: Trace, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which runtime calls launch a kernel, shape of `rows`."""
    return _named(_LAUNCH, trace, rows)


def is_graph_launch(trace: Trace, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which runtime calls launch a graph, shape of `rows`."""
    return _named(_GRAPH_LAUNCH, trace, rows)


def _named(pattern: re.Pattern[str], trace: Trace, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    codes, place = trace.distinct_names(rows)
    found = np.array([pattern.match(text) is not None for text in trace.strings[codes]], dtype=bool)
    return np.asarray(found[place] if len(codes) else found)
