"""What a collector is: a name, the metrics it may give, and one method. It catches nothing: the frame does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tachoscope_core.metrics.metric import Metric
from tachoscope_service.metrics.family import Family

HOST_INTERVAL_SECONDS = 5.0


class NoDataError(Exception):
    """No data now, such as without ranks on the node. Not a failure, and not logged without a text.

    Attributes:
        families: metrics that hold all the same.
    """

    def __init__(self, text: str = "", families: Sequence[Family] = ()) -> None:
        super().__init__(text)
        self.families = tuple(families)


class PartialError(Exception):
    """A failure with partial data, such as that the GPUs are down.

    Attributes:
        families: metrics that hold.
    """

    def __init__(self, text: str, families: Sequence[Family]) -> None:
        super().__init__(text)
        self.families = tuple(families)


class NotSupportedError(Exception):
    """The machine does not support it, such as without the driver. Not a failure; retried rarely."""


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
