"""Watches all live jobs of a store: a report a minute, metrics, and a view of the whole job over all its nodes."""
