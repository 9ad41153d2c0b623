"""The board of one job."""
