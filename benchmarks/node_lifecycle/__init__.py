"""The life cycle of a bad node on a real Slurm."""
