"""Pure functions from records to reports. Nothing here draws, prints or reads a clock."""
