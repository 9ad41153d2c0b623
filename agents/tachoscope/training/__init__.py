"""One step of training, phase by phase."""
