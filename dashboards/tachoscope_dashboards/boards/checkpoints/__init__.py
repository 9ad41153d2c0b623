"""The board of checkpoints, their storage and recoveries."""
