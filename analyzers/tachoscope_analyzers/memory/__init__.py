"""Memory of a job: what grew, whose it was, and whether it ended for want of it."""
