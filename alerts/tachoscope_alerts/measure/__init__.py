"""What an objective counts, without rules: of a Prometheus, or of stored samples."""
