"""Where known programs take secrets in their command lines, under options whose names do not say so: `curl -u`, `mysql -p`.

From the manual pages of the programs. What an option's name tells, such as `--password`, is found by `redaction` itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Program:
    """Options of a program that take a secret.

    Attributes:
        separate: the secret is the next word, or follows `=`. glued: it may follow the letter at once, as in `-pSECRET`.
        within: they mean that only after this subcommand.
        after: the first word behind this subcommand that is not an option is a secret.
    """

    separate: frozenset[str] = frozenset()
    glued: tuple[str, ...] = ()
    within: str = ""
    after: str = ""


def _program(separate: str = "", glued: str = "", *, within: str = "", after: str = "") -> _Program:
    return _Program(frozenset(separate.split()), tuple(glued.split()), within, after)


_REGISTRY = _program("-p --creds", within="login")
_MYSQL = _program("", "-p")
_LDAP = _program("-w", "-w")
_ARCHIVER = _program("", "-p")
_NONE = _program()
_PROGRAMS = {
    "curl": _program("-u --user -U --proxy-user -b --cookie --oauth2-bearer --pass --proxy-pass", "-u -U -b"),
    "http": _program("-a --auth", "-a"),
    "https": _program("-a --auth", "-a"),
    "lftp": _program("-u", "-u"),
    "mysql": _MYSQL,
    "mysqldump": _MYSQL,
    "mysqladmin": _MYSQL,
    "mariadb": _MYSQL,
    "mariadb-dump": _MYSQL,
    "mongo": _program("-p", "-p"),
    "mongosh": _program("-p", "-p"),
    "mongodump": _program("-p", "-p"),
    "redis-cli": _program("-a --pass", "-a"),
    "sshpass": _program("-p", "-p"),
    "smbclient": _program("-U --user", "-U"),
    "ldapsearch": _LDAP,
    "ldapmodify": _LDAP,
    "openssl": _program("-pass -passin -passout -k -K"),
    "7z": _ARCHIVER,
    "7za": _ARCHIVER,
    "unrar": _ARCHIVER,
    "zip": _program("-P", "-P"),
    "unzip": _program("-P", "-P"),
    "docker": _REGISTRY,
    "podman": _REGISTRY,
    "nerdctl": _REGISTRY,
    "buildah": _REGISTRY,
    "helm": _REGISTRY,
    "oras": _REGISTRY,
    "crane": _REGISTRY,
    "apptainer": _REGISTRY,
    "skopeo": _program("--creds --src-creds --dest-creds"),
    "az": _program("-p", within="login"),
    "wandb": _program(after="login"),
    "vault": _program(after="login"),
    "comet": _program(after="login"),
    # Programs that another one starts, and whose options mean something else.
    "ssh": _NONE,
    "scp": _NONE,
    "rsync": _NONE,
    "python": _NONE,
    "python3": _NONE,
    "torchrun": _NONE,
}
_SEPARATORS = frozenset({"|", "||", "&", "&&", ";"})


def hidden_parts(words: Sequence[str]) -> dict[int, int]:
    """Return which words of a command hold a secret, each with the place in the word at which that begins."""
    found: dict[int, int] = {}
    program, seen, takes_next = _NONE, set[str](), False
    for index, word in enumerate(words):
        known = _PROGRAMS.get(word.rpartition("/")[2])
        if takes_next:
            found[index], takes_next = 0, False
        elif word in _SEPARATORS or known is not None:
            program, seen = known or _NONE, set()
        elif word.startswith("-"):
            place = _place(program, word, seen)
            takes_next = place == len(word) and not word.endswith("=")
            if 0 <= place < len(word):
                found[index] = place
        elif program.after and program.after in seen:
            found[index] = 0
            program = _NONE
        else:
            seen.add(word)
    return found


def _place(program: _Program, option: str, seen: set[str]) -> int:
    """Return where in the option its secret begins; its length: it is the next word; -1: it takes none."""
    if program.within and program.within not in seen:
        return -1
    name, equals, _ = option.partition("=")
    if name in program.separate:
        return len(name) + len(equals)
    if not option.startswith("--") and option[:2] in program.glued and len(option) > 2:
        return 2
    return -1


_WORD = re.compile(r"[^\s\"'|;&]+|[|;&]+")


def hidden_spans(text: str) -> list[tuple[int, int]]:
    """Return where secrets begin and end in a text with commands of a shell in it."""
    matches = list(_WORD.finditer(text))
    places = hidden_parts([match.group() for match in matches])
    return [(matches[index].start() + place, matches[index].end()) for index, place in places.items()]
