"""NCCL's own telemetry: the Inspector's lines, an operation each, and RAS, which knows the communicators of a job."""
