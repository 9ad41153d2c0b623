"""Watches a job from outside: `tachoscope run`, the agent and the watch use it, never the job itself."""
