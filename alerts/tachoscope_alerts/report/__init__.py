"""How objectives stood, and what alerts would have fired."""
