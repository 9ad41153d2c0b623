"""An error of writing names the fix that its reason suggests."""

import errno
import os
import sqlite3

import pytest

from tachoscope_core.errors import not_written


@pytest.mark.parametrize(
    ("code", "fix"),
    [
        (errno.ENOSPC, "free space"),
        (errno.EACCES, "the right to write"),
        (errno.EROFS, "the right to write"),
        (errno.ENOENT, "create"),
    ],
)
def test_the_fix_is_that_of_the_reason(code: int, fix: str) -> None:
    said = str(not_written("/store/a", OSError(code, os.strerror(code)), where=" in store /store"))

    assert said.startswith(f"could not write /store/a in store /store: {os.strerror(code)} (") and fix in said


def test_an_error_without_a_number_and_one_without_words_are_said_as_well() -> None:
    assert "disk is full (check the free space" in str(not_written("x", sqlite3.OperationalError("database or disk is full")))
    assert "could not write x: TimeoutError (" in str(not_written("x", TimeoutError()))
