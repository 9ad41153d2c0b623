"""Who may read the agent's pages: basic (bcrypt) and bearer credentials.

Knows nothing of sockets: takes the value of an Authorization header, gives a verdict. A right answer is remembered, so a scraper
costs no bcrypt per scrape. A guess costs bcrypt in one worker thread with a short queue, so that a flood of wrong passwords
neither delays those who are known nor takes more than one core.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import enum
import hmac
import os
import queue
import threading
from collections.abc import Callable, Mapping

import bcrypt

REMEMBERED = 100
"""Right answers that are kept; the one unused for longest goes first."""
WAITING = 16
"""Guesses that may wait for the worker thread."""
BCRYPT_BYTES = 72
"""bcrypt reads no more of a password. htpasswd and Go cut it there without a word, bcrypt 5 raises: so it is cut here."""


class AuthResult(enum.Enum):
    """The answer to a request's credentials."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    BUSY = "busy"
    """Too many guesses wait already: try again later."""


Later = Callable[[AuthResult], None]


class Auth:
    """Judges credentials. Without users and tokens everybody is allowed.

    Args:
        users: bcrypt hash by user name.
        tokens: bearer token by the name of its client.
        compare: says whether a password matches a hash; a parameter so that tests can make it slow.
    """

    def __init__(
        self, users: Mapping[str, bytes], tokens: Mapping[str, bytes], *, compare: Callable[[bytes, bytes], bool] = bcrypt.checkpw
    ) -> None:
        self._key = os.urandom(32)
        self._users = {name.encode(): hashed for name, hashed in users.items()}
        self._tokens = {name: self._digest(b"bearer", token) for name, token in tokens.items()}
        self._compare = compare
        self._lock = threading.Lock()
        self._remembered: dict[bytes, None] = {}
        self._waiting: dict[bytes, list[Later]] = {}
        self._queue: queue.Queue[tuple[bytes, bytes, bytes] | None] = queue.Queue(WAITING)
        self._worker: threading.Thread | None = None
        self._closed = False
        self.asks = bool(users or tokens)

    @property
    def challenges(self) -> tuple[str, ...]:
        """What to offer in WWW-Authenticate."""
        basic = ('Basic realm="tachoscope"',) if self._users else ()
        return (*basic, 'Bearer realm="tachoscope"') if self._tokens else basic

    def check(self, authorization: str | None, later: Later) -> AuthResult | None:
        """Return the verdict, or None where it takes bcrypt: then `later` gets it, from the worker thread."""
        if not self._users and not self._tokens:
            return AuthResult.ALLOWED
        scheme, _, credentials = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            return self._check_token(credentials.strip())
        if scheme.lower() == "basic" and self._users:
            return self._check_password(credentials.strip(), later)
        return AuthResult.REFUSED

    def client(self, authorization: str | None) -> str:
        """Return whose the credentials are that were allowed: `user:NAME` or `token:NAME`; empty: nobody's."""
        scheme, _, credentials = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            return next((f"token:{name}" for name in self._tokens_that_match(credentials.strip())), "")
        if scheme.lower() != "basic" or not self._users:
            return ""
        with contextlib.suppress(binascii.Error, ValueError):
            user = base64.b64decode(credentials.strip(), validate=True).partition(b":")[0]
            return f"user:{user.decode()}" if user in self._users else ""
        return ""

    def close(self, *, wait: bool) -> None:
        """Stop the worker thread. Pending requests become BUSY: their answer would use outdated users."""
        with self._lock:
            self._closed = True
            waiting = [later for waiters in self._waiting.values() for later in waiters]
            self._waiting.clear()
            self._remembered.clear()
            worker, self._worker = self._worker, None
            with contextlib.suppress(queue.Empty):  # the worker takes from it, too
                while True:
                    self._queue.get_nowait()
            self._queue.put_nowait(None)
        for later in waiting:
            later(AuthResult.BUSY)
        if wait and worker is not None:
            worker.join()

    def _digest(self, kind: bytes, secret: bytes) -> bytes:
        # The key is random: neither the memory of right answers nor the time of a look-up tells anything of a secret.
        return hmac.digest(self._key, kind + b"\0" + secret, "sha256")

    def _check_token(self, token: str) -> AuthResult:
        return AuthResult.ALLOWED if self._tokens_that_match(token) else AuthResult.REFUSED

    def _tokens_that_match(self, token: str) -> list[str]:
        presented = self._digest(b"bearer", token.encode())
        return [name for name, known in self._tokens.items() if hmac.compare_digest(known, presented)]

    def _check_password(self, credentials: str, later: Later) -> AuthResult | None:
        try:
            given = base64.b64decode(credentials, validate=True)
        except (binascii.Error, ValueError):
            return AuthResult.REFUSED
        user, colon, password = given.partition(b":")
        if not colon:
            return AuthResult.REFUSED
        key = self._digest(b"basic", given)
        with self._lock:
            if key in self._remembered:
                self._remembered[key] = self._remembered.pop(key)  # the latest used is the last to go
                return AuthResult.ALLOWED
            return self._enqueue(key, user, password, later)

    def _enqueue(self, key: bytes, user: bytes, password: bytes, later: Later) -> AuthResult | None:
        if self._closed:
            return AuthResult.BUSY
        if key in self._waiting:  # the same guess from many connections costs one bcrypt
            self._waiting[key].append(later)
            return None
        try:
            self._queue.put_nowait((key, user, password))
        except queue.Full:
            return AuthResult.BUSY
        self._waiting[key] = [later]
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="tachoscope-auth", daemon=True)
            self._worker.start()
        return None

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            key, user, password = job
            right = self._matches(user, password)
            with self._lock:
                waiters = self._waiting.pop(key, [])
                if right and not self._closed:
                    self._remember(key)
            for later in waiters:
                later(AuthResult.ALLOWED if right else AuthResult.REFUSED)

    def _matches(self, user: bytes, password: bytes) -> bool:
        hashed = self._users.get(user)
        try:
            right = self._compare(password[:BCRYPT_BYTES], self._decoy(user) if hashed is None else hashed)
        except Exception:  # whatever a hostile password makes bcrypt raise, it is a wrong one, and the next guess needs this thread
            return False
        return right and hashed is not None

    def _decoy(self, user: bytes) -> bytes:
        # An unknown user costs what some known one costs, the same at each try: time does not tell who exists.
        hashes = list(self._users.values())
        return hashes[int.from_bytes(self._digest(b"decoy", user)[:8]) % len(hashes)]

    def _remember(self, key: bytes) -> None:
        while len(self._remembered) >= REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[key] = None
