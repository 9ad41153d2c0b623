"""Which pod and job each GPU works for."""
