"""What goes on in the simulated fleet: nodes restart, are away, answer too late or join late, and jobs end and are started again.

Everything follows from the time since the fleet began, in cycles of eight scrapes, so that it is the same in each run. In 25 nodes
one does each of these: far more than in a real fleet, as each has to be seen in a few minutes. After some cycles the fleet is
quiet, so that rates over short windows can be compared without what servers make of counters that begin again.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.fleet.pages import UP_SECONDS, Lives
from benchmarks.fleet_series import Fleet

CYCLE_SCRAPES = 8
GROUP = 25
RESTARTS, AWAY, LATE, JOINS = 1, 2, 3, 4
"""What a node does, by its number in its group of 25; the others do nothing unusual."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When what happens.

    Attributes:
        begin: of the fleet, in Unix seconds. scrape_seconds: between two scrapes of a page. cycles: until the fleet is quiet.
    """

    fleet: Fleet
    begin: float
    scrape_seconds: float
    cycles: int = 1

    def joined(self, node: int, now: float) -> bool:
        """Whether service discovery knows the node: some come in the middle of the first cycle."""
        return node % GROUP != JOINS or now >= self.begin + CYCLE_SCRAPES / 2 * self.scrape_seconds

    def away(self, node: int, now: float) -> bool:
        """Whether the node answers nothing: for two scrapes of a cycle, one of which is before its restart."""
        place = self._place(now)
        return {RESTARTS: 3.0 <= place < 4.0, AWAY: 4.0 <= place < 6.0}.get(node % GROUP, False)

    def delay(self, node: int, now: float, timeout: float) -> float:
        """Return after how many seconds the node answers: once a cycle some do after the scrape has given up."""
        return timeout * 1.2 if node % GROUP == LATE and 1.0 <= self._place(now) < 2.0 else 0.0

    def lives(self, node: int, now: float) -> Lives:
        """Return since when the node and its job run: in one job in five a run ends with each cycle."""
        booted = self.begin - UP_SECONDS
        if node % GROUP == RESTARTS and (ended := self._cycles(now, 4.0)):
            booted = self._moment(ended - 1, 4.0)
        job = node * self.fleet.jobs // self.fleet.nodes
        run = self._cycles(now, 7.0) if job % 5 == 1 else 0
        started = self._moment(run - 1, 7.0) if run else self.begin - UP_SECONDS
        return Lives(booted, max(booted, started), run)

    def _place(self, now: float) -> float:
        return self._scrapes(now) % CYCLE_SCRAPES

    def _scrapes(self, now: float) -> float:
        """Return how many scrapes have passed, in which something can have happened."""
        return min((now - self.begin) / self.scrape_seconds, self.cycles * CYCLE_SCRAPES)

    def _cycles(self, now: float, place: float) -> int:
        """Return how often this place in a cycle was passed."""
        return int((self._scrapes(now) - place) // CYCLE_SCRAPES) + 1

    def _moment(self, cycle: int, place: float) -> float:
        return self.begin + (cycle * CYCLE_SCRAPES + place) * self.scrape_seconds
