"""The collector `nccl_ras`: asks NCCL's RAS about the communicators of the node's jobs, now and then, one question at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tachoscope_core.metrics import nccl as names
from tachoscope_core.metrics.metric import Metric
from tachoscope_node.collectors.collector import NoDataError, NotSupportedError, PartialError
from tachoscope_node.nccl.ras_client import NobodyError, Question, RasError, UnsafeError
from tachoscope_node.nccl.ras_report import Communicators, is_safe, read
from tachoscope_service.metrics.family import Family


class RasCollector:
    """Goes on with its question at each run, without ever waiting; between two answers it gives what the last one said.

    Args:
        wait_for: what speaks against asking now, such as a job that starts; empty: nothing. log: gets a sentence for each
            communicator that hangs, lacks ranks or has an error, and one when that is over.
    """

    name: Final = "nccl_ras"
    interval_seconds: Final = 1.0
    metrics: Final[tuple[Metric, ...]] = (names.RAS_UP, names.COMMUNICATORS, names.MISSING_RANKS)

    def __init__(
        self,
        address: tuple[str, int],
        *,
        hung_polls: int,
        poll_seconds: float,
        wait_for: Callable[[], str],
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._hung_polls = hung_polls
        self._poll_seconds = poll_seconds
        self._wait_for = wait_for
        self._log = log
        self._clock = clock
        self._question: Question | None = None
        self._due = float("-inf")
        self._fault = ""
        self._known: Communicators | None = None

    def collect(self) -> list[Family]:
        """Return what the last answer says.

        Raises:
            NoDataError: nobody is to be asked now, or nobody listens. NotSupportedError: NCCL's version is not safe to query.
            PartialError: it does not answer as it should.
        """
        if reason := self._wait_for():
            self._forget()
            raise NoDataError(reason)
        try:
            self._go_on(self._clock())
        except NobodyError:
            self._forget()
            raise NoDataError(f"no answer at {self._where}: no job with NCCL is running, or NCCL_RAS_ENABLE=0") from None
        except UnsafeError as error:
            self._forget()
            raise NotSupportedError(f"{self._where}: {error}") from None
        except RasError as error:
            self._hang_up()
            self._fault, self._known = str(error), None
        if self._fault:
            raise PartialError(f"{self._where}: {self._fault}", [Family(names.RAS_UP, [((), 0.0)])])
        if self._known is None:
            raise NoDataError
        return [
            Family(names.RAS_UP, [((), 1.0)]),
            Family(names.COMMUNICATORS, [((state,), count) for state, count in self._known.states().items()]),
            Family(names.MISSING_RANKS, [((condition,), count) for condition, count in self._known.missing().items()]),
        ]

    def close(self) -> None:
        """Close the connection to RAS, and ask no more."""
        self._hang_up()

    @property
    def _where(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _go_on(self, now: float) -> None:
        if self._question is None:
            if now < self._due:
                return
            self._due = now + self._poll_seconds
            self._question = Question(self._address, now)
        answer = self._question.advance(now)
        if answer is None:
            return
        self._hang_up()
        try:
            report = read(answer)
        except ValueError as error:
            raise RasError(f"invalid answer: {error}") from None
        if not is_safe(report.nccl_version):
            raise UnsafeError(f"NCCL {report.nccl_version[:32]} is not safe to query")
        self._fault, self._known = "", self._known or Communicators(self._hung_polls)
        for sentence in self._known.add_report(report):
            self._log(f"collector nccl_ras: {sentence}")

    def _hang_up(self) -> None:
        if self._question is not None:
            self._question.close()
            self._question = None

    def _forget(self) -> None:
        self._hang_up()
        self._fault, self._known = "", None
