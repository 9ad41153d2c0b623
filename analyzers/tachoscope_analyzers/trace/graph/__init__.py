"""What waits for what, and the critical path."""
