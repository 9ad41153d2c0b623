"""Tests a node, or several together, before a job: what each measures is judged by `tachoscope_analyzers.preflight`."""
