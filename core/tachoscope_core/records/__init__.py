"""The wire format of what the probe writes."""
