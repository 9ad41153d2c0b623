"""The one error type that users see: what is wrong, where, and the way out."""

from __future__ import annotations

import errno

from tachoscope_core.exit_codes import ExitCode
from tachoscope_core.redaction import redact


class TachoscopeError(Exception):
    """An error with a way out, secrets redacted. The command line prints it as one line and exits with `exit_code`."""

    def __init__(self, message: str, *, fix: str = "", exit_code: ExitCode = ExitCode.NOT_DONE) -> None:
        super().__init__(redact(f"{message} ({fix})" if fix else message))
        self.exit_code = exit_code


def not_written(path: object, error: Exception, *, where: str = "") -> TachoscopeError:
    """Return the error for an object or file that could not be written, with the fix that its reason suggests.

    Args:
        where: what follows the path, such as ` in store s3://bucket/runs`.
    """
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        fix = "free space there"
    elif code in (errno.EACCES, errno.EPERM, errno.EROFS):
        fix = "give this user the right to write there, or choose another place"
    elif code in (errno.ENOENT, errno.ENOTDIR):
        fix = "create the folder, or choose another place"
    else:
        fix = "check the free space and the rights there"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return TachoscopeError(f"could not write {path}{where}: {reason}", fix=fix)
