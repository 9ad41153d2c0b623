"""Saves and restores: how long they take, what they wrote, and what it is called."""
