"""A password comes from a file, as it is or as its hash, and no message quotes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import bcrypt
import pytest

from tachoscope_core.errors import TachoscopeError
from tachoscope_explorer.server.password import Password, hash_of, open_to_others
from tachoscope_service.http.auth import AuthResult


def written(folder: Path, text: bytes) -> Path:
    path = folder / "password"
    path.write_bytes(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("text", ["open sesame", "pass:word", "Zauberwörtchen", "$2 a pint"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_with_a_password_lets_in_who_knows_it_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, end: str
) -> None:
    monkeypatch.setattr("tachoscope_explorer.server.password._COST", 4)
    password = Password(hash_of(written(tmp_path, f"{text}{end}".encode())))

    verdicts = [asyncio.run(password.verdict(typed)) for typed in (text, text.upper(), "", f"{text}\0", "x" * 5000)]

    assert verdicts == [AuthResult.ALLOWED, *[AuthResult.REFUSED] * 4]


def test_a_file_may_hold_the_hash_that_the_agent_takes(tmp_path: Path) -> None:
    hashed = bcrypt.hashpw(b"sesame", bcrypt.gensalt(4))

    found = hash_of(written(tmp_path, hashed.replace(b"$2b$", b"$2y$") + b"\n"))

    assert asyncio.run(Password(found).verdict("sesame")) is AuthResult.ALLOWED
    assert asyncio.run(Password(found).verdict(hashed.decode())) is AuthResult.REFUSED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "holds nothing"),
        (b"  \n", "holds nothing"),
        (b"secretword\nsecretword2\n", "holds several lines"),
        (b"secretword" * 8, "longer than the 72 bytes"),
        (b"$2y$10$secretword", "no bcrypt hash"),
        (b"$2b$31$" + b"." * 53, "no bcrypt hash of a cost between 4 and 16"),
    ],
)
def test_what_is_no_password_is_told_and_not_quoted(tmp_path: Path, text: bytes, said: str) -> None:
    path = written(tmp_path, text)

    with pytest.raises(TachoscopeError, match=said) as told:
        hash_of(path)

    assert str(path) in str(told.value)
    assert "secretword" not in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(TachoscopeError, match="could not read the password file .*No such file"):
        hash_of(tmp_path / "none")


def test_a_file_that_others_can_read_is_told_from_one_that_they_cannot(tmp_path: Path) -> None:
    path = written(tmp_path, b"sesame")
    assert not open_to_others(path)
    path.chmod(0o644)
    assert open_to_others(path)
