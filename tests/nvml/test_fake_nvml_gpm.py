from __future__ import annotations

import pynvml as nvml
import pytest

from fake_nvml import Driver
from nvml_calls import gpm_values, take_sample


def handle(index: int):
    return nvml.nvmlDeviceGetHandleByIndex(index)


def request_of(metric: int) -> nvml.c_nvmlGpmMetricsGet_t:
    request = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=1)
    request.sample1, request.sample2 = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    request.metrics[0].metricId = metric
    return request


def test_each_metric_has_its_own_value_or_its_own_error(driver: Driver) -> None:
    driver.set_gpu(2, gpm__2=71.25, gpm__60=1500, gpm__10="none")
    assert gpm_values(handle(2), [2, 60, 10, 1]) == [71.25, 1500, nvml.NVMLError_NotSupported, 0]
    assert gpm_values(handle(3), [2]) == [0]


def test_a_metric_tells_of_the_time_up_to_its_second_sample_not_of_now(driver: Driver) -> None:
    request = request_of(2)
    take_sample(handle(0), request.sample1)
    driver.set_gpu(0, gpm__2=40)
    take_sample(handle(0), request.sample2)
    driver.set_gpu(0, gpm__2=90)
    assert nvml.nvmlGpmMetricsGet(request).metrics[0].value == 40


def test_samples_in_the_wrong_order_or_of_two_gpus_or_never_taken_are_refused(driver: Driver) -> None:
    request = request_of(1)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMetricsGet(request)
    take_sample(handle(0), request.sample1)
    take_sample(handle(1), request.sample2)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMetricsGet(request)
    take_sample(handle(0), request.sample2)
    nvml.nvmlGpmMetricsGet(request)
    request.sample1, request.sample2 = request.sample2, request.sample1
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMetricsGet(request)


def test_a_request_of_another_version_is_refused(driver: Driver) -> None:
    request = request_of(1)
    request.version = 2
    with pytest.raises(nvml.NVMLError_ArgumentVersionMismatch):
        nvml.nvmlGpmMetricsGet(request)


def test_hopper_supports_gpm_and_ampere_says_that_it_does_not(loaded) -> None:
    loaded("h100x8")
    assert nvml.nvmlGpmQueryDeviceSupport(handle(0)).isSupportedDevice == 1
    loaded("a100x4")
    assert nvml.nvmlGpmQueryDeviceSupport(handle(0)).isSupportedDevice == 0
    with pytest.raises(nvml.NVMLError_NotSupported):
        gpm_values(handle(0), [1])


def test_gpm_of_a_mig_instance_is_its_own(loaded) -> None:
    driver = loaded("h100_mig")
    driver.set({"gpu.0.mig.2.gpm.2": 33, "gpu.0.mig.5.gpm.2": 66, "gpu.0.gpm.2": 50})
    assert [gpm_values(handle(0), [2], instance=instance) for instance in (2, 5, None)] == [[33], [66], [50]]
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        gpm_values(handle(0), [2], instance=3)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        gpm_values(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(0), 0), [2])
