"""The `tachoscope` command: thin, the only package that imports all others."""
