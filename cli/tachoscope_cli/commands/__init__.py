"""One file a command: its options, one call, its output."""
