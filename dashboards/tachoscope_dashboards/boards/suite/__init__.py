"""The board of what tachoscope itself does."""
