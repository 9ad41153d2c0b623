"""Who is told of an alert, by which way, and when somebody else is told: `alerts/policy.yaml`.

It holds no secret: keys and passwords are paths of files (`..._file`) that Alertmanager reads itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args
from urllib.parse import urlsplit

import yaml

from tachoscope_alerts.spec.slo import Severity
from tachoscope_core import located_yaml
from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value

INTEGRATIONS: Mapping[str, tuple[str, ...]] = {
    "email": ("to", "from", "smarthost"),
    "pagerduty": ("routing_key_file",),
    "slack": ("api_url_file",),
    "webhook": ("url",),
}
"""Ways to tell somebody, by Alertmanager's names, each with the settings that it cannot do without."""

_SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_SECRETS = frozenset(
    (
        *(
            "api_key",
            "api_url",
            "auth_identity_secret",
            "auth_password",
            "auth_secret",
            "authorization_credentials",
            "bearer_token",
        ),
        *("bot_token", "client_secret", "credentials", "key", "password", "routing_key", "secret", "service_key", "token"),
    )
)
"""Settings of Alertmanager that are secrets; most have a twin that ends in `_file`."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KEYS = (
    *("runbook_base", "dashboard_base", "explorer_base", "owners", "fallback", "dead_mans_switch"),
    *("escalation", "budget", "postmortem_above", "maintenance"),
)
_T = TypeVar("_T", bound=str)


@dataclass(frozen=True, slots=True)
class Receiver:
    """One way to tell somebody. `integration`: of `INTEGRATIONS`; `settings`: Alertmanager's own of it."""

    integration: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Team:
    """A team. `contact`: where people reach it. `page`, `ticket`: how it is told, by all of these at once."""

    name: str
    contact: str
    page: tuple[Receiver, ...]
    ticket: tuple[Receiver, ...]

    def receivers(self, severity: Severity) -> tuple[Receiver, ...]:
        return self.page if severity == "page" else self.ticket


@dataclass(frozen=True, slots=True)
class EscalationStep:
    """What happens with an alert that still burns after some minutes: `who` `what`, which together are a sentence."""

    after_minutes: float
    who: str
    what: str


