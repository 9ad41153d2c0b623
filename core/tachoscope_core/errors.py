"""The one error type that users see: what is wrong, where, and the way out."""

from __future__ import annotations

from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.redaction import redact


class TachoscopeError(Exception):
    """An error with a way out, secrets redacted. The command line prints it as one line and exits with `exit_code`."""

    def __init__(self, message: str, *, fix: str = "", exit_code: ExitCode = ExitCode.NOT_DONE) -> None:
        super().__init__(redact(f"{message} ({fix})" if fix else message))
        self.exit_code = exit_code
