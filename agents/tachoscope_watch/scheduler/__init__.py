"""What the scheduler of a cluster says of its queue and its accelerators."""
