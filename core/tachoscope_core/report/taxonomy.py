"""The closed list of bottleneck classes: title, family, ledger state that it inflates, standard fix, runbook.

The slugs appear in reports and as label values, and never change. All classes stand here, those too that no analyzer
covers yet: what was not looked for is listed as not measured.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A class of the taxonomy; `state` is the ledger state of a training rank, request or engine that it inflates."""

    slug: str
    family: str
    title: str
    state: str
    fix: str

    @property
    def runbook(self) -> str:
        """Path of its page in the repository and, below the command-line package, in an installation."""
        return f"runbooks/{self.slug}.md"


_ALL = (
    # input
    Bottleneck(
        "input_fetch",
        "input",
        "Input bound: reading from storage",
        "data_wait",
        "cache the data near the node, use larger sequential reads and fewer, larger files, or faster storage",
    ),
    Bottleneck(
        "input_preprocess",
        "input",
        "Input bound: decoding and augmenting on the CPU",
        "data_wait",
        "prepare data ahead of time, a cheaper transform, more loader workers while cores are free, or decode on the device",
    ),
    Bottleneck(
        "input_workers",
        "input",
        "Input bound: worker processes of the loader",
        "data_wait",
        "raise DataLoader(num_workers=..., prefetch_factor=...), with persistent_workers=True, so that batches are made ahead",
    ),
    Bottleneck(
        "input_straggler",
        "input",
        "One rank's input is slow and all ranks wait for it",
        "data_wait",
        "look at that rank's shards, storage path and loader workers; shard the data evenly",
    ),
    Bottleneck(
        "h2d_copy",
        "input",
        "Copies from host to device",
        "host_to_device",
        "DataLoader(pin_memory=True) and .to(device, non_blocking=True), prefetched on a side stream",
    ),
    # compute and host
    Bottleneck(
        "compute_bound",
        "compute",
        "Compute bound: healthy, the time goes into the model",
        "compute",
        "nothing to fix; to go faster use better kernels (torch.compile), lower precision or more accelerators",
    ),
    Bottleneck(
        "compute_inefficient",
        "compute",
        "Busy but inefficient: memory bound, unfused or the wrong precision",
        "compute",
        "fuse kernels (torch.compile), bf16, flash attention",
    ),
    Bottleneck(
        "launch_bound",
        "compute",
        "The host launches kernels more slowly than the device runs them",
        "host_wait",
        "torch.compile, CUDA graphs, or a larger batch",
    ),
    Bottleneck("underfilled", "compute", "The device is too large for the batch", "compute", "raise the batch size per device"),
    Bottleneck(
        "host_sync",
        "compute",
        "Frequent synchronisation calls (.item(), print, .cpu())",
        "host_wait",
        "log every N steps and keep values on the device until then",
    ),
    Bottleneck(
        "host_pause",
        "compute",
        "The training thread pauses: garbage collection, validation, logging",
        "host_wait",
        "look at the line that the evidence names; gc.freeze() after the set-up and collect on all ranks at the same step; "
        "validate and log less often",
    ),
    Bottleneck(
        "compute_straggler",
        "compute",
        "One rank takes longer than the others and all ranks wait for it",
        "compute",
        "move the rank to another device or node and see whether the slowness moves with it; drain the device if it does not",
    ),
    Bottleneck(
        "gpu_throttle",
        "compute",
        "The device clocks down: heat or power",
        "compute",
        "check cooling and power cap; drain the device",
    ),
    Bottleneck(
        "cpu_contention",
        "compute",
        "The training thread waits for a CPU core",
        "host_wait",
        "stop or move the process that shares the cores, pin the ranks to cores of their own, lower OMP_NUM_THREADS",
    ),
    Bottleneck(
        "data_imbalance",
        "compute",
        "The slow rank changes with the data: uneven sequence lengths or routing",
        "straggler_wait",
        "balance batches by length",
    ),
    Bottleneck(
        "pipeline_bubble",
        "compute",
        "Expected pipeline bubble",
        "pipeline_bubble",
        "more micro-batches, interleaved schedule",
    ),
    Bottleneck(
        "stage_imbalance",
        "compute",
        "One pipeline stage has more work than the others",
        "pipeline_bubble",
        "partition the layers again",
    ),
    # communication
    Bottleneck(
        "comm_exposed",
        "communication",
        "Exposed communication: the step waits for data to cross the network",
        "communication",
        "larger batch or gradient accumulation (no_sync), gradient compression, larger buckets, overlap",
    ),
    Bottleneck(
        "network_degraded",
        "communication",
        "The network is slower than its own baseline, for all ranks",
        "communication",
        "look for congestion and link errors; reroute",
    ),
    Bottleneck(
        "slow_link",
        "communication",
        "One link or network card is slow",
        "communication",
        "isolate the node or the link",
    ),
    # memory, storage, recovery
    Bottleneck(
        "memory_thrash",
        "memory",
        "The device allocator thrashes",
        "host_wait",
        "expandable segments, smaller batch",
    ),
    Bottleneck("host_memory", "memory", "The host runs out of memory", "host_wait", "find the leak; less prefetching"),
    Bottleneck(
        "checkpoint_stall",
        "storage",
        "Training stands still while checkpoints are written",
        "checkpoint",
        "save asynchronously (torch.distributed.checkpoint.async_save), less often, or to faster storage",
    ),
    Bottleneck(
        "lost_work",
        "recovery",
        "Steps are done again after failures",
        "lost_work",
        "checkpoint more often; find out why it fails",
    ),
    Bottleneck("hang", "recovery", "A rank is stuck", "hung", "restart without the stuck rank's node"),
    Bottleneck(
        "async_staleness",
        "recovery",
        "Updates are applied to parameters that are too old",
        "compute",
        "bound the staleness; scale the learning rate by it",
    ),
    Bottleneck(
        "silent_corruption",
        "recovery",
        "A device computes wrong numbers",
        "lost_work",
        "replay the step elsewhere; evict the device",
    ),
    # inference
    Bottleneck(
        "queue_saturation",
        "inference",
        "Requests wait in the queue for an engine",
        "queued",
        "scale out, or admit fewer requests",
    ),
    Bottleneck(
        "kv_pressure",
        "inference",
        "The KV cache is full and requests are preempted",
        "preempted",
        "lower max_num_seqs, or give the cache more memory",
    ),
    Bottleneck(
        "prefill_interference",
        "inference",
        "Long prompts stall the decoding of others",
        "decode",
        "chunked prefill, or separate prefill servers",
    ),
    Bottleneck(
        "decode_bandwidth",
        "inference",
        "Decoding is bound by memory bandwidth",
        "decode",
        "larger batches, quantised weights",
    ),
    Bottleneck("cold_start", "inference", "Requests wait for the model to load", "cold_start", "a pool of warm replicas"),
    Bottleneck(
        "unknown",
        "unknown",
        "A loss that is measured but whose cause is not",
        "unexplained",
        "look where the evidence points; a profiler trace of the named ranks with with_stack=True names lines of code, and "
        "tachoscope.phase(...) times a part of the loop",
    ),
)

HEALTHY = ("compute_bound", "decode_bandwidth")
"""Of these the time goes where it should: a finding of one is not a fault."""

BY_SLUG: dict[str, Bottleneck] = {bottleneck.slug: bottleneck for bottleneck in _ALL}
"""Every class by its slug, in the order of the design."""
