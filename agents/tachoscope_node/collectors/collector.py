"""What a collector is: a name, the metrics it may give, and one method. It catches nothing: the frame does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.family import Family

HOST_INTERVAL_SECONDS = 5.0


class NoDataError(Exception):
    """There is nothing of the kind now, as on a node that no rank runs on. Not a failure; without a text not worth a line either.

    Attributes:
        families: what holds all the same.
    """

    def __init__(self, text: str = "", families: Sequence[Family] = ()) -> None:
        super().__init__(text)
        self.families = tuple(families)


class PartialError(Exception):
    """A failure of which something is known all the same, as that the GPUs are down.

    Attributes:
        families: what holds.
    """

    def __init__(self, text: str, families: Sequence[Family]) -> None:
        super().__init__(text)
        self.families = tuple(families)


class NotSupportedError(Exception):
    """This machine cannot tell, as one without the driver. Not a failure; tried again rarely."""


class Collector(Protocol):
    """One subject that the agent collects.

    Attributes:
        name: value of the label `collector`. interval_seconds: between two runs. metrics: all that `collect` may give.
    """

    @property
    def name(self) -> str: ...

    @property
    def interval_seconds(self) -> float: ...

    @property
    def metrics(self) -> tuple[Metric, ...]: ...

    def collect(self) -> list[Family]:
        """Return what holds now, or raise NoDataError or NotSupportedError; whatever else it raises is a failure."""
        ...
