"""`tachoscope run`: starts a command with the probe and watches it."""
