"""The bottlenecks of a training step, a file each."""
