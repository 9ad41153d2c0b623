"""From the spool to the store, each record exactly once."""
