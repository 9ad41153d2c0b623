"""The lab: causes each bottleneck for real, and keeps what the probe recorded beside the truth (docs/develop/lab.md)."""
