"""Looks at boards without a Grafana: draws their JSON from a Prometheus, on pages of a server on this machine."""
