"""Numbers with their sources: thresholds, prices and how they are read."""
