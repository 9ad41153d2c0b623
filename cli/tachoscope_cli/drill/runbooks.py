"""What each drill's runbook must show of its fault: see `walk.Expected`."""

from __future__ import annotations

from tachoscope_cli.drill.walk import Expected
from tachoscope_cli.drill.workloads import SAVE_SECONDS

_MACHINE = "how this machine is"

COLLECTIVE_HANG = Expected(
    shows=frozenset({1, 2, 3, 4}),
    answers={
        "tachoscope goodput": r"(?m)^Rank (?P<rank>\d+) is stuck, (?s:.*?)rank \d+ on (?P<host>\S+) was stuck since",
        "tachoscope job processes": r"(?m)^(?P<pid>\d+)$",
        "ps -o pid,stat,wchan": r"(?m)^ *\d+ +T",
        "ps -o pid,stat,cmd": r"^ *PID STAT CMD\n$",  # it is gone
        "tachoscope verify": r"drill",  # it saves none, and the command says so
    },
    ends="kill -CONT",
    last=("tachoscope verify", "kill -TERM", "ps -o pid,stat,cmd", "kill -9"),
)
JOB_HUNG = Expected(
    shows=frozenset({1}),
    either=dict.fromkeys((2, 3, 4), "the agent is not scraped in this drill"),
    answers={
        **{start: shows for start, shows in COLLECTIVE_HANG.answers.items() if start != "tachoscope goodput"},
        "tachoscope hang": r"(?s)A rank is stuck, rank (?P<rank>\d+)\..*?process (?P<pid>\d+) on (?P<host>\S+): T",
    },
    ends=COLLECTIVE_HANG.ends,
    last=COLLECTIVE_HANG.last,
)
INPUT_WAIT = Expected(
    shows=frozenset({1, 2, 3, 4, 5}),
    either={6: _MACHINE, 7: _MACHINE, 8: _MACHINE},
    takes={"training_job": (2, "training_job"), "rank": (3, "rank")},
    answers={"tachoscope analyze --job": r"input_workers"},
)
BOTTLENECK = Expected(
    shows=frozenset({1, 2, 4}),
    has={6: {"state": "straggler_wait"}},
    answers={
        "tachoscope analyze --job": r"(?m)^Rank 1 is slower than the others",
        "tachoscope runbook": r"(?m)^# compute_straggler",
    },
)
RECOMPILING = Expected(
    shows=frozenset({1, 2, 3}),
    means={1: "0"},
    either={4: "the drill has one rank"},
    answers={"tachoscope analyze --job": r"(?m)^.*compil.*again"},
)
CHECKPOINT_TOO_OLD = Expected(
    shows=frozenset({1, 2, 5}),
    has={3: {}, 4: {"result": "sound"}},
    means={1: "below 18", 2: f"below {2 * SAVE_SECONDS:g}"},  # an hour at 1/200; the interval, and what a save takes
    either={6: _MACHINE},
    answers={"tachoscope verify": r"(?P<checkpoint_folder>/\S+)/checkpoint-\d+\.pt"},
)
MEMORY_FULL = Expected(
    shows=frozenset({1}),
    answers={"tachoscope analyze --job": r"(?m)memory of the training process of rank 0 grew.*$"},
)
AVAILABILITY = Expected(
    shows=frozenset({1, 3, 5}),
    has={2: {"outcome": "shed"}},
    means={3: "below 1"},
    either={4: "of a budget of a scaled month a minute leaves nothing"},
    answers={"curl ": r"(?m)^(503 .*|200 (2\.[5-9]|[3-9]|\d\d).*)$"},
)
AGENT_DOWN = Expected(
    shows=frozenset({1, 2, 5}),
    means={3: "1"},  # one node
    either={6: "the drill has no other agent that could answer"},
    takes={"instance": (1, "instance")},
    answers={"curl ": r"(?i)could ?n.t connect|failed to connect|refused"},
)
