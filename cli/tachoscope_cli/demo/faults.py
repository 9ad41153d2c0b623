"""The faults that the demo can cause, by the class that they should be reported as. Light: the training imports torch, this not."""

FAULTS = {
    "none": "nothing: a healthy run",
    "input_straggler": "rank 1 sleeps 150 ms while it loads each batch",
    "input_workers": "every rank waits 80 ms for each batch, in the training process itself (num_workers=0)",
    "input_preprocess": "every rank decompresses for about 80 ms a batch",
    "input_fetch": "every rank reads each batch from a slow server, about 80 ms",
    "compute_straggler": "rank 1 computes for 80 ms more in each step",
    "cpu_contention": "two other processes compute on the core that rank 1 is pinned to",
    "checkpoint_stall": "rank 0 saves a large state, flushed to disk, every 10 steps",
    "comm_exposed": "the model is tiny, so that the step is mostly gradient exchange",
    "host_pause": "every rank collects garbage over millions of objects every 5 steps",
    "recompilation": "every rank compiles a part of its loss again in each step, since its length changes",
    "unknown": "every rank sleeps 80 ms after the optimizer, outside of anything that is measured",
}
