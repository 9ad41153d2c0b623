"""What is wrong with boards: Grafana's rules, our own, and their queries."""
