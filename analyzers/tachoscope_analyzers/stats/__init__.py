"""Statistics that know nothing of jobs."""
