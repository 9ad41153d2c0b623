"""Reports of a job, and comparisons, as text and page."""
