"""A piece of advice: its words, and the same in a form that a program can follow. Both are made by one function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tachoscope_core.report.report import AdvisedSettings


@dataclass(frozen=True, slots=True)
class Advised:
    """What to do.

    Attributes:
        text: for a person, empty without advice. settings: what to set, by name, see `AdvisedSettings`; empty where it is not
            a setting, or a condition must be looked at first.
        expected: seconds of a step then, None: the model does not know.
    """

    text: str = ""
    settings: Mapping[str, bool | int | float] = field(default_factory=dict)
    expected: float | None = None

    @property
    def in_report(self) -> AdvisedSettings | None:
        """The form that stands in the report; None where there is nothing to set."""
        if not self.settings:
            return None
        return AdvisedSettings(settings=dict(self.settings), expected_step_seconds=self.expected)


NONE = Advised()
