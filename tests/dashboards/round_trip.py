"""Boards through the types of Grafana 13 (grafana-foundation-sdk): what comes back differently is unknown there, or misspelt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboardv2
from grafana_foundation_sdk.models.dashboard import Dashboard

plugins.register_default_plugins()  # without them options of panels and queries have no types, and all comes back
KNOWN_LOSSES = (
    # The data source's own part of a mark, which the SDK's common type does not have:
    # https://grafana.com/docs/grafana/latest/datasources/prometheus/annotations/
    re.compile(r"annotations\.list\[\d+\]\.(expr|titleFormat|textFormat|tagKeys|step|useValueForTime)"),
    # What Grafana's pages show of a variable's query; Grafana writes it itself.
    re.compile(r"templating\.list\[\d+\]\.definition"),
)


def losses(board: dict[str, Any]) -> list[str]:
    """Return what of a board does not come back from the types, with its path; what they add are defaults."""
    back = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(board)))
    return [loss for loss in _lost(board, back, "") if not any(known.match(loss) for known in KNOWN_LOSSES)]


def losses_of_v2(resource: dict[str, Any]) -> list[str]:
    """Return what of a resource in schema V2 does not come back from the types."""
    back = json.loads(json.dumps(dashboardv2.Dashboard.from_json(resource["spec"]), default=_plain))
    # The types know of no query of a variable, in either schema.
    known = re.compile(r"variables\[\d+\]\.spec\.query\.spec\.query")
    return [loss for loss in _lost(resource["spec"], back, "") if not known.match(loss)]


def _plain(value: Any) -> Any:
    # Version 0.0.21 of the SDK makes sets of the fields of VizConfig.
    return next(iter(value)) if isinstance(value, set) else value.to_json()


def _lost(sent: Any, back: Any, path: str) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(back, dict):
        for key, value in sent.items():
            place = f"{path}.{key}".lstrip(".")
            if key in back:
                yield from _lost(value, back[key], place)
            elif value is not None:  # null is what is not set
                yield f"{place}: lost"
    elif isinstance(sent, list) and isinstance(back, list) and len(sent) == len(back):
        for number, (one, other) in enumerate(zip(sent, back, strict=True)):
            yield from _lost(one, other, f"{path}[{number}]")
    elif sent != back:
        yield f"{path}: {sent!r} came back as {back!r}"
