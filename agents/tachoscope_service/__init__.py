"""What every long-running service shares: the agent, the watch and the explorer."""
