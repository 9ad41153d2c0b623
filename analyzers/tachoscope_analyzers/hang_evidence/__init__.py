"""What the evidence of a hang says: which processes stand where, and which of them the others wait for."""
