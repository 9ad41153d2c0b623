"""Flags of a command's Python that keep the probe out, which comes in by `$PYTHONPATH` and `sitecustomize`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?")
_WITH_VALUE = "WX"
_ENDS_OPTIONS = "cm"
_LONG_WITH_VALUE = "--check-hash-based-pycs"


def keeps_probe_out(command: str) -> str:
    """Return the first flag of the first Python in a command line that keeps the probe out, such as `-I`; empty: there is none.

    https://docs.python.org/3/using/cmdline.html: -E ignores $PYTHONPATH, -I as well, and -S does not import sitecustomize.
    """
    try:
        words = shlex.split(command)
    except ValueError:  # it was cut to what a record holds
        words = command.split()
    pythons = [number for number, word in enumerate(words) if _PYTHON.fullmatch(PurePath(word).name)]
    return _flag(words[pythons[0] + 1 :]) if pythons else ""


def _flag(words: Sequence[str]) -> str:
    left = iter(words)
    for word in left:
        if word == _LONG_WITH_VALUE:
            next(left, None)
        if word in {"-", "--"} or not word.startswith("-"):
            return ""
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], start=2):
            if letter in "IES":
                return f"-{letter}"
            if letter in _ENDS_OPTIONS:
                return ""
            if letter in _WITH_VALUE:
                if position == len(word):
                    next(left, None)
                break
    return ""
