"""Causes a real fault and follows it to the notification and through the runbook."""
