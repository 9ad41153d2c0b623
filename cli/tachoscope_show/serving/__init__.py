"""Reports of a service as text and page."""
