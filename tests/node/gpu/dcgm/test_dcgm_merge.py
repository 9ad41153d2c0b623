"""One reading for each GPU of two sources: NVML's word first, the exporter's where NVML has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tachoscope_core.metrics.gpu import GPU_ACTIVE, GPU_ENERGY, GPU_MEMORY_BYTES, GPU_POWER
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.gpu.dcgm.merge import Series, merged
from tachoscope_node.gpu.reading import Gpu, GpuProcess, Reading

Values = Mapping[Metric, Mapping[tuple[str, ...], float]]


def reading(source: str, values: Values, *, gpu: int = 0, mig: str = "", up: bool = True) -> Reading:
    """One of the GPU `gpu`, or of an instance, which the exporter knows without its UUID."""
    whole = f"GPU-{gpu}"
    own = Gpu(gpu, (f"MIG-{gpu}-{mig}" if source == "nvml" else "") if mig else whole, mig=mig, parent_uuid=whole if mig else "")
    given_values = {metric.name: dict(labels) for metric, labels in values.items()}
    return Reading(own, up=up, fault="" if up else "lost", values=given_values, source=source)


def test_nvml_is_preferred_and_the_exporter_fills_in_series_by_series() -> None:
    nvml = reading("nvml", {GPU_POWER: {("usage",): 300.0}, GPU_ACTIVE: {("sm",): 0.5}})
    dcgm = reading("dcgm", {GPU_POWER: {("usage",): 290.0, ("limit",): 700.0}, GPU_ACTIVE: {("tensor",): 0.4}})

    (both,) = merged([nvml], [dcgm])

    assert both.values == {
        GPU_POWER.name: {("usage",): 300.0, ("limit",): 700.0},
        GPU_ACTIVE.name: {("sm",): 0.5, ("tensor",): 0.4},
    }
    assert both.source == "nvml"
    assert nvml.values[GPU_POWER.name] == {("usage",): 300.0}  # what was read is not changed


def test_an_instance_is_found_by_its_gpu_and_id_and_keeps_the_uuid_that_nvml_knows() -> None:
    nvml = [reading("nvml", {}), reading("nvml", {GPU_MEMORY_BYTES: {("used",): 1.0}}, mig="3"), reading("nvml", {}, mig="4")]
    dcgm = [
        reading("dcgm", {}),
        reading("dcgm", {GPU_ACTIVE: {("sm",): 0.3}}, mig="3"),
        reading("dcgm", {GPU_ACTIVE: {("sm",): 0.4}}, mig="4"),
    ]

    _, third, fourth = merged(nvml, dcgm)

    assert (third.gpu.uuid, third.value(GPU_ACTIVE, "sm"), third.value(GPU_MEMORY_BYTES, "used")) == ("MIG-0-3", 0.3, 1.0)
    assert (fourth.gpu.uuid, fourth.value(GPU_ACTIVE, "sm")) == ("MIG-0-4", 0.4)


def test_a_gpu_that_only_one_of_them_tells_of_has_that_ones_reading() -> None:
    nvml, dcgm = reading("nvml", {}, gpu=1), reading("dcgm", {GPU_POWER: {("usage",): 1.0}}, gpu=0)

    assert merged([nvml], [dcgm]) == (dcgm, nvml)
    assert merged([], [dcgm]) == (dcgm,)
    assert merged([nvml], []) == (nvml,)


def test_a_gpu_that_nvml_finds_down_stays_down_whatever_the_exporter_remembers() -> None:
    lost = reading("nvml", {}, up=False)

    assert merged([lost], [reading("dcgm", {GPU_POWER: {("usage",): 300.0}})]) == (lost,)


def test_a_gpu_that_only_the_exporter_misses_is_not_down() -> None:
    nvml = reading("nvml", {GPU_POWER: {("usage",): 300.0}})

    assert merged([nvml], [reading("dcgm", {GPU_ENERGY: {(): 1.0}}, up=False)]) == (nvml,)


def test_a_counter_that_nvml_leaves_out_for_once_is_not_the_exporters_older_one() -> None:
    counted: set[Series] = set()
    dcgm = [reading("dcgm", {GPU_ENERGY: {(): 995.0}, GPU_POWER: {("usage",): 290.0}})]

    told = [
        merged([reading("nvml", values)], dcgm, counted)[0].value(GPU_ENERGY)
        for values in ({}, {GPU_ENERGY: {(): 1000.0}}, {}, {GPU_ENERGY: {(): 1001.0}})
    ]

    assert told == [995.0, 1000.0, None, 1001.0]
    assert merged([reading("nvml", {})], dcgm, counted)[0].value(GPU_POWER, "usage") == 290.0  # no counter


def test_processes_and_what_else_only_nvml_has_stay() -> None:
    nvml = Reading(Gpu(0, "GPU-0"), processes=(GpuProcess(7, 1),), seconds=0.5)

    (both,) = merged([nvml], [reading("dcgm", {GPU_POWER: {("usage",): 1.0}})])

    assert (both.processes, both.seconds) == (nvml.processes, 0.5)


_LABELS = st.sampled_from([("usage",), ("limit",), ("a",)])
_READINGS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.sampled_from(["", "1"])), st.dictionaries(_LABELS, st.floats(0, 9)), max_size=6
)


@given(_READINGS, _READINGS)
def test_each_gpu_is_there_once_with_every_value_that_anyone_told(
    ours: Mapping[tuple[int, str], Mapping[tuple[str, ...], float]],
    theirs: Mapping[tuple[int, str], Mapping[tuple[str, ...], float]],
) -> None:
    def readings(source: str, values: Mapping[tuple[int, str], Mapping[tuple[str, ...], float]]) -> list[Reading]:
        return [reading(source, {GPU_POWER: labels}, gpu=gpu, mig=mig) for (gpu, mig), labels in values.items()]

    found = {
        (each.gpu.index, each.gpu.mig): dict(each.values.get(GPU_POWER.name, {}))
        for each in merged(readings("nvml", ours), readings("dcgm", theirs))
    }

    assert found == {key: {**theirs.get(key, {}), **ours.get(key, {})} for key in {*ours, *theirs}}


def test_a_value_is_as_old_as_the_reading_that_gave_it() -> None:
    nvml = replace(reading("nvml", {GPU_POWER: {("usage",): 300.0}, GPU_ACTIVE: {("tensor",): 0.2}}), at=100.0)
    dcgm = replace(reading("dcgm", {GPU_POWER: {("usage",): 1.0}, GPU_ACTIVE: {("tensor",): 0.1, ("sm",): 0.3}}), at=70.0)
    (both,) = merged([nvml], [dcgm])

    assert [both.measured_at(GPU_POWER, "usage"), both.measured_at(GPU_ACTIVE, "tensor"), both.measured_at(GPU_ACTIVE, "sm")] == [
        100,
        100,
        70,
    ]
    assert merged([nvml], [])[0].measured_at(GPU_POWER, "usage") == 100
    assert merged([], [dcgm])[0].measured_at(GPU_POWER, "usage") == 70
