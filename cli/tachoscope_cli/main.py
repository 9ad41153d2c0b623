"""The `tachoscope` command's entry. It imports the rest only where an interrupt or an error is told in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from tachoscope_core.errors import TachoscopeError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; errors are one line, and a traceback with --verbose."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        from tachoscope_cli.commands import call

        sys.exit(call(words))
    except TachoscopeError as error:
        if "--verbose" in words:
            raise
        sys.stderr.write(f"tachoscope: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("tachoscope: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:  # the reader of the pipe went away: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
