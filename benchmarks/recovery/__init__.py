"""A training job that is submitted once and comes back from planted faults, on a real Slurm."""
