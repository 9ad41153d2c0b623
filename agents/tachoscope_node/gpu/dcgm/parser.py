"""What a dcgm-exporter's page says, as readings. Pure functions over the page's text: they ask nobody.

The form: https://github.com/NVIDIA/dcgm-exporter/blob/d5e5f51/internal/pkg/rendermetrics/render_metrics.go. Each line of a MIG
instance carries the UUID of the whole GPU and repeats the values that only the whole GPU has, such as its power.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tachoscope_core.metrics.dcgm import DCGM_XID
from tachoscope_node.gpu.dcgm.fields import FIELDS
from tachoscope_node.gpu.reading import Gpu, Reading
from tachoscope_service.metrics.family import Labels

MOST_GPUS = 1024
"""GPUs and instances that a page may name: one that names more is not a node's."""
# Each pattern takes time in proportion to the page, whatever is on it: none begins within what another beginning has gone over.
_SAMPLE = re.compile(r"^[ \t]*(DCGM_F\w+)\{([^\n]{0,4096})\} +(\S+)", re.MULTILINE)
_LABEL = re.compile(r'(?<!\w)(\w+)="((?:[^"\\]|\\.)*)"')
_LINE = re.compile(r"^[ \t]*([^#\s].{0,79})", re.MULTILINE)
_NO_TEXT = re.compile("<<<.*>>>")
"""DCGM's blank texts, such as <<<NULL>>>: https://github.com/NVIDIA/gpu-monitoring-tools/issues/193"""
_LONGEST, _LONGEST_INDEX = 256, 4
# https://github.com/NVIDIA/DCGM/blob/72fa3fe/dcgmlib/dcgm_structs.h (DCGM_INT32_BLANK and those after it)
_INT64_BLANK = float(0x7FFFFFFFFFFFFFF0)
_BLANKS = frozenset(float(blank + kind) for blank in (0x7FFFFFF0, 1 << 47) for kind in range(4))
"""Blank, not found, not supported, not permitted: of 32-bit integers, and of floating-point numbers."""
_PLACES: Mapping[str, int] = {
    name: place for place, field in enumerate(FIELDS) if not field.sum for name in (field.field, *field.also)
}


class NotDcgmError(ValueError):
    """The page is not a dcgm-exporter's."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page says. xids: the last code by UUID of the GPU, or of each of its instances; 0 for none."""

    readings: tuple[Reading, ...]
    xids: Mapping[str, frozenset[int]]

    @property
    def uuids(self) -> frozenset[str]:
        """Of the whole GPUs that it reports."""
        return frozenset(reading.gpu.uuid for reading in self.readings if not reading.gpu.mig)


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whom a line is about. shared: the line is one pod's copy of another."""

    gpu: Gpu
    shared: bool

    @property
    def key(self) -> _Key:
        return self.gpu.parent_uuid or self.gpu.uuid, self.gpu.mig


_Key = tuple[str, str]
"""UUID of the whole GPU and id of the instance."""
_Candidate = tuple[bool, bool, float]
"""A value, after what makes it better than another: said of the GPU itself, and not by a pod's copy of the line."""


def read(page: str) -> Page:
    """Return the readings of a page, each whole GPU before its instances.

    Raises:
        NotDcgmError: the page has lines but none of a dcgm-exporter's, or more GPUs than a node can have.
    """
    samples = _SAMPLE.findall(page)
    _check(page, has_samples=bool(samples))
    owners: dict[str, _Owner | None] = {}
    found: dict[tuple[_Key, int], _Candidate] = {}
    xids: dict[str, set[int]] = {}
    for name, labels, text in samples:
        place = _PLACES.get(name)
        if place is None and name != DCGM_XID.name:
            continue
        if labels not in owners:
            owners[labels] = _owner(labels)
        owner, number = owners[labels], _number(text)
        if owner is None or number is None:
            continue
        if place is None:
            if number >= 0.0:
                xids.setdefault(owner.key[0], set()).add(int(number))
            continue
        field = FIELDS[place]
        value = field.from_dcgm(number)
        if value is not None:
            uuid, mig = owner.key
            about = (uuid, mig if field.of == "instance" else "")
            candidate = (about == owner.key, not owner.shared, value)
            found[about, place] = max(found.get((about, place), candidate), candidate)
    gpus = _gpus(owner for owner in owners.values() if owner)
    return Page(_readings(gpus, found), {uuid: frozenset(codes) for uuid, codes in xids.items()})


