"""The report of one attempt of a job."""
