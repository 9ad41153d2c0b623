"""What every scheduler's document is turned into: allocations."""
