"""Rules, their tests, alerts and runbooks, made of objectives."""
