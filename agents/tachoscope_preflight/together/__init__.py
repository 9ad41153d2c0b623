"""Several hosts: they meet at the first one, measure, and exchange in pairs and in a ring."""
