"""What screens show, read once and kept."""
