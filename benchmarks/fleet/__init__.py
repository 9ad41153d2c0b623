"""The gate on what a fleet costs: pages of many agents, scraped by a real Prometheus, written on into a real VictoriaMetrics."""
