"""Who has said the password: sessions, and how long one waits after wrong ones. In memory only: a restart asks everybody again."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LIFE_SECONDS = 12 * 3600.0
"""A session's, however much it is used."""
_MOST_SESSIONS = 10_000
_FREE_TRIES = 5
_LONGEST_WAIT_SECONDS = 60.0
_FORGOTTEN_SECONDS = 3600.0
_MOST_ADDRESSES = 10_000

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Session:
    """One browser that knew the password. `ends`: by the clock. `over`: set when it logs out."""

    ends: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Sessions:
    """The sessions of one server, by the word that their browser keeps."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Session] = {}

    def begin(self) -> str:
        """Begin a session; return its word. Of very many the oldest ends."""
        self._known = {word: one for word, one in self._known.items() if one.ends > self._clock()}
        while len(self._known) >= _MOST_SESSIONS:
            self.end(next(iter(self._known)))
        word = secrets.token_urlsafe(32)
        self._known[word] = Session(self._clock() + LIFE_SECONDS)
        return word

    def find(self, word: str) -> Session | None:
        """Return the session of a word while it lasts."""
        found = self._known.get(word)
        return found if found is not None and found.ends > self._clock() else None

    def end(self, word: str) -> None:
        """End a session and what is open under it."""
        if found := self._known.pop(word, None):
            found.over.set()

    def seconds_left(self, session: Session) -> float:
        """Return how long a session still lasts."""
        return max(0.0, session.ends - self._clock())


@dataclass(slots=True)
class _Tries:
    count: int
    last: float


class Tries:
    """Wrong passwords by the address they come from: after five of them each one makes the next wait, longer and longer.

    A network of IPv6 counts as one address: whoever has one has 2^64 of them.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._of: dict[str, _Tries] = {}

    def wait(self, address: str) -> float:
        """Return for how many seconds no password from there is looked at; 0: try."""
        tries = self._of.get(_network(address))
        if tries is None or tries.count < _FREE_TRIES:
            return 0.0
        pause = min(2.0 ** min(tries.count - _FREE_TRIES, 16), _LONGEST_WAIT_SECONDS)
        return max(0.0, tries.last + pause - self._clock())

    def count(self, address: str) -> None:
        """Count a try. Before it is looked at: many at once are as many tries as one after the other."""
        now, network = self._clock(), _network(address)
        self._of = {one: tries for one, tries in self._of.items() if tries.last > now - _FORGOTTEN_SECONDS}
        before = self._of.pop(network, None)
        while len(self._of) >= _MOST_ADDRESSES:
            del self._of[next(iter(self._of))]  # the one that has been quiet for longest
        self._of[network] = _Tries(before.count + 1 if before else 1, now)

    def forgive(self, address: str) -> None:
        """Forget what came from there: the password was right."""
        self._of.pop(_network(address), None)


def _network(address: str) -> str:
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    if number.version == 6 and number.ipv4_mapped is None:
        return str(ipaddress.ip_network((number, 64), strict=False))
    return str(getattr(number, "ipv4_mapped", None) or number)
