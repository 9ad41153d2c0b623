"""Objectives that were written for Sloth (https://sloth.dev): `version: prometheus/v1`, and its Kubernetes resource.

Labels of the generated rules, and where Sloth sends its alerts, have no effect: the policy says who is told. The period is 30 days,
as Sloth's default.
"""

from __future__ import annotations

from tachoscope_alerts.spec import queries
from tachoscope_alerts.spec.foreign import Promise, Wording, alert_of, labels_of, name_of, objective, owner_of, percent, unread
from tachoscope_alerts.spec.slo import Slo
from tachoscope_core.located_yaml import Section, Value

VERSION = "prometheus/v1"
RESOURCE = ("sloth.slok.dev/v1", "PrometheusServiceLevel")
_DOCUMENT = ("version", "service", "labels", "slos", "slo_plugins", "sloPlugins")
_SLO = ("name", "description", "objective", "labels", "sli", "alerting", "plugins")
_ALERTING = ("name", "labels", "annotations", "page_alert", "pageAlert", "ticket_alert", "ticketAlert")
_ALERT = ("disable", "labels", "annotations")
_PERIOD_DAYS = 30.0


def read(document: Value) -> list[Slo]:
    """Return the objectives of a document.

    Raises:
        TachoscopeError: its first mistake, or what cannot be evaluated here: file, line, key and the accepted form.
    """
    section = document.section()
    if "apiVersion" in section.values:
        section = section.required("spec", "add the spec").section(_DOCUMENT)
    else:
        section = document.section(_DOCUMENT)
    service = section.required("service", "name the service that the objectives are of").text()
    plugins = [value for key in ("slo_plugins", "sloPlugins") if (value := section.get(key)) is not None]
    found = section.required("slos", "add slos: [{name: ...}]").items()
    return [_slo(one.section(_SLO), service, section.get("labels"), plugins) for one in found]


def _slo(one: Section, service: str, labels: Value | None, plugins: list[Value]) -> Slo:
    place = one.required("name", "name the objective")
    name = name_of(f"{service}-{place.text()}", place)
    alerting = one.values["alerting"].section(_ALERTING) if "alerting" in one.values else Section(one.place, {})
    given, description = alerting.get("name"), one.get("description")
    ignored = [*plugins, *unread(alerting, ["name"]), *([one.values["plugins"]] if "plugins" in one.values else [])]
    said = Wording(
        name=name,
        title=f"{service}: {place.text()}",
        description=description.text() if description else "",
        owner=owner_of(labels_of(labels), labels_of(one.get("labels"))),
        alert=alert_of(given.text() if given else "", name),
        pages=_enabled(alerting, "page_alert", "pageAlert"),
        tickets=_enabled(alerting, "ticket_alert", "ticketAlert"),
        not_honoured=[value for value in ignored if set(value.lines()) != {"disable"}],
    )
    return objective(one.place, said, _promise(one))


def _enabled(alerting: Section, *keys: str) -> bool:
    places = [place for key in keys if (place := alerting.get(key)) is not None]
    return not any(flag.flag() for place in places if (flag := place.section(_ALERT).get("disable")) is not None)


def _promise(one: Section) -> Promise:
    target = percent(one.required("objective", "add objective: 99.9"))
    sli = one.required("sli", "add sli: {events: {error_query: ..., total_query: ...}}").section(("events", "raw", "plugin"))
    for key, why in (
        ("raw", "is a ratio already, which cannot be summed over a window"),
        ("plugin", "needs a program of Sloth"),
    ):
        if (place := sli.get(key)) is not None:
            raise place.error(why, "write events: {error_query: ..., total_query: ...}")
    of = sli.required("events", "add events").section(("error_query", "total_query", "errorQuery", "totalQuery"))
    bad, total = _query(of, "error_query", "errorQuery"), _query(of, "total_query", "totalQuery")
    indicator, by = queries.events((total, queries.counted(total)), (bad, queries.counted(bad)), "bad")
    return Promise(indicator, by, target, _PERIOD_DAYS)


def _query(section: Section, *keys: str) -> Value:
    for key in keys:
        if (place := section.get(key)) is not None:
            return place
    raise section.place.error(f"lacks {keys[0]}", "add the query")
