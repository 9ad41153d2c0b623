"""The exit codes of the `tachoscope` command. Commands take them from here, and so does docs/reference/programs.md."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended. `tachoscope run` alone gives others: those of the command that it runs."""

    OK = 0
    NOT_WELL = 1
    NOT_DONE = 2
    FOUND = 3
    DEFECT = 70
    NOT_EXECUTABLE = 126
    NO_SUCH_COMMAND = 127
    INTERRUPTED = 130
    NO_READER = 141
    TERMINATED = 143

    @classmethod
    def from_success(cls, well: object) -> ExitCode:
        """Return OK for what is true, else NOT_WELL."""
        return cls.OK if well else cls.NOT_WELL


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "The command did what was asked, and no code below applies.",
    ExitCode.NOT_WELL: "The command did what was asked, and found a problem.",
    ExitCode.NOT_DONE: "The command could not do what was asked: a wrong option, file or address, a missing package. stderr "
    "gives the reason and the fix. A group without a command, such as `tachoscope store`, prints its help and ends with this.",
    ExitCode.FOUND: "It found what the command looks for.",
    ExitCode.DEFECT: "A defect of tachoscope: the traceback is on stderr. Please report it.",
    ExitCode.NOT_EXECUTABLE: "The command to run may not be executed.",
    ExitCode.NO_SUCH_COMMAND: "The command to run does not exist.",
    ExitCode.INTERRUPTED: "Ctrl-C (SIGINT). Commands that run until Ctrl-C, such as `agent`, end with 0.",
    ExitCode.NO_READER: "The reader of the output went away, as `head` does (SIGPIPE).",
    ExitCode.TERMINATED: "Terminated (SIGTERM); what was started has ended, too.",
}
"""What each means, whatever the command."""

OF_COMMANDS: Mapping[ExitCode, Mapping[str, str]] = {
    ExitCode.NOT_WELL: {
        "agent": "records stayed in the spool",
        "dashboards build": "with `--check`: a file is not current",
        "dashboards check": "a problem is an error",
        "dashboards push": "a board was refused",
        "doctor": "something needs fixing",
        "drill": "a check failed, or a step of the runbook answered wrong",
        "job processes": "no process of the job runs here",
        "preflight": "something could not be judged, or the host is in use",
        "slo build": "an objective has an error; with `--check`: a file is not current",
        "slo check": "a problem is an error",
        "verify": "a checkpoint could not be verified; with `--last`: none is sound",
    },
    ExitCode.FOUND: {
        "analyze": "with `--fail-on`: a finding this severe, or a regression",
        "compare": "with `--fail-on`: a finding this severe, or a regression",
        "goodput": "with `--fail-on`: a finding this severe",
        "hang": "with `--fail-on`: a finding this severe",
        "preflight": "a host or link is unfit",
        "serving": "with `--fail-on`: a finding this severe",
        "trace": "with `--fail-on`: a finding this severe",
        "verify": "a checkpoint is corrupt",
    },
    ExitCode.NOT_EXECUTABLE: {"run": "the file has no permission, or could not be started"},
    ExitCode.NO_SUCH_COMMAND: {"run": "no program of this name is installed"},
    ExitCode.TERMINATED: {"drill": "the drill was interrupted"},
}
"""What a code means of the commands that give it; one that is not here may come of each."""
