"""Files for Perfetto and speedscope."""
