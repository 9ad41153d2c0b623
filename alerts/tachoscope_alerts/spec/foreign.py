"""What objectives of other tools have in common: names that rules and runbooks can have, and defaults for what they do not say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tachoscope_alerts.spec.slo import Indicator, Slo
from tachoscope_core.located_yaml import Section, Value

AREA = "infrastructure"
"""Of an objective that does not say whether it is of training or inference."""
ALERT_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_MOST_NAME = 63
_OWNERS = ("owner", "team")


@dataclass(frozen=True, slots=True)
class Promise:
    """What a document promises. `by`: the labels that its queries keep."""

    indicator: Indicator
    by: tuple[str, ...]
    target: float
    period_days: float


@dataclass(frozen=True, slots=True)
class Wording:
    """How an objective and its alert are named; `not_honoured`: places of what has no effect here."""

    name: str
    title: str
    description: str
    owner: str
    alert: str
    pages: bool = True
    tickets: bool = True
    not_honoured: Iterable[Value] = ()


def objective(place: Value, said: Wording, promise: Promise) -> Slo:
    """Return the objective of a document at `place`."""
    return Slo(
        name=said.name,
        title=said.title or said.name,
        description=" ".join(said.description.split()),
        area=AREA,
        indicator=promise.indicator,
        by=promise.by,
        target=promise.target,
        period_days=promise.period_days,
        alert=said.alert,
        pages=said.pages,
        tickets=said.tickets,
        owner=said.owner,
        target_source=f"judgement: as written in {place.path}",
        dashboard="slos",
        path=place.path,
        line=place.line,
        lines=place.lines(),
        not_honoured={one.key: one.line for one in said.not_honoured},
        of_catalogue=False,
    )


def name_of(text: str, place: Value) -> str:
    """Return a name of lower-case letters, digits and dashes.

    Raises:
        TachoscopeError: nothing is left of the text, or too much.
    """
    found = "-".join(re.findall(r"[a-z0-9]+", text.lower()))
    if not found or len(found) > _MOST_NAME:
        raise place.error(f"makes the name {found!r}", f"a name has 1 to {_MOST_NAME} letters, digits and dashes")
    return found


def alert_of(text: str, name: str) -> str:
    """Return the name of a burn alert: the given one in one word, else one made of the objective's name."""
    if ALERT_NAME.fullmatch(text):
        return text
    words = re.findall(r"[A-Za-z0-9]+", text) or [*name.split("-"), "burn"]
    found = "".join(word[0].upper() + word[1:] for word in words)
    return found if ALERT_NAME.fullmatch(found) else f"Slo{found}"


def owner_of(*labels: Section | None) -> str:
    """Return the team that labels name, the last ones first."""
    for section in reversed(labels):
        for key in _OWNERS:
            if section is not None and (value := section.get(key)) is not None:
                return value.strings()[0]
    return ""


def percent(place: Value) -> float:
    """Return a target that is written in percent, as a number or a text.

    Raises:
        TachoscopeError: it is not above 0 and below 100.
    """
    try:
        found = float(place.word())
    except ValueError:
        found = float("nan")
    if not 0 < found < 100:
        raise place.error(f"is {place.word()!r}", "a target is between 0 and 100 percent, both excluded: 99.9")
    return round(found / 100, 12)


def labels_of(place: Value | None) -> Section | None:
    """Return labels, where there are any."""
    return None if place is None else place.section()


def unread(section: Section, read: Collection[str]) -> list[Value]:
    """Return the values of keys that are not among those that were read."""
    return [value for key, value in section.values.items() if key not in read]
