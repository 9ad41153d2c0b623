"""How large the batch should be, where the device waits for its host or is only partly filled.

A device whose multiprocessors are active to a ratio `a` is filled, as far as its work grows with the batch, by `good / a` times
the batch. Memory in use grows no faster than the batch, since parameters do not grow: `ratio x total / used` times the batch
fits for sure. Where the device waits X of a step of T seconds for launches, T / (T - X) times the batch takes the same T: the
host launches as many kernels, and the device works meanwhile (https://horace.io/brrr_intro.html, "Overhead").
"""

from __future__ import annotations

from tachoscope_analyzers.advice.number_text import gigabytes, number, time
from tachoscope_analyzers.data.thresholds import threshold


def for_activity(active: float, used_bytes: float | None, total_bytes: float | None) -> str:
    """Return by how much to raise the batch of a device that is too large for it.

    Args:
        active: ratio of the multiprocessors that are. used_bytes: most device memory in use, None: not measured; as total_bytes.
    """
    if active <= 0:
        return ""
    fills = threshold("sm_active_good") / active
    words = f"{threshold('sm_active_good'):g} / {number(active, 2)} = {number(fills, 2)} times the batch fill the device"
    if not used_bytes or not total_bytes:
        return f"raise the batch per device: {words}, if memory allows (not measured)"
    room = threshold("batch_memory_ratio")
    fits = room * total_bytes / used_bytes
    memory = f"{gigabytes(used_bytes)} of {gigabytes(total_bytes)} are in use"
    if fits < threshold("worthwhile_batch_growth"):
        return f"{words}, but {memory}: make room by activation checkpointing, share the device (MIG), or take a smaller one"
    fit = f"{room:g} x {number(total_bytes / 1e9)} / {number(used_bytes / 1e9)} = {number(fits, 2)} times fit for sure"
    return f"raise the batch per device {number(min(fills, fits), 2)} times: {words}, and as {memory}, {fit}"


def for_blocks(blocks: float) -> str:
    """Return by how much to raise the batch where kernels have less than one block for each multiprocessor.

    Args:
        blocks: per multiprocessor, mean over the kernels by their time.
    """
    if not 0 < blocks < 1:
        return ""
    return (
        f"raise the batch per device up to 1 / {number(blocks, 2)} = {number(1 / blocks, 2)} times: every multiprocessor then has "
        "a block, as far as blocks grow with the batch and memory allows (not measured); or fuse kernels"
    )


def for_launches(step_seconds: float, idle_seconds: float, without_seconds: float) -> str:
    """Return what a larger batch and fewer launches bring where the device waits for launches.

    Args:
        idle_seconds: of the device in a step, for that cause. without_seconds: of a step without it, replayed or subtracted.
    """
    busy = step_seconds - idle_seconds
    if busy <= 0 or idle_seconds <= 0 or not 0 < without_seconds < step_seconds:
        return ""
    return (
        f"torch.compile or CUDA graphs for fewer launches; expected step: {time(without_seconds)} instead of {time(step_seconds)}. "
        f"Or a larger batch: the device idles for {time(idle_seconds)} of the step, so {time(step_seconds)} / {time(busy)} = "
        f"{number(step_seconds / busy, 2)} times the batch take about as long"
    )
