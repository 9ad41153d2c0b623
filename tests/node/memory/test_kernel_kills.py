from __future__ import annotations

from tachoscope_core.records.memory import ProcessMemory
from tachoscope_node.memory.kernel_kills import KernelKill, KillLines

DECIDED = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job/a,"
    "task=python3,pid=4711,uid=0"
)
KILLED = (
    "Memory cgroup out of memory: Killed process 4711 (python3) total-vm:524288kB, anon-rss:204800kB, file-rss:1024kB, "
    "shmem-rss:512kB, UID:0 pgtables:500kB oom_score_adj:0"
)
OF_THE_HOST = (
    "Out of memory: Killed process 12 (a (b) c) total-vm:1kB, anon-rss:8kB, file-rss:0kB, shmem-rss:0kB, UID:1 pgtables:1kB"
)


def of(*texts: str) -> list[KernelKill]:
    lines = KillLines()
    return [kill for text in texts if (kill := lines.add(text)) is not None]


def test_both_lines_of_a_kill_are_joined_by_the_process_id() -> None:
    (kill,) = of("python3 invoked oom-killer: gfp_mask=0xcc0", DECIDED, KILLED)

    held = ProcessMemory(pid=4711, anonymous_bytes=200 << 20, file_bytes=1 << 20, shared_bytes=512 << 10)
    assert kill == KernelKill(4711, "python3", True, "/job", "/job/a", held)


def test_a_kill_for_want_of_the_machines_memory_has_no_group_and_a_name_may_have_brackets() -> None:
    (kill,) = of(OF_THE_HOST)

    assert (kill.pid, kill.name, kill.by_group, kill.limit_of) == (12, "a (b) c", False, "")


def test_what_only_looks_like_a_kill_is_none() -> None:
    assert of("Killed process 1 (x)", "oom_reaper: reaped process 4711 (python3), now anon-rss:0kB", "x " + KILLED) == []
