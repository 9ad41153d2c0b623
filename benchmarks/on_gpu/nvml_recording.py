"""Ask a real NVIDIA driver all that the agent can ask, and more, and write each answer, its error code and what the call took.

    python benchmarks/on_gpu/nvml_recording.py nvml.json

Read only: no setting of a GPU is changed. The fake driver of the tests (tests/nvml) is compared with such recordings.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

FIELDS = range(1, 320)
"""Ids of nvmlDeviceGetFieldValues; NVML of CUDA 13.0 ends at 273."""
ALL_LINKS = 0xFFFFFFFF
GPM_METRICS = range(1, 340)
GPM_SECONDS = 1.0
DEVICE_CALLS: dict[str, tuple[Any, ...]] = {
    "nvmlDeviceGetName": (),
    "nvmlDeviceGetUUID": (),
    "nvmlDeviceGetSerial": (),
    "nvmlDeviceGetPciInfo": (),
    "nvmlDeviceGetArchitecture": (),
    "nvmlDeviceGetCudaComputeCapability": (),
    "nvmlDeviceGetMinorNumber": (),
    "nvmlDeviceGetPersistenceMode": (),
    "nvmlDeviceGetPerformanceState": (),
    "nvmlDeviceGetComputeMode": (),
    "nvmlDeviceGetMigMode": (),
    "nvmlDeviceGetMaxMigDeviceCount": (),
    "nvmlDeviceGetUtilizationRates": (),
    "nvmlDeviceGetEncoderUtilization": (),
    "nvmlDeviceGetDecoderUtilization": (),
    "nvmlDeviceGetMemoryInfo": (),
    "nvmlDeviceGetMemoryInfo v2": (0x02000028,),
    "nvmlDeviceGetBAR1MemoryInfo": (),
    "nvmlDeviceGetPowerUsage": (),
    "nvmlDeviceGetPowerManagementLimit": (),
    "nvmlDeviceGetPowerManagementDefaultLimit": (),
    "nvmlDeviceGetPowerManagementLimitConstraints": (),
    "nvmlDeviceGetEnforcedPowerLimit": (),
    "nvmlDeviceGetTotalEnergyConsumption": (),
    **{f"nvmlDeviceGetClockInfo {kind}": (kind,) for kind in range(4)},
    **{f"nvmlDeviceGetMaxClockInfo {kind}": (kind,) for kind in range(4)},
    **{f"nvmlDeviceGetApplicationsClock {kind}": (kind,) for kind in (1, 2)},
    "nvmlDeviceGetFanSpeed": (),
    "nvmlDeviceGetTemperature": (0,),
    **{f"nvmlDeviceGetTemperatureThreshold {kind}": (kind,) for kind in range(8)},
    "nvmlDeviceGetMarginTemperature": (),
    "nvmlDeviceGetCurrentClocksEventReasons": (),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (),
    "nvmlDeviceGetSupportedClocksEventReasons": (),
    **{f"nvmlDeviceGetViolationStatus {kind}": (kind,) for kind in (0, 1, 2, 3, 4, 5, 10, 11)},
    "nvmlDeviceGetEccMode": (),
    **{f"nvmlDeviceGetTotalEccErrors {kind} {since}": (kind, since) for kind in (0, 1) for since in (0, 1)},
    "nvmlDeviceGetRemappedRows": (),
    "nvmlDeviceGetRowRemapperHistogram": (),
    **{f"nvmlDeviceGetRetiredPages {cause}": (cause,) for cause in (0, 1)},
    "nvmlDeviceGetRetiredPagesPendingStatus": (),
    "nvmlDeviceGetPcieReplayCounter": (),
    **{f"nvmlDeviceGetPcieThroughput {way}": (way,) for way in (0, 1)},
    "nvmlDeviceGetCurrPcieLinkGeneration": (),
    "nvmlDeviceGetMaxPcieLinkGeneration": (),
    "nvmlDeviceGetCurrPcieLinkWidth": (),
    "nvmlDeviceGetMaxPcieLinkWidth": (),
    **{f"nvmlDeviceGetNvLinkState {link}": (link,) for link in range(18)},
    "nvmlDeviceGetSupportedEventTypes": (),
    "nvmlDeviceGetComputeRunningProcesses": (),
    "nvmlDeviceGetGraphicsRunningProcesses": (),
    "nvmlDeviceGetProcessUtilization": (0,),
    "nvmlDeviceGetAccountingMode": (),
    "nvmlDeviceGetGpuOperationMode": (),
    "nvmlDeviceGetVirtualizationMode": (),
    "nvmlDeviceGetGspFirmwareVersion": (),
    "nvmlDeviceGetGspFirmwareMode": (),
    "nvmlDeviceGetNumGpuCores": (),
    "nvmlDeviceGetMemoryBusWidth": (),
    "nvmlDeviceGetBoardPartNumber": (),
    "nvmlDeviceGetVbiosVersion": (),
    "nvmlDeviceGetNumaNodeId": (),
}
SYSTEM_CALLS = ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount")


def plain(value: Any) -> Any:
    """Return an answer as JSON can hold it: structures by their members, enumerations by their numbers."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, ctypes.Array):
        return [plain(each) for each in value]
    if hasattr(value, "_fields_"):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if hasattr(value, "__dict__"):
        return {name: plain(each) for name, each in vars(value).items()}
    return repr(value)


