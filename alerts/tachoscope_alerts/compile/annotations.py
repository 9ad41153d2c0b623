"""What a burn-rate alert says to the person who is told: how bad it is, what that means for the budget, and where to look.

Numbers are Prometheus's templates, filled in when the alert fires (https://prometheus.io/docs/prometheus/latest/configuration/template_reference/).
A template cannot calculate, but it can ask Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tachoscope_alerts.compile.links import dashboard_url, runbook_url
from tachoscope_alerts.compile.sli_expressions import BUDGET_REMAINING, interval_of, level, number, recorded
from tachoscope_alerts.spec.burn_rate_windows import DAY, HOUR, Tier, Timing, duration
from tachoscope_alerts.spec.policy import Policy
from tachoscope_alerts.spec.slo import Slices, Slo
from tachoscope_core.metrics.metric import IDENTITY, NAMESPACE

_PLACES = {"cluster": "cluster", NAMESPACE: "namespace", "team": "team"}
WHERE = "".join(f"{{{{ with $labels.{label} }}}}, {word} {{{{ . }}}}{{{{ end }}}}" for label, word in _PLACES.items())
"""Cluster, namespace and team of an alert, each if it has one, as Prometheus's template."""
_CHOOSING = ("cluster", NAMESPACE)
CHOSEN_PLACE = "".join(f"{{{{ with $labels.{label} }}}}&var-{label}={{{{ . | urlquery }}}}{{{{ end }}}}" for label in _CHOOSING)
"""Cluster and namespace of an alert, each if it has one, as variables of a board's URL; a board that lacks one takes no notice."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is known only when the alert fires, as text.

    Attributes:
        labels: values of the labels that the objective keeps, by label. where: cluster, namespace and team of it, as far as it has
            them. chosen: cluster and namespace as variables of a board's URL.
        bad: ratio of bad events, as a percentage. burn: times the ratio that the objective allows.
        left: of the budget, as a percentage, not below 0. hours: that an untouched budget lasts at this rate.
    """

    labels: Mapping[str, str]
    bad: str
    burn: str
    left: str
    hours: str
    where: str = ""
    chosen: str = ""


def annotations_of(slo: Slo, tier: Tier, policy: Policy, timing: Timing, said: Annotation | None = None) -> dict[str, str]:
    """Return the annotations of a tier's alert; `said` by default as templates."""
    said = said or templates(slo, tier, timing)
    variables = {label: _escaped(said.labels[label]) for label in slo.by if label not in IDENTITY}
    long, period = duration(timing.scaled(tier.long_seconds)), duration(timing.scaled(slo.period_days * DAY))
    what = "of the time" if isinstance(slo.indicator, Slices) else "of the events"
    own = ", ".join(f"{label} {said.labels[label]}" for label in slo.by if label not in IDENTITY)
    return {
        "summary": (
            f"{slo.title or slo.name}{f' of {own}' if own else ''}{said.where}: {said.bad} {what} in {long} were bad, "
            f"{said.burn} times what the objective allows; {said.left} of the error budget of {period} is left"
        ),
        "description": (
            f"{_sentence(slo.description)}The objective is {number(slo.target * 100)} % over {period}; at this rate the whole "
            f"budget is gone in {said.hours} h."
        ),
        "runbook_url": runbook_url(policy, slo.alert),
        "dashboard_url": dashboard_url(policy, slo.dashboard, {"slo": slo.name, **variables})
        + (said.chosen if slo.dashboard else ""),
    }


def templates(slo: Slo, tier: Tier, timing: Timing) -> Annotation:
    """Return what Prometheus fills in.

    What is left of the budget was recorded up to half an hour ago: it is at most what the events of the long window have left. Of a
    young service only a part of that window was measured, which is counted.
    """
    # Two evaluations back: the first group may be evaluated a moment before the second writes again.
    span, period = duration(2 * timing.slow_interval), timing.scaled(slo.period_days * DAY)
    of = level(tier.long_seconds, timing)
    remaining, measured = (_of_the_alert(name, slo) for name in (BUDGET_REMAINING, of.total))
    arguments = "".join(f" $labels.{label}" for label in slo.by)
    budget, hours = number(slo.budget), period / HOUR
    spent = number(100 * interval_of(of, timing) / period / slo.budget)
    looks = f"scalar(count_over_time({measured}[{duration(timing.scaled(tier.long_seconds))}]))"
    left = f"clamp_min(clamp_max(100 * last_over_time({remaining}[{span}]), 100 - {spent} * %g * {looks}), 0)"
    ask = f"printf `{left}`{arguments} $value{arguments}"
    return Annotation(
        labels={label: f"{{{{ $labels.{label} }}}}" for label in slo.by},
        bad="{{ $value | humanizePercentage }}",
        burn=f'{{{{ printf "%g / {budget}" $value | query | first | value | printf "%.1f" }}}}',
        left=f'{{{{ with {ask} | query }}}}{{{{ . | first | value | printf "%.0f" }}}} %{{{{ else }}}}an unknown part{{{{ end }}}}',
        hours=f'{{{{ printf "{number(hours)} * {budget} / %g" $value | query | first | value | printf "%.1f" }}}}',
        where=WHERE,
        chosen=CHOSEN_PLACE,
    )


def _of_the_alert(name: str, slo: Slo) -> str:
    """Return a recorded series of the alert's labels, as a format of `printf`."""
    return recorded(name, slo, **dict.fromkeys(slo.by, "%q")).replace('"%q"', "%q")


def filled_in(slo: Slo, timing: Timing, labels: Mapping[str, str], ratio: float, left: float) -> Annotation:
    """Return the filled-in templates; `ratio`: of bad events, `left`: part of the budget."""
    budget, hours = float(number(slo.budget)), float(number(timing.scaled(slo.period_days * DAY) / HOUR))
    return Annotation(
        labels=labels,
        bad=f"{100 * ratio:.4g}%",
        burn=f"{ratio / budget:.1f}",
        left=f"{max(100 * left, 0.0):.0f} %",
        hours=f"{hours * budget / ratio:.1f}",
        where="".join(f", {word} {labels[label]}" for label, word in _PLACES.items() if labels.get(label)),
        chosen="".join(f"&var-{label}={labels[label]}" for label in _CHOOSING if labels.get(label)),
    )


def _escaped(value: str) -> str:
    """Return a label's value as a part of a URL; the names in tests need no escaping."""
    return value.replace(" }}", " | urlquery }}")


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return "" if not words else f"{words} " if words.endswith((".", "!", "?")) else f"{words}. "
