"""Who is told of an alert, by which way, and when somebody else is told: `alerts/policy.yaml`.

It holds no secret: keys and passwords are paths of files (`..._file`) that Alertmanager reads itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import yaml

from tachoscope_alerts.policy_reader import Reader
from tachoscope_alerts.slo import Severity

INTEGRATIONS: Mapping[str, tuple[str, ...]] = {
    "email": ("to", "from", "smarthost"),
    "pagerduty": ("routing_key_file",),
    "slack": ("api_url_file",),
    "webhook": ("url",),
}
"""Ways to tell somebody, by Alertmanager's names, each with the settings that it cannot do without."""

_SEVERITIES: tuple[Severity, ...] = get_args(Severity)
_SECRETS = frozenset(
    ("api_key", "api_url", "auth_identity_secret", "auth_password", "auth_secret", "authorization_credentials", "bearer_token")
    + ("bot_token", "client_secret", "credentials", "key", "password", "routing_key", "secret", "service_key", "token")
)
"""Settings of Alertmanager that are secrets; most have a twin that ends in `_file`."""
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Receiver:
    """One way to tell somebody. `integration`: of `INTEGRATIONS`; `settings`: Alertmanager's own of it."""

    integration: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """A team. `contact`: where people reach it. `page`, `ticket`: how it is told, by all of these at once."""

    name: str
    contact: str
    page: tuple[Receiver, ...]
    ticket: tuple[Receiver, ...]

    def receivers(self, severity: Severity) -> tuple[Receiver, ...]:
        """Return how it is told of alerts of a severity."""
        return self.page if severity == "page" else self.ticket


@dataclass(frozen=True, slots=True)
class Step:
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
        maintenance: windows. runbook_base, dashboard_base: URLs without a slash at the end.
        dead_mans_switch: who is told all the time that alerts arrive. path: where the policy was read.
    """

    owners: Mapping[str, Owner]
    fallback: str
    escalation: Mapping[Severity, tuple[Step, ...]]
    budget: tuple[BudgetStep, ...]
    postmortem_above: float
    maintenance: tuple[Maintenance, ...]
    runbook_base: str
    dashboard_base: str
    dead_mans_switch: tuple[Receiver, ...]
    path: str = ""

    def consequence(self, remaining_ratio: float) -> str:
        """Return what follows from so much of a budget being left; "" while enough is."""
        reached = [step for step in self.budget if remaining_ratio < step.remaining_below]
        return min(reached, key=lambda step: step.remaining_below).what if reached else ""


def load(path: Path) -> Policy:
    """Read a policy.

    Raises:
        TachoscopeError: with every fault of the file: its line, what is wrong there, and the way out.
    """
    reader = Reader(path, "policy")
    required = {"runbook_base", "dashboard_base", "owners", "fallback", "dead_mans_switch", "escalation", "budget"}
    parts = reader.mapping(reader.document(), "the policy", required | {"postmortem_above"}, {"maintenance"})
    owners = {owner.name: owner for owner in _owners(reader, parts.get("owners"))}
    policy = Policy(
        owners=owners,
        fallback=reader.one_of(parts.get("fallback"), "fallback", tuple(owners)),
        escalation=_escalation(reader, parts.get("escalation")),
        budget=_budget(reader, parts.get("budget")),
        postmortem_above=reader.number(parts.get("postmortem_above"), "postmortem_above", 0.0, 1.0),
        maintenance=_maintenance(reader, parts.get("maintenance"), tuple(owners)),
        runbook_base=_url(reader, parts.get("runbook_base"), "runbook_base").rstrip("/"),
        dashboard_base=_url(reader, parts.get("dashboard_base"), "dashboard_base").rstrip("/"),
        dead_mans_switch=_receivers(reader, parts.get("dead_mans_switch"), "dead_mans_switch"),
        path=str(path),
    )
    reader.finish()
    return policy


def _owners(reader: Reader, node: yaml.Node | None) -> list[Owner]:
    found = []
    for name, part in reader.named(node, "owners").items():
        if not _NAME.fullmatch(name):
            reader.fault(part, f"owner {name!r} cannot be a label and a receiver's name", "use small letters, digits and hyphens")
        parts = reader.mapping(part, f"owner {name}", {"contact", "page", "ticket"})
        told = [_receivers(reader, parts.get(severity), f"{severity} of {name}") for severity in ("page", "ticket")]
        found.append(Owner(name, reader.text(parts.get("contact"), f"contact of {name}"), told[0], told[1]))
    if node is not None and not found:
        reader.fault(node, "there are no owners", "name at least the team that the alerts go to")
    return found


def _receivers(reader: Reader, node: yaml.Node | None, what: str) -> tuple[Receiver, ...]:
    """Return the ways of one who is told: a mapping from integration to settings."""
    found = []
    for integration, part in reader.named(node, what).items():
        if integration not in INTEGRATIONS:
            reader.fault(part, f"{what}: {integration!r} is no way to tell somebody", f"there are {', '.join(INTEGRATIONS)}")
            continue
        settings = reader.named(part, f"{integration} of {what}")
        for missing in [name for name in INTEGRATIONS[integration] if name not in settings]:
            reader.fault(part, f"{integration} of {what} lacks {missing}", f"add {missing}:")
        _refuse_secrets(reader, part, f"{integration} of {what}")
        if "url" in settings:
            _url(reader, settings["url"], f"url of {what}")
        found.append(Receiver(integration, reader.plain(part)))
    if node is not None and not found:
        reader.fault(node, f"{what}: nobody is told", f"name one of {', '.join(INTEGRATIONS)}")
    return tuple(found)


def _refuse_secrets(reader: Reader, node: yaml.Node, what: str) -> None:
    """Note settings that hold a secret; what they hold is in no message."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_secrets(reader, item, what)
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.value in _SECRETS and isinstance(value, yaml.ScalarNode):
            reader.fault(key, f"{what}: {key.value} is a secret", f"write it into a file, and {key.value}_file: with its path")
        _refuse_secrets(reader, value, what)


