"""Who and where this process is, and what happens when it imports a module."""
