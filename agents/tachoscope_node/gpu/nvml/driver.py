"""The driver's library as the agent uses it: loading and starting it, its return codes, its list of GPUs. Never a CUDA context."""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass
from typing import Any

from tachoscope_node.collectors.collector import NotSupportedError
from tachoscope_node.gpu.reading import Gpu

LIBRARY = "libnvidia-ml.so.1"
UNSUPPORTED = frozenset({2, 3, 4, 6, 13, 25, 26})
"""Codes of what a GPU or driver cannot tell, or not to us: INVALID_ARGUMENT (of an id that the driver is too old to know),
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED."""
LOST = 15
"""NVML_ERROR_GPU_IS_LOST: the GPU has fallen off the bus or cannot be reached."""
STOPPED = frozenset({1, 9, 18})
"""Codes after which the library must be started again: UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH."""
_NO_DRIVER = frozenset({9, 12})
"""DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND."""


def load() -> Any:
    """Return nvidia-ml-py's module, which costs 5 MiB and is imported only where there is a driver.

    Raises:
        NotSupportedError: the driver's library or the module is not there.
    """
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NotSupportedError(f"no NVIDIA driver found: {error}; in a container, mount the driver's {LIBRARY}") from None
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise NotSupportedError("nvidia-ml-py is not installed: pip install 'tachoscope[agent]'") from None


def code_of(error: BaseException) -> int | None:
    """Return NVML's return code, None for an error that is not NVML's."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else None


def raise_if_down(error: BaseException) -> None:
    """Raise an error after which there is nothing more to ask: the GPU is lost or the driver has stopped."""
    if code_of(error) == LOST or code_of(error) in STOPPED:
        raise error


def address(handle: Any) -> int:
    """Return what tells a GPU's handle from others."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class Driver:
    """The library, started.

    Attributes:
        nvml: nvidia-ml-py's module. version: the driver's.
    """

    nvml: Any
    version: str

    def count(self) -> int:
        """Return how many GPUs the driver lists."""
        return int(self.nvml.nvmlDeviceGetCount())

    def identify(self, position: int) -> tuple[Any, Gpu]:
        """Return the handle of the GPU at a position of the driver's list, and what it is. Raises NVMLError."""
        handle = self.nvml.nvmlDeviceGetHandleByIndex(position)
        gpu = Gpu(
            index=position,
            uuid=self.nvml.nvmlDeviceGetUUID(handle),
            model=self.nvml.nvmlDeviceGetName(handle),
            pci_bus_id=text(self.nvml.nvmlDeviceGetPciInfo(handle).busId),
            driver_version=self.version,
        )
        return handle, gpu

    def stop(self) -> None:
        """Let go of the driver. Never while a call runs."""
        self.nvml.nvmlShutdown()


def start(nvml: Any) -> Driver:
    """Start the library.

    Raises:
        NotSupportedError: there is no driver.
        NVMLError: the driver does not work.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if code_of(error) in _NO_DRIVER:
            raise NotSupportedError(f"nvmlInit: {error}") from None
        raise
    return Driver(nvml, nvml.nvmlSystemGetDriverVersion())


def text(value: str | bytes) -> str:
    """Return a text as nvidia-ml-py gives it: decoded by some of its functions only."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
