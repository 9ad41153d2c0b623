"""Figures of a real Slurm, by the watch and by Slurm's own programs."""
