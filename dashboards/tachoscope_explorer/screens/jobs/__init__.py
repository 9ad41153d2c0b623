"""The list of jobs, and one job."""
