"""Grafana boards: each answers one question, is made with grafanalib, and knows only names of the catalogue."""
