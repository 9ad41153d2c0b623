"""The control group of a drill: its process is in it, it goes with its block, and where there can be none the drill says why."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tachoscope.process import control_group
from tachoscope.process.control_group import ControlGroup
from tachoscope_cli.drill import memory_group
from tachoscope_core.errors import TachoscopeError

GROUPS = Path("/sys/fs/cgroup/memory")


@pytest.mark.skipif(not os.access(GROUPS, os.W_OK), reason="no memory controller of version 1 that may be written")
def test_the_room_of_a_process_in_the_group_is_what_was_asked_for_and_nothing_of_it_is_left_afterwards() -> None:
    with memory_group.created() as group:
        process = subprocess.Popen(["sleep", "600"])
        memory_group.join(group, process.pid)
        before = control_group.memory_of(group)
        memory_group.leave_room(group, 64 << 20)
        held = control_group.memory_of(group)

    assert before is not None and before.limit_bytes == 0 and held is not None
    assert abs(held.limit_bytes - held.anonymous_bytes - held.shared_bytes - (64 << 20)) < 4 << 20
    assert process.wait(60) == -9
    assert not Path(group.folder).exists()


@pytest.mark.parametrize("unified", [False, True])
def test_where_no_group_can_be_made_or_it_counts_no_memory_the_drill_says_so(unified: bool, tmp_path: Path) -> None:
    lacking = ControlGroup(str(tmp_path / "none"), "/job", unified=unified)
    with pytest.raises(TachoscopeError, match="tachoscope-drill-.* cannot be written"), memory_group.created(lacking):
        pass
    (tmp_path / "job").mkdir()
    with pytest.raises(TachoscopeError, match="counts no memory"), memory_group.created(lacking._replace(root=str(tmp_path))):
        pass

    assert not list(tmp_path.rglob("tachoscope-drill-*"))
