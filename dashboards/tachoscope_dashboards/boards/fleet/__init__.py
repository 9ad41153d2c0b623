"""The board of all jobs and nodes."""