def asked(call: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Return the answer or the error code, and microseconds: of the first call and of the quickest of five."""
    took: list[float] = []
    said: dict[str, Any] = {}
    for _ in range(5):
        begin = time.perf_counter()
        try:
            said = {"answer": plain(call(*arguments))}
        except pynvml.NVMLError as error:
            said = {"error": error.value, "text": str(error)}
        except (TypeError, AttributeError, ValueError) as error:
            said = {"fault": repr(error)}
        took.append((time.perf_counter() - begin) * 1e6)
    return said | {"first_us": round(took[0], 1), "least_us": round(min(took), 1)}


def fields(handle: Any, scope: int) -> dict[str, Any]:
    """Return all fields that have a value, and the code of those that have none."""
    wanted = [(number, scope) for number in FIELDS]
    kinds = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    found: dict[str, Any] = {"codes": {}}
    begin = time.perf_counter()
    values = pynvml.nvmlDeviceGetFieldValues(handle, wanted)
    found["took_us"] = round((time.perf_counter() - begin) * 1e6, 1)
    for value in values:
        if value.nvmlReturn:
            found["codes"].setdefault(str(value.nvmlReturn), []).append(value.fieldId)
        else:
            kind = kinds[value.valueType] if value.valueType < len(kinds) else "ullVal"
            content = getattr(value.value, kind, value.value.ullVal)
            found[str(value.fieldId)] = [value.valueType, content, value.latencyUsec]
    return found


def gpm(handle: Any) -> dict[str, Any]:
    """Return what GPM says of one second, by metric."""
    support = pynvml.nvmlGpmQueryDeviceSupport(handle)
    if not support.isSupportedDevice:
        return {"supported": 0}
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    begin = time.perf_counter()
    pynvml.nvmlGpmSampleGet(handle, samples[0])
    took = (time.perf_counter() - begin) * 1e6
    time.sleep(GPM_SECONDS)
    pynvml.nvmlGpmSampleGet(handle, samples[1])
    found: dict[str, Any] = {"supported": 1, "sample_us": round(took, 1), "codes": {}}
    for first in range(GPM_METRICS.start, GPM_METRICS.stop, 90):
        ids = [number for number in GPM_METRICS if first <= number < first + 90]
        asking = pynvml.c_nvmlGpmMetricsGet_t()
        asking.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asking.numMetrics = len(ids)
        asking.sample1, asking.sample2 = samples
        for place, number in enumerate(ids):
            asking.metrics[place].metricId = number
        begin = time.perf_counter()
        try:
            pynvml.nvmlGpmMetricsGet(asking)
        except pynvml.NVMLError as error:
            found[f"from {first}"] = error.value
            continue
        found[f"get_us from {first}"] = round((time.perf_counter() - begin) * 1e6, 1)
        for place, number in enumerate(ids):
            metric = asking.metrics[place]
            if metric.nvmlReturn:
                found["codes"].setdefault(str(metric.nvmlReturn), []).append(number)
            else:
                name = metric.metricInfo.shortName
                found[str(number)] = [metric.value, name.decode() if isinstance(name, bytes) else name]
    for sample in samples:
        pynvml.nvmlGpmSampleFree(sample)
    return found


def recording() -> dict[str, Any]:
    """Return what the driver and each GPU say."""
    pynvml.nvmlInit()
    whole: dict[str, Any] = {name: asked(getattr(pynvml, name)) for name in SYSTEM_CALLS}
    whole["nvidia-ml-py"] = getattr(pynvml, "__version__", "")
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu: dict[str, Any] = {"gpm": gpm(handle)}
        for name, arguments in DEVICE_CALLS.items():
            call = getattr(pynvml, name.split()[0], None)
            gpu[name] = {"fault": "not in nvidia-ml-py"} if call is None else asked(call, handle, *arguments)
        gpu["fields"] = fields(handle, 0)
        gpu["fields of all links"] = fields(handle, ALL_LINKS)
        gpus.append(gpu)
    whole["gpus"] = gpus
    pynvml.nvmlShutdown()
    return whole


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(recording(), indent=1))
