"""The password of the explorer: its file, and whether what somebody typed is it."""

from __future__ import annotations

import asyncio
import base64
import re
import stat
from pathlib import Path

import bcrypt

from tachoscope_core.errors import TachoscopeError
from tachoscope_service.http.auth import BCRYPT_BYTES, Auth, AuthResult
from tachoscope_service.http.web_config import MAX_COST

_HASH = re.compile(rb"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_COST = 10


def hash_of(path: Path) -> bytes:
    """Return the bcrypt hash of the password in a file: one line, the password or, as in the agent's web configuration, its hash.

    Raises:
        TachoscopeError: the file cannot be read or holds neither; nothing of what it holds is quoted.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise TachoscopeError(f"could not read the password file {path}: {error.strerror}") from None
    if len(lines) != 1 or not lines[0].strip():
        raise TachoscopeError(f"the password file {path} holds {'several lines' if lines[1:] else 'nothing'}", fix="one line")
    given = lines[0].strip()
    if not given.startswith((b"$2a$", b"$2b$", b"$2y$")):
        if len(given) > BCRYPT_BYTES:
            raise TachoscopeError(f"the password in {path} is longer than the {BCRYPT_BYTES} bytes that count", fix="shorten it")
        return bcrypt.hashpw(given, bcrypt.gensalt(_COST))
    found = _HASH.fullmatch(given)
    if found is None or not 4 <= int(found[1]) <= MAX_COST:
        raise TachoscopeError(
            f"the password file {path} holds no bcrypt hash of a cost between 4 and {MAX_COST}", fix="see docs/guides/explorer.md"
        )
    return given


def open_to_others(path: Path) -> bool:
    """Return whether others of this machine may read a file."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


class Password:
    """Judges what is typed, one at a time in a thread of its own, so that guesses do not delay those who look."""

    def __init__(self, hashed: bytes) -> None:
        self._auth = Auth({"": hashed}, ())

    async def verdict(self, typed: str) -> AuthResult:
        """Return whether it is the password; busy where too many guesses wait."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[AuthResult] = loop.create_future()

        def tell(verdict: AuthResult) -> None:
            if not told.done():  # whoever asked may have gone away
                told.set_result(verdict)

        def later(verdict: AuthResult) -> None:
            loop.call_soon_threadsafe(tell, verdict)

        credentials = base64.b64encode(b":" + typed.encode()).decode()
        found = self._auth.check(f"Basic {credentials}", later)
        return await told if found is None else found
