"""One sentence for each class of the taxonomy: what a report says first, in the terminal, on the page and in the explorer.

Places in braces: `share` of the loss and `whole`, what it is of; `ranks`, the culprits, with `are`; `on`: them, where they are not
all; `slower`: by how much the fix shortens the step; `place`: how often, and the line of code; `used` and `cores`: by the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping

SENTENCES: Mapping[str, str] = {
    "input_fetch": "Reading data{on} takes {share} of {whole}{place}.",
    "input_preprocess": "Preparing data{on} takes {share} of {whole}{place}.",
    "input_workers": "The data loader{on} takes {share} of {whole}{place}.",
    "input_straggler": "{ranks} {are} late with the data: all ranks wait for {share} of {whole}{place}.",
    "h2d_copy": "Copies to the device{on} take {share} of {whole}{place}.",
    "compute_bound": "Nothing to fix: {share} of {whole} is computing.",
    "compute_inefficient": "Kernels that use the device poorly{on} cost {share} of {whole}{place}.",
    "launch_bound": "The device{on} waits {share} of {whole} for the host to launch kernels{place}.",
    "underfilled": "The batch is too small for the device{on}: {share} of {whole} could be saved{place}.",
    "host_sync": "Synchronising with the device{on} (.item(), .cpu(), print) takes {share} of {whole}{place}.",
    "host_pause": "The training thread{on} stands still for {share} of {whole}{place}.",
    "host_pause.gc": "Garbage collection{on} takes {share} of {whole}{place}.",
    "host_pause.evaluation": "Validation{on} takes {share} of {whole}{place}.",
    "compute_straggler": "{ranks} {are} slower than the others: the step takes {slower} longer{place}.",
    "gpu_throttle": "The device{on} clocks down: it costs {share} of {whole}.",
    "cpu_contention": "The training thread{on} waits for a CPU core for {share} of {whole}.",
    "cpu_contention.loader_workers": "The job's own loader workers took {used} of {cores} cores, and the training thread{on} "
    "waited for one for {share} of {whole}.",
    "cpu_contention.compute_threads": "The job has more compute threads than cores: the training thread{on} waits for a core for "
    "{share} of {whole}.",
    "cpu_contention.other_ranks": "More ranks than cores: the training thread{on} waits for a core for {share} of {whole}.",
    "cpu_contention.other_processes": "The machine is shared: other processes took {used} of {cores} cores, and the training "
    "thread{on} waited for one for {share} of {whole}.",
    "data_imbalance": "Batches are uneven: ranks wait for the largest one for {share} of {whole}{place}.",
    "pipeline_bubble": "The pipeline's bubble takes {share} of {whole}.",
    "stage_imbalance": "{ranks} {are} a pipeline stage with more work than the others: that costs {share} of {whole}.",
    "comm_exposed": "Waiting for data from other ranks takes {share} of {whole}{place}.",
    "network_degraded": "The network became slower: it costs {share} of {whole}.",
    "slow_link": "A slow link{on} costs {share} of {whole}.",
    "memory_thrash": "Allocating device memory{on} takes {share} of {whole}{place}.",
    "host_memory": "The host{on} runs out of memory: it costs {share} of {whole}.",
    "checkpoint_stall": "Saving checkpoints{on} takes {share} of {whole}{place}.",
    "lost_work": "Work done again after failures takes {share} of {whole}.",
    "hang": "{ranks} {are} stuck: it costs {share} of {whole}.",
    "hang.now": "{ranks} {are} stuck{place}, and no step came since: that is {share} of {whole} so far.",
    "async_staleness": "Updates{on} are applied to parameters that are too old.",
    "silent_corruption": "A device computes wrong numbers{on}.",
    "queue_saturation": "Waiting in the queue takes {share} of the {whole}.",
    "kv_pressure": "A full KV cache costs {share} of the {whole}.",
    "prefill_interference": "Decoding waits for the prefill of other requests for {share} of the {whole}.",
    "decode_bandwidth": "Nothing to fix: decoding, at the speed of the device's memory, takes {share} of the {whole}.",
    "cold_start": "Loading the model takes {share} of the {whole}.",
    "unknown": "Unexplained{on}: {share} of {whole}{place}.",
}
"""By class, and by class and cause (`Finding.cause`) where a class covers several things."""

CORES_USED: Mapping[str, str] = {
    "loader_workers": "cores used by the loader workers of these ranks",
    "other_processes": "cores used by other processes",
}
"""The signal of the evidence, with the host's cores as its threshold, that a cause of `cpu_contention` is told by."""


def template(class_: str, cause: str) -> str:
    """Return the sentence of a finding; empty of a class that this version does not know."""
    return SENTENCES.get(f"{class_}.{cause}") or SENTENCES.get(class_, "")
