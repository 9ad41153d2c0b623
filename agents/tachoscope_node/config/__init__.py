"""The agent's configuration: its keys, and what is checked before anything runs."""
