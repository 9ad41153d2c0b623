"""The one error type that users see: what is wrong, where, and the way out."""

from __future__ import annotations


class TachoscopeError(Exception):
    """An error with a way out. The command line prints it as one line and exits with `exit_code`."""

    def __init__(self, message: str, *, fix: str = "", exit_code: int = 2) -> None:
        super().__init__(f"{message} ({fix})" if fix else message)
        self.exit_code = exit_code
