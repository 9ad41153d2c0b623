"""The series that an expression may use: ours, those of others that are declared, and those that our own rules record.

Declared are names that we use or that users will want first, in `foreign/*.yaml`, each file with the source of its names; a
file of the user's has the same form (docs/guides/slos.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

import msgspec
import yaml

from tachoscope_alerts.compile import sli_expressions
from tachoscope_alerts.compile.recordings import Recording, load, values_of
from tachoscope_alerts.spec import files as places
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core import yaml_text
from tachoscope_core.checkpoints import verification
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.metrics import agent as agent_metrics
from tachoscope_core.metrics import checkpoints as checkpoint_metrics
from tachoscope_core.metrics import gpu as gpu_metrics
from tachoscope_core.metrics import serving as serving_metrics
from tachoscope_core.metrics import training as training_metrics
from tachoscope_core.metrics.catalogue import METRICS
from tachoscope_core.metrics.dcgm import DCGM_METRICS
from tachoscope_core.metrics.metric import IDENTITY, Metric

Type = Literal["counter", "gauge", "histogram"]
SCRAPE_LABELS = frozenset({"job", "instance", "namespace", "pod", "container", "endpoint", "node", *IDENTITY})
"""What a scrape adds, or its service discovery in Kubernetes; cluster and team where a site adds them.
https://prometheus.io/docs/concepts/jobs_instances/"""
PARTS = ("_bucket", "_count", "_sum")
_FOREIGN = ("alertmanager", "gateway", "node_exporter", "prometheus", "vllm")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """A series that there is.

    Attributes:
        name: as an expression writes it; of a histogram there are its parts, and the name itself for messages.
        labels: its own, without those of a scrape. values: of labels whose values are all known.
        buckets: upper bounds of a histogram's buckets, without +Inf, of it and of its `_bucket`.
        source: where the name comes from.
        recorded: by our rules: it has no labels of a scrape, and any window may read it.
        since: the version that brought it, where those before that are still around.
        any_label: it has labels that nobody can list, as `ALERTS` has those of the alert.
    """

    name: str
    type: Type
    labels: frozenset[str]
    source: str
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    recorded: bool = False
    since: str = ""
    any_label: bool = False

    @property
    def all_labels(self) -> frozenset[str]:
        """Its labels as a server has them."""
        return self.labels if self.recorded else self.labels | SCRAPE_LABELS

    def may_have_label(self, label: str) -> bool:
        """Return whether the catalogue or the scrape can give its series this label."""
        return self.any_label or label in self.all_labels


Catalogue = Mapping[str, KnownSeries]

_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    gpu_metrics.GPU_ACTIVE.name: {"unit": gpu_metrics.GPU_UNITS},
    gpu_metrics.GPU_THROTTLED.name: {"reason": gpu_metrics.THROTTLE_REASONS},
    gpu_metrics.GPU_THROTTLED_SECONDS.name: {"reason": gpu_metrics.THROTTLE_TIMES},
    gpu_metrics.GPU_HEALTH_REASON.name: {"action": gpu_metrics.ACTIONS},
    serving_metrics.REQUESTS.name: {"outcome": serving_metrics.OUTCOMES},
    serving_metrics.REQUESTS_JOINT.name: {"met": serving_metrics.MET},
    serving_metrics.REQUEST_TOKENS.name: {"direction": serving_metrics.DIRECTIONS},
    checkpoint_metrics.VERIFICATIONS.name: {"result": get_args(verification.Result)},
    training_metrics.INTEGRITY_EVENTS.name: {"kind": training_metrics.INTEGRITY_KINDS},
    training_metrics.JOBS_FINISHED.name: {
        "result": tuple(training_metrics.ENDS),
        "cause": tuple(dict.fromkeys(cause for causes in training_metrics.ENDS.values() for cause in causes)),
    },
    agent_metrics.REJECTED.name: {"reason": agent_metrics.REJECTION_REASONS},
    agent_metrics.ERRORS.name: {"part": agent_metrics.ERROR_PARTS},
}
"""Values of labels other than `state`, which the catalogue of metrics holds itself."""


class _Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A metric of a foreign catalogue; without `labels` it has those of its file."""

    name: str
    type: Type
    labels: list[str] | None = None
    values: dict[str, list[str]] = {}
    buckets: list[float] = []
    since: str = ""
    any_label: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A foreign catalogue: where its names come from, the labels of most, and the metrics."""

    source: str
    metrics: list[_Declared]
    labels: list[str] = []


