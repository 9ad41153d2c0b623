"""Writes what is made from objectives, alerts, recordings and the policy: rules, tests, manifests, Alertmanager's configuration.

The same input gives the same bytes, so that what is committed can be compared with what it is made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tachoscope_alerts.compile import alertmanager, event_alerts, rules
from tachoscope_alerts.compile import promtool_tests as promtests
from tachoscope_alerts.compile import recordings as recorded_series
from tachoscope_alerts.compile.event_alerts import EventAlert
from tachoscope_alerts.compile.recordings import GROUP, Recording
from tachoscope_alerts.compile.rules import Group
from tachoscope_alerts.compile.yaml_writer import to_yaml
from tachoscope_alerts.spec.burn_rate_windows import Timing
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slo

HEADER = "# Made by `tachoscope slo build`: change alerts/slos, alerts/events or alerts/policy.yaml, then `make generate`.\n"
MANIFESTS = "kubernetes"
"""Folder of the PrometheusRule resources."""
LABELS = {"app.kubernetes.io/name": "tachoscope", "app.kubernetes.io/component": "alerts"}
"""Labels of each resource."""


def write(made: Mapping[str, str], out: Path) -> list[Path]:
    """Write `contents` below `out`, and remove files of an earlier build that are not among them; return those written."""
    for name, text in made.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in _left_over(made, out):
        path.unlink()
    return [out / name for name in made]


def stale(made: Mapping[str, str], out: Path) -> list[Path]:
    """Return the files below `out` that `write` would change, create or remove."""
    changed = [out / name for name, text in made.items() if not (out / name).exists() or (out / name).read_text() != text]
    return changed + _left_over(made, out)


def has_manifests(out: Path) -> bool:
    """Return whether an earlier build wrote PrometheusRule resources, which the next one keeps current."""
    return any(map(_is_ours, (out / MANIFESTS).glob("*.yaml")))


def contents(
    slos: Sequence[Slo],
    events: Sequence[EventAlert],
    policy: Policy,
    timing: Timing,
    recordings: Sequence[Recording] = (),
    labels: Mapping[str, str] | None = None,
    *,
    manifests: bool = False,
) -> dict[str, str]:
    """Return what each file holds, by its path below the folder of generated files; rules of a drill come without tests.

    Args:
        labels: of the PrometheusRule resources, beside our own. manifests: make these resources.
    """
    documents: dict[str, Any] = {}
    for name, of_spec in _specs(slos).items():
        groups = [group for slo in of_spec for group in rules.groups(slo, policy, timing)]
        file = f"{name}.rules.yaml"
        documents[f"prometheus/{file}"] = {"groups": groups}
        if timing.scale == 1.0:
            documents[f"prometheus/{name}_test.yaml"] = promtests.of_pages(of_spec, policy, timing, file)
            documents[f"prometheus/{name}_tickets_test.yaml"] = promtests.of_tickets(of_spec, policy, timing, file)
    for group in dict.fromkeys(event.group for event in events):
        of_group = [event for event in events if event.group == group]
        name, groups = f"events-{group}", event_alerts.groups(of_group, policy, timing)
        documents[f"prometheus/{name}.rules.yaml"] = {"groups": groups}
        if timing.scale == 1.0:
            tests = promtests.of_event_alerts(of_group, timing, f"{name}.rules.yaml", recordings, f"{GROUP}.rules.yaml")
            documents[f"prometheus/{name}_test.yaml"] = tests
    if made := recorded_series.groups(recordings, timing):
        documents[f"prometheus/{GROUP}.rules.yaml"] = {"groups": made}
    if manifests:
        for path in [name for name in documents if name.endswith(".rules.yaml")]:
            name = Path(path).name.removesuffix(".rules.yaml")
            documents[f"{MANIFESTS}/{name}.yaml"] = prometheus_rule(name, documents[path]["groups"], labels)
    documents["alertmanager.yaml"] = alertmanager.configuration(policy, slos, timing=timing)
    return {name: _header(name) + to_yaml(document) for name, document in sorted(documents.items())}


def _header(name: str) -> str:
    return HEADER + (f"# The source of this one is alerts/{GROUP}.yaml.\n" if Path(name).name.startswith(GROUP) else "")


def _specs(slos: Sequence[Slo]) -> dict[str, list[Slo]]:
    """Return objectives by the name of their file, or by their own without one."""
    found: dict[str, list[Slo]] = {}
    for slo in slos:
        found.setdefault(Path(slo.path).stem if slo.path else slo.name, []).append(slo)
    return found


def _left_over(made: Mapping[str, str], out: Path) -> list[Path]:
    there = [path for folder in ("prometheus", MANIFESTS) for path in sorted((out / folder).glob("*.yaml"))]
    return [path for path in there if str(path.relative_to(out)) not in made and _is_ours(path)]


def _is_ours(path: Path) -> bool:
    return path.read_text().startswith(HEADER)


def prometheus_rule(name: str, groups: Sequence[Group], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the resource of one rule file.

    Args:
        name: of the file, of small letters, digits and hyphens. labels: more of them, which a Prometheus's `ruleSelector` asks for,
            such as `release`.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": f"tachoscope-{name}", "labels": LABELS | dict(labels or {})},
        "spec": {"groups": list(groups)},
    }
