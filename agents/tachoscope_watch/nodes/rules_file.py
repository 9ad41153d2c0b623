"""Reads the rules of the nodes' life cycle, `nodes.yaml`; each error names the line and the key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

from tachoscope_core.errors import TachoscopeError
from tachoscope_core.located_yaml import Section, Value, documents
from tachoscope_watch.nodes.states import Actions, Kind, Rules

_KEYS = (
    *("scheduler", "actions", "most_out", "breaker", "evidence", "quarantine_at", "again_at", "window", "probation", "test"),
    "every",
)
_SCHEDULERS = ("slurm", "kubernetes")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")


def read_rules(path: Path) -> Rules:
    """Read a file of rules.

    Raises:
        TachoscopeError: with file, line and key: it cannot be read, a key is unknown or has no valid value.
    """
    found = documents(path)
    if len(found) != 1:
        raise TachoscopeError(f"{path} has {len(found)} documents", fix="a file has the rules of one cluster")
    section = found[0].section(_KEYS)
    default = Rules(scheduler="slurm")
    breaker, test = _section(section, "breaker", ("most", "within")), _section(section, "test", ("timeout", "again_after", "pod"))
    scheduler = _word(section.required("scheduler", "write `scheduler: slurm`"), _SCHEDULERS)
    number, percent = _limit(section.required("most_out", "write `most_out: 5%`, or a number of nodes"))
    return Rules(
        scheduler=scheduler,  # type: ignore[arg-type]
        actions=_actions(section.get("actions")),
        most_out=number,
        most_out_percent=percent,
        breaker_most=_count(breaker, "most", default.breaker_most, least=1),
        breaker_seconds=_seconds(breaker, "within", default.breaker_seconds),
        weights=default.weights | _weights(section.get("evidence")),
        quarantine_at=_count(section, "quarantine_at", default.quarantine_at, least=1),
        again_at=_count(section, "again_at", default.again_at, least=1),
        window_seconds=_seconds(section, "window", default.window_seconds),
        probation_seconds=_seconds(section, "probation", default.probation_seconds),
        test_seconds=_seconds(test, "timeout", default.test_seconds),
        test_again_seconds=_seconds(test, "again_after", default.test_again_seconds),
        test_pod=_pod(test, scheduler),
        every_seconds=_seconds(section, "every", default.every_seconds),
    )


def _section(section: Section, key: str, known: tuple[str, ...]) -> Section | None:
    value = section.get(key)
    return value.section(known) if value is not None else None


def _word(value: Value, known: tuple[str, ...]) -> str:
    if value.word() not in known:
        raise value.error(f"is {value.word()!r}", f"known are {', '.join(known)}")
    return value.word()


def _actions(value: Value | None) -> Actions:
    if value is None:
        return "off"
    # YAML's own word for a boolean is what a person writes here.
    return _word(value, get_args(Actions))  # type: ignore[return-value]


def _limit(value: Value) -> tuple[int | None, float | None]:
    match = _PERCENT.fullmatch(value.word())
    if match is None:
        return value.count(least=1), None
    percent = float(match[1])
    if not 0 < percent <= 100:
        raise value.error(f"is {value.word()}", "write a percentage from 1 % to 100 %")
    return None, percent


def _weights(value: Value | None) -> dict[Kind, int]:
    kinds = get_args(Kind)
    return {kind: weight.count() for kind, weight in value.section(kinds).values.items()} if value is not None else {}  # type: ignore[misc]


def _pod(test: Section | None, scheduler: str) -> dict[str, Any]:
    value = test.get("pod") if test is not None else None
    if value is None:
        return {}
    if scheduler != "kubernetes":
        raise value.error(f"is only for kubernetes, not for {scheduler}", "run `tachoscope nodes test` as HealthCheckProgram")
    containers = value.section().required("containers", "write a PodSpec with the container that runs `tachoscope nodes test`")
    for container in containers.items():
        container.section()
    return value.plain()  # type: ignore[no-any-return]


def _count(section: Section | None, key: str, default: int, *, least: int) -> int:
    value = section.get(key) if section is not None else None
    return default if value is None else value.count(least=least)


def _seconds(section: Section | None, key: str, default: float) -> float:
    value = section.get(key) if section is not None else None
    if value is None:
        return default
    seconds = value.seconds()
    if seconds < 1.0:
        raise value.error(f"is {value.word()}", "write at least 1s")
    return seconds