def _url(reader: Reader, node: yaml.Node | None, what: str) -> str:
    text = reader.text(node, what)
    if not text or node is None:
        return ""
    try:
        parts = urlsplit(text)
        usable, secret = parts.scheme in {"http", "https"} and bool(parts.hostname), parts.password is not None
    except ValueError:
        usable = secret = False
    if secret:
        reader.fault(node, f"{what} holds a password", "give it as http_config: {basic_auth: {username:, password_file:}}")
    elif not usable:
        reader.fault(node, f"{what}: {text!r} is no http address", "write https://host/path")
    return text


def _escalation(reader: Reader, node: yaml.Node | None) -> dict[Severity, tuple[Step, ...]]:
    parts = reader.mapping(node, "escalation", set(_SEVERITIES))
    found: dict[Severity, tuple[Step, ...]] = {}
    for severity in _SEVERITIES:
        steps = []
        for item in reader.items(parts.get(severity), f"escalation of a {severity}"):
            step = reader.mapping(item, f"escalation of a {severity}", {"after_minutes", "who", "what"})
            minutes = reader.number(step.get("after_minutes"), "after_minutes", 0.0, 7 * 1440.0)
            steps.append(Step(minutes, reader.text(step.get("who"), "who"), reader.text(step.get("what"), "what")))
            if len(steps) > 1 and steps[-2].after_minutes >= minutes:
                reader.fault(item, f"a step after {minutes:g} minutes follows one of {steps[-2].after_minutes:g}", "sort them")
        found[severity] = tuple(steps)
    return found


def _budget(reader: Reader, node: yaml.Node | None) -> tuple[BudgetStep, ...]:
    found = []
    for item in reader.items(node, "budget"):
        step = reader.mapping(item, "a step of the budget", {"remaining_below", "what"})
        below = reader.number(step.get("remaining_below"), "remaining_below", 0.0, 1.0)
        found.append(BudgetStep(below, reader.text(step.get("what"), "what")))
        if len(found) > 1 and found[-2].remaining_below <= below:
            reader.fault(item, f"remaining_below: {below:g} follows {found[-2].remaining_below:g}", "sort them, the most left first")
    return tuple(found)


def _maintenance(reader: Reader, node: yaml.Node | None, owners: tuple[str, ...]) -> tuple[Maintenance, ...]:
    found = []
    for item in reader.items(node, "maintenance"):
        parts = reader.mapping(item, "a maintenance window", {"name", "owners", "severities", "intervals"})
        name = reader.text(parts.get("name"), "name of a maintenance window")
        what = f"maintenance {name}"
        named = tuple(reader.one_of(owner, f"owner of {what}", owners) for owner in reader.items(parts.get("owners"), what))
        severities = tuple(reader.one_of(one, f"severity of {what}", _SEVERITIES) for one in reader.items(parts.get("severities"), what))
        intervals = tuple(reader.texts_only(interval) for interval in reader.items(parts.get("intervals"), what))
        if not (named and severities and intervals):
            reader.fault(item, f"{what} mutes nothing", "name owners, severities and intervals")
        found.append(Maintenance(name, named, severities, intervals))
    for first, second in itertools.pairwise(sorted(window.name for window in found)):
        if first == second and node is not None:
            reader.fault(node, f"two maintenance windows are named {first!r}", "give each a name of its own")
    return tuple(found)
