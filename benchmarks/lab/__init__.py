"""The lab: causes each bottleneck for real on two cores, and keeps what the probe recorded beside the truth (docs/lab.md)."""
