"""Log lines, checked YAML, watched files, a bounded HTTP client."""
