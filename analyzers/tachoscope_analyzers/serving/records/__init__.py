"""What happened on an inference server."""
