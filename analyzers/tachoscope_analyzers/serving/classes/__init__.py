"""The bottlenecks of an inference server, a file each."""
