"""What is wrapped in torch and in frameworks, so that a job need not call the probe."""
