"""Two reports compared."""
