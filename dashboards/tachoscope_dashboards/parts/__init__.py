"""What boards are made of: panels, variables, links, and what Grafana needs around them."""
