"""How much load an inference server can take within its objectives."""
