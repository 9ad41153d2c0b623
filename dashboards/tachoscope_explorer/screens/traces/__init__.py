"""A trace, and the traces of a job."""
