"""The report of traces: what is found, what it costs, what to do."""