@dataclass(frozen=True, slots=True)
class BudgetStep:
    """What follows when less than a part of an error budget is left, 1 of an untouched one."""

    remaining_below: float
    what: str


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Times in which some owners are not told. `intervals`: as Alertmanager's `time_intervals` has them."""

    name: str
    owners: tuple[str, ...]
    severities: tuple[Severity, ...]
    intervals: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy.

    Attributes:
        owners: by name. fallback: the one that gets what no owner has.
        escalation: by severity, in the order of time. budget: from the most that is left to the least.
        postmortem_above: part of a budget; an incident that spent more is written up.
        maintenance: windows. runbook_base, dashboard_base, explorer_base: URLs without a slash at the end.
        dead_mans_switch: who is told all the time that alerts arrive. path: where the policy was read.
    """

    owners: Mapping[str, Team]
    fallback: str
    escalation: Mapping[Severity, tuple[EscalationStep, ...]]
    budget: tuple[BudgetStep, ...]
    postmortem_above: float
    maintenance: tuple[Maintenance, ...]
    runbook_base: str
    dashboard_base: str
    explorer_base: str
    dead_mans_switch: tuple[Receiver, ...]
    path: str = ""


def load(path: Path) -> Policy:
    """Read a policy.

    Raises:
        TachoscopeError: it cannot be used; with file, line, what is wrong there, and the way out.
    """
    documents = located_yaml.documents(path)
    if len(documents) != 1:
        raise TachoscopeError(f"{path} holds {len(documents)} documents, not one", fix="see docs/guides/alerting.md for an example")
    parts = documents[0].section(_KEYS)
    owners = _owners(_need(parts, "owners"))
    maintenance = parts.get("maintenance")
    return Policy(
        owners=owners,
        fallback=_one_of(_need(parts, "fallback"), tuple(owners)),
        escalation=_escalation(_need(parts, "escalation")),
        budget=_budget(_need(parts, "budget")),
        postmortem_above=_ratio(_need(parts, "postmortem_above")),
        maintenance=_maintenance(maintenance, tuple(owners)) if maintenance else (),
        runbook_base=_base(_need(parts, "runbook_base")),
        dashboard_base=_base(_need(parts, "dashboard_base")),
        explorer_base=_base(_need(parts, "explorer_base")),
        dead_mans_switch=_receivers(_need(parts, "dead_mans_switch")),
        path=str(path),
    )


def _need(section: Section, key: str) -> Value:
    return section.required(key, f"add {key}: as in docs/guides/alerting.md")


def _owners(value: Value) -> dict[str, Team]:
    found = {}
    for name, owner in value.section().values.items():
        if not _NAME.fullmatch(name):
            raise owner.error("cannot be a label and a receiver's name", "use small letters, digits and hyphens")
        parts = owner.section(("contact", "page", "ticket"))
        page, ticket = _receivers(_need(parts, "page")), _receivers(_need(parts, "ticket"))
        found[name] = Team(name, _need(parts, "contact").word(), page, ticket)
    if not found:
        raise value.error("has no members", "name at least the team that the alerts go to")
    return found


def _receivers(value: Value) -> tuple[Receiver, ...]:
    """Return the receivers of a team: a mapping from integration to settings."""
    found = []
    for integration, place in value.section(INTEGRATIONS).values.items():
        settings = place.section()
        _refuse_secrets(place)
        for name in INTEGRATIONS[integration]:
            settings.required(name, f"add {name}:")
        if (url := settings.get("url")) is not None:
            _url(url)
        found.append(Receiver(integration, _plain(place)))
    if not found:
        raise value.error("has no receiver", f"name one of {', '.join(INTEGRATIONS)}")
    return tuple(found)


def _plain(value: Value) -> dict[str, Any]:
    try:
        found: dict[str, Any] = yaml.safe_load(yaml.serialize(value.node))
    except yaml.YAMLError:
        raise value.error("holds what is not a plain value", "write texts, numbers, lists and keys") from None
    return found


def _refuse_secrets(value: Value) -> None:
    """Raise if a setting contains a secret, without its value in the message."""
    if isinstance(value.node, yaml.SequenceNode):
        for item in value.items():
            _refuse_secrets(item)
    if isinstance(value.node, yaml.MappingNode):
        for key, part in value.section().values.items():
            if key in _SECRETS and isinstance(part.node, yaml.ScalarNode):
                raise part.error("is a secret", f"write it into a file, and {key}_file: with its path")
            _refuse_secrets(part)


def _url(value: Value) -> str:
    text = value.word()
    try:
        parts = urlsplit(text)
        usable, has_password = parts.scheme in {"http", "https"} and bool(parts.hostname), parts.password is not None
    except ValueError:
        usable = has_password = False
    if has_password:
        raise value.error("holds a password", "give it as http_config: {basic_auth: {username:, password_file:}}")
    if not usable:
        raise value.error(f"is {text!r}, which is not an http address", "write https://host/path")
    return text


def _base(value: Value) -> str:
    """Return a base URL, without query and fragment, which would swallow what is appended."""
    text = _url(value)
    if set(text) & {"?", "#"}:
        raise value.error(f"is {text!r}, with a query or a fragment, to which no path can be appended", "write https://host/path")
    return text.rstrip("/")


def _escalation(value: Value) -> dict[Severity, tuple[EscalationStep, ...]]:
    parts = value.section(_SEVERITIES)
    found: dict[Severity, tuple[EscalationStep, ...]] = {}
    for severity in _SEVERITIES:
        steps: list[EscalationStep] = []
        for item in _need(parts, severity).items():
            step = item.section(("after_minutes", "who", "what"))
            minutes = _need(step, "after_minutes")
            if minutes.number() < (steps[-1].after_minutes if steps else 0.0):
                raise minutes.error(f"is {minutes.number():g}, before the step above", "sort the steps by time")
            steps.append(EscalationStep(minutes.number(), _need(step, "who").word(), _need(step, "what").word()))
        found[severity] = tuple(steps)
    return found


def _budget(value: Value) -> tuple[BudgetStep, ...]:
    found: list[BudgetStep] = []
    for item in value.items():
        step = item.section(("remaining_below", "what"))
        below = _need(step, "remaining_below")
        if found and _ratio(below) >= found[-1].remaining_below:
            raise below.error(f"is {below.number():g}, not below the step above", "sort the steps, the most left first")
        found.append(BudgetStep(_ratio(below), _need(step, "what").word()))
    return tuple(found)


def _maintenance(value: Value, owners: tuple[str, ...]) -> tuple[Maintenance, ...]:
    found: dict[str, Maintenance] = {}
    for item in value.items():
        parts = item.section(("name", "owners", "severities", "intervals"))
        name = _need(parts, "name")
        if name.word() in found:
            raise name.error(f"is {name.word()!r}, as that of another window", "give each a different name")
        intervals = _need(parts, "intervals")
        if not intervals.items():
            raise intervals.error("mutes nothing", "write at least one interval")
        found[name.word()] = Maintenance(
            name.word(),
            tuple(_one_of(owner, owners) for owner in _some(_need(parts, "owners"))),
            tuple(_one_of(severity, _SEVERITIES) for severity in _some(_need(parts, "severities"))),
            # All of it texts: YAML would take the time 22:00 for the number 1320.
            tuple(yaml.load(yaml.serialize(one.node), Loader=yaml.BaseLoader) for one in intervals.items()),  # noqa: S506
        )
    return tuple(found.values())


def _some(value: Value) -> list[Value]:
    if not value.items():
        raise value.error("is an empty list", "name at least one")
    return value.items()


def _one_of(value: Value, known: tuple[_T, ...]) -> _T:
    word = value.word()
    for name in known:
        if name == word:
            return name
    raise value.error(f"is {word!r}", f"there are {', '.join(known)}")


def _ratio(value: Value) -> float:
    number = value.number()
    if not 0.0 <= number <= 1.0:
        raise value.error(f"is {number:g}", "write a part of 1, such as 0.5")
    return number
