"""Options of `tachoscope analyze` that are commands of their own since 2026-11-27. They work for one release, and say so.

The words of an old form are replaced by those of the new command, which then checks them. To end this, remove file and call.
"""

from __future__ import annotations

from collections.abc import Sequence

from tachoscope_cli.common.options import print_notice

_SUBJECTS = {"--goodput": "goodput", "--serving": "serving"}
"""Options whose value is the first argument of a command now."""
_OPTIONS = {
    **dict.fromkeys(("--tables", "--perfetto", "--executor", "--replay", "--no-replay"), "trace"),
    **dict.fromkeys(("--for", "--every", "--prometheus", "--save", "--device"), "serving"),
}
"""Options that another command has under the same name now."""


def current_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line as they are written now; prints the new form of an old one."""
    if not words or words[0] != "analyze":
        return list(words)
    split = [part for word in words[1:] for part in _split(word)]
    for option, command in _SUBJECTS.items():
        if option in split:
            print_notice(f"`tachoscope analyze {option}` is `tachoscope {command}` now; the old form works in this release")
            at = split.index(option)
            return [command, *split[at + 1 : at + 2], *split[:at], *split[at + 2 :]]
    found = next((one for one in split if one in _OPTIONS), "")
    if not found:
        return list(words)
    print_notice(f"{found} is an option of `tachoscope {_OPTIONS[found]}` now; `analyze` takes it in this release")
    return [_OPTIONS[found], *split]


def _split(word: str) -> list[str]:
    """Return an option of before and its value as two words."""
    option, equals, value = word.partition("=")
    return [option, value] if equals and option in {*_SUBJECTS, *_OPTIONS} else [word]