def catalogue(slos: Iterable[Slo] = (), own: Iterable[Path] = (), recordings: Iterable[Recording] | None = None) -> Catalogue:
    """Return all known series.

    Args:
        slos: objectives whose recorded series are among them. own: catalogues of the user, in the form of those in `foreign/`.
        recordings: what else is recorded; None: what comes with tachoscope, or lies in `alerts/` here.

    Raises:
        TachoscopeError: a file of `own` cannot be read or understood, or that of the recordings.
    """
    found, of_own = dict(_shipped()), dict[str, Path]()
    for path in own:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise TachoscopeError(f"{path} cannot be read: {error.strerror}", fix="name a catalogue of metrics") from None
        declared = _declared(content, str(path))
        if twice := sorted(declared.keys() & of_own.keys()):
            raise TachoscopeError(
                f"{path} declares {twice[0]}, and so does {of_own[twice[0]]}", fix="remove one of the two entries"
            )
        of_own |= dict.fromkeys(declared, path)
        found |= declared
    found |= recorded(slos)
    for one in load(places.path_of("recordings.yaml")) if recordings is None else recordings:
        values = values_of(one, {name: found[name].values for name in one.reads if name in found})
        found[one.name] = KnownSeries(one.name, "gauge", one.labels, "alerts/recordings.yaml", values, recorded=True)
    return found


def recorded(slos: Iterable[Slo]) -> dict[str, KnownSeries]:
    """Return the series that the rules of objectives record."""
    known = list(slos)
    labels = frozenset({"slo", "area"}).union(*(slo.by for slo in known))
    windows = frozenset({"window"})
    series = {
        **{name: labels for level in sli_expressions.LEVELS for name in level},
        **dict.fromkeys((sli_expressions.UNMEASURED, *sli_expressions.PARTS), labels),
        sli_expressions.BUCKETS: labels | {"le"},
        sli_expressions.ERROR_RATIO: labels | windows,
        sli_expressions.BUDGET_REMAINING: labels,
        sli_expressions.OBJECTIVE: labels,
    }
    values = {"slo": tuple(slo.name for slo in known)}
    return {name: KnownSeries(name, "gauge", of, "rules of the objectives", values, recorded=True) for name, of in series.items()}


@cache
def _shipped() -> Catalogue:
    found: dict[str, KnownSeries] = {}
    for metric in METRICS:
        found |= _ours(metric, "core/tachoscope_core/metrics/catalogue.py")
    for metric in DCGM_METRICS:
        found |= _ours(metric, "core/tachoscope_core/metrics/dcgm.py")
    for name in _FOREIGN:
        found |= _declared((files("tachoscope_alerts") / "foreign" / f"{name}.yaml").read_bytes(), f"foreign/{name}.yaml")
    return found


def _ours(metric: Metric, source: str) -> dict[str, KnownSeries]:
    values = dict(_VALUES.get(metric.name, {}))
    if metric.states:
        values["state"] = metric.states
    return _series(KnownSeries(metric.name, metric.type, frozenset(metric.labels), source, values, metric.buckets))


def _declared(content: bytes, path: str) -> dict[str, KnownSeries]:
    try:
        read = msgspec.convert(yaml_text.load(content), type=_File)
    except (yaml.YAMLError, msgspec.ValidationError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise TachoscopeError(f"{path} is not a catalogue of metrics: {reason}", fix="its form: docs/guides/slos.md") from None
    found: dict[str, KnownSeries] = {}
    for metric in read.metrics:
        if metric.name in found:
            raise TachoscopeError(f"{path} declares {metric.name} twice", fix="remove one of the two entries")
        labels = frozenset(read.labels if metric.labels is None else metric.labels)
        foreign = set(metric.values) - labels
        if not _NAME.fullmatch(metric.name) or foreign:
            problem = f"gives values of {min(foreign)}, not one of its labels" if foreign else "is not a metric's name"
            raise TachoscopeError(f"{path}: {metric.name!r} {problem}", fix="correct its entry")
        values = {label: tuple(given) for label, given in metric.values.items()}
        buckets = tuple(sorted(metric.buckets))
        known = KnownSeries(
            metric.name, metric.type, labels, read.source, values, buckets, since=metric.since, any_label=metric.any_label
        )
        found |= _series(known)
    return found


def _series(known: KnownSeries) -> dict[str, KnownSeries]:
    """Return a metric's series: of a histogram its parts, and itself."""
    found = {known.name: known}
    if known.type != "histogram":
        return found
    for part in PARTS:
        bucket = part == "_bucket"
        labels = known.labels | {"le"} if bucket else known.labels
        name, buckets = f"{known.name}{part}", known.buckets if bucket else ()
        found[name] = KnownSeries(name, "counter", labels, known.source, known.values, buckets, since=known.since)
    return found
