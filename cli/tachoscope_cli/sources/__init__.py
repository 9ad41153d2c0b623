"""Outside systems that commands ask: Kubernetes, Prometheus, schedulers, pages of the agent."""
