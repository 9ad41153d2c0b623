"""A process that keeps the memory that it frees."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import resource
from tachoscope_core.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(6):
        blocks = [b"x" * (16 << 20) for _ in range(4)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

usual = faults()
keep_freed_memory()
print(usual, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_memory_that_was_freed_is_not_asked_of_the_kernel_again() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)

    usual, kept = map(int, done.stdout.split())
    assert kept < usual / 2
