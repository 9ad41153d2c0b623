"""Files of checkpoints: which saves are whole, and whether their bytes are those that were written."""
