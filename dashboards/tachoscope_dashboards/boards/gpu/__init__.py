"""The board of a node's GPUs."""
