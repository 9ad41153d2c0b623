"""Memory of a job: what grew, whose it was, and whether it ended out of memory."""
