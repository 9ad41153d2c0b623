"""One row a run: what was injected, and what the analysis said. Kept as CSV: all tables can be made again without the runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from tachoscope_core.errors import TachoscopeError

NOTHING, UNKNOWN = "nothing", "unknown"
Ranks = list[int] | Literal["all"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What was injected. `seconds`: per step, by the injector's own clock."""

    slug: str
    ranks: Ranks
    seconds: float
    first_step: int = 0


@dataclass(frozen=True, slots=True)
class Named:
    """A finding; also of small losses (`Row.small`).

    Attributes:
        seconds: per step. confidence: as it is told. score: what it was before calibration (see `findings.calibration`).
        suspected: the class before the gate; another than `slug` where the name was withheld.
    """

    slug: str
    ranks: Ranks
    seconds: float
    share: float
    severity: str
    confidence: float
    score: float
    suspected: str
    runner_up: str = ""
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A run and its verdict.

    Attributes:
        severity: seconds of the fault over those of the clean step, as was aimed at; 0: clean, or a fault without such a measure.
        acceptable: classes beside the true one that are right too. steps: that were judged.
        named: the warnings, largest loss first. small: the losses of severity info, likewise; none in rows from
            before they were noted.
        not_measured: the classes that the report says it could not look for.
        steps_to_detect: steps of the fault after which the right class stays first; None: never, or not asked.
        skipped: why the run could not be made. error: why it could not be judged.
    """

    id: str
    set: str
    kind: str
    lookalike: str
    workload: str
    severity: float
    faults: tuple[Fault, ...]
    acceptable: tuple[str, ...]
    world_size: int
    steps: int
    clean_step_seconds: float
    named: tuple[Named, ...] = ()
    small: tuple[Named, ...] = ()
    not_measured: tuple[str, ...] = ()
    steps_to_detect: int | None = None
    skipped: str = ""
    error: str = ""

    @property
    def truth(self) -> str:
        """The class that was injected; of several the one that costs most; `nothing` in a clean run."""
        return max(self.faults, key=lambda fault: fault.seconds).slug if self.faults else NOTHING

    @property
    def predicted(self) -> str:
        """The first finding; `nothing` without one. A class that is right too counts as the true one."""
        if not self.named:
            return NOTHING
        return self.truth if self.named[0].slug in self.acceptable else self.named[0].slug

    @property
    def right(self) -> bool:
        """Whether the first finding is what was injected."""
        return self.predicted == self.truth

    @property
    def right_with_small(self) -> bool:
        """Whether the first loss is what was injected; without a warning that is the first small one."""
        return (replace(self, named=self.small) if not self.named else self).right

    @property
    def abstained(self) -> bool:
        """Whether a fault that has a name was found without it."""
        return self.predicted == UNKNOWN and self.truth not in (UNKNOWN, NOTHING)


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Write rows as CSV, in the order of their ids; what is not a number or text stands as JSON in its cell."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        for row in sorted(rows, key=lambda row: row.id):
            writer.writerow([_cell(value) for value in asdict(row).values()])


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(_rounded(value), separators=(",", ":"))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value


def read_rows(path: Path) -> list[Row]:
    """Read what `write_rows` wrote.

    Raises:
        TachoscopeError: the file lacks a column, or a cell cannot be read.
    """
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    try:
        return [_row(cells) for cells in table]
    except (KeyError, TypeError, ValueError) as error:
        raise TachoscopeError(
            f"{path} is not a table of runs: {type(error).__name__}: {error}", fix="python -m benchmarks.lab.accuracy RUNS"
        ) from None


def _row(cells: dict[str, str]) -> Row:
    texts = {"id", "set", "kind", "lookalike", "workload", "skipped", "error"}
    found: dict[str, Any] = {
        field.name: cells[field.name] if field.name in texts else json.loads(cells[field.name]) for field in fields(Row)
    }
    found["faults"] = tuple(Fault(**one) for one in found["faults"])
    for name in ("named", "small"):
        found[name] = tuple(Named(**one) for one in found[name])
    return Row(**found | {name: tuple(found[name]) for name in ("acceptable", "not_measured")})
