"""The wire format of reports, and the taxonomy of bottlenecks."""
