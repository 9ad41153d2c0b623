"""Objectives and alerts: from OpenSLO specs to Prometheus rules, Alertmanager routes, tests and reports."""
