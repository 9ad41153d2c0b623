"""Trainings that the kernel out-of-memory kills, and ones that only look as if: what does tachoscope say of them?"""