def _check(page: str, *, has_samples: bool) -> None:
    if re.search(r"^tachoscope_", page, re.MULTILINE):
        raise NotDcgmError("it is the page of a tachoscope agent: set the address of a dcgm-exporter")
    if not has_samples and (line := _LINE.search(page)):
        raise NotDcgmError(f"it is not a dcgm-exporter's page; the first line is {line[1]!r}")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number < _INT64_BLANK and number not in _BLANKS else None


def _owner(text: str) -> _Owner | None:
    """Return whom a line with these labels is about; None if that is not a GPU, as for a link, a switch or a CPU."""
    labels = {name: "" if _NO_TEXT.fullmatch(value) else value[:_LONGEST] for name, value in _LABEL.findall(text)}
    uuid, index = labels.get("UUID", ""), labels.get("gpu", "")
    if not uuid or not index.isdecimal() or len(index) > _LONGEST_INDEX or "nvlink" in labels:
        return None
    mig = labels.get("GPU_I_ID", "")
    gpu = Gpu(
        int(index),
        # Of an instance's own UUID the exporter knows only the one that Kubernetes' DRA driver gave out.
        labels.get("dra_mig_device_uuid", "") if mig else uuid,
        mig=mig,
        parent_uuid=uuid if mig else "",
        model=labels.get("modelName", ""),
        pci_bus_id=labels.get("pci_bus_id", ""),
        driver_version=labels.get("DCGM_FI_DRIVER_VERSION") or labels.get("DCGM_FI_SYSTEM_DRIVER_VERSION", ""),
        mig_profile=labels.get("GPU_I_PROFILE", "") if mig else "",
    )
    return _Owner(gpu, shared=bool(labels.get("pod") or labels.get("vgpu")))


def _gpus(owners: Iterable[_Owner]) -> dict[_Key, Gpu]:
    """Return each GPU and instance as the line tells it that tells most; a GPU whose instances alone have lines has none itself."""
    found: dict[_Key, Gpu] = {}
    for owner in owners:
        uuid, mig = owner.key
        found[uuid, mig] = max(found.get((uuid, mig), owner.gpu), owner.gpu, key=_value_count)
        if mig:
            found.setdefault((uuid, ""), replace(owner.gpu, uuid=uuid, mig="", parent_uuid="", mig_profile=""))
        if len(found) > MOST_GPUS:
            raise NotDcgmError(f"it names more than {MOST_GPUS} GPUs and instances")
    return found


def _value_count(gpu: Gpu) -> int:
    return sum(map(bool, (gpu.uuid, gpu.model, gpu.pci_bus_id, gpu.driver_version)))


def _readings(gpus: Mapping[_Key, Gpu], found: Mapping[tuple[_Key, int], _Candidate]) -> tuple[Reading, ...]:
    values: dict[_Key, dict[str, dict[Labels, float]]] = {key: {} for key in gpus}
    for (key, place), (_, _, value) in sorted(found.items(), key=lambda item: item[0][1]):
        field = FIELDS[place]
        into = values[key].setdefault(field.metric, {})
        for bit, labels in enumerate(field.series):
            into.setdefault(labels, float(int(value) >> bit & 1) if field.bits else value)
    ordered = sorted(gpus, key=lambda key: (gpus[key].index, key[0], bool(key[1]), key[1].zfill(4)))
    return tuple(Reading(gpus[key], values=values[key], source="dcgm") for key in ordered)
